//! Clients that may use a balancer's address, and traffic that stays on its node.

use crate::world::{POD1, POD2, World};
use crate::{elements_of, set, whole_table};
use node_proxy::elements::Wanted;
use serde_json::json;

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn source_ranges_keep_others_from_the_balancers_address() {
    let world = World::new('b').await;
    let service = |ranges: &[&str]| {
        json!({"spec": {"clusterIP": "10.96.0.9", "loadBalancerSourceRanges": ranges,
                "ports": [{"name": "t", "port": 80, "nodePort": 30080}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.5"}]}}})
    };
    let pods = [(POD1, "here"), (POD2, "here")];
    world.serve("pod1");
    world.serve("pod2");
    let ask = async |ranges: &[&str]| {
        let table = whole_table(elements_of(&service(ranges), &pods, &Wanted::new()));
        world.apply(table).await;
        // The node port has no restriction.
        assert_eq!(world.ask("out", "192.0.2.1:30080", 20).len(), 2);
        let answered = |from: &str| world.ask(from, "198.51.100.5:80", 1) != set(&["timed out"]);
        [answered("out"), answered("pod1")]
    };
    assert_eq!(ask(&[]).await, [true, true]);
    assert_eq!(ask(&["203.0.113.0/24"]).await, [false, false]);
    assert_eq!(ask(&["192.0.2.2/32", "203.0.113.0/24"]).await, [true, false]);
    assert_eq!(ask(&["10.244.0.0/16"]).await, [false, true]);
}

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn local_policy_is_for_traffic_from_outside() {
    let world = World::new('l').await;
    let service = json!({"spec": {"clusterIP": "10.96.0.9", "externalTrafficPolicy": "Local",
            "ports": [{"name": "t", "port": 80, "nodePort": 30080}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.5"}]}}});
    world.serve("pod1");
    world.serve("pod2");
    // Both are here in truth; the node sees one or both as elsewhere.
    for (nodes, outside) in [
        (["here", "there"], "pod1 saw 192.0.2.2"),
        (["there", "there"], "timed out"),
    ] {
        let pods = [(POD1, nodes[0]), (POD2, nodes[1])];
        world
            .apply(whole_table(elements_of(&service, &pods, &Wanted::new())))
            .await;
        for to in ["198.51.100.5:80", "192.0.2.1:30080"] {
            let tries = if outside == "timed out" { 1 } else { 20 };
            assert_eq!(world.ask("out", to, tries), set(&[outside]), "{to}");
            let from_pod = world.ask("pod1", to, 40);
            assert_eq!(
                from_pod,
                set(&["pod1 saw 10.244.0.1", "pod2 saw 10.244.0.2"]),
                "{to}"
            );
            assert_eq!(world.ask("node", to, 40).len(), 2, "{to}");
        }
    }
}
