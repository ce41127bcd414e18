//! Features that a node declares, and the images that it has.

use super::*;

/// A node with these images and features beside what every node has.
fn node_with(name: &str, status: Value) -> Node {
    let mut node = make_node(&json!({"name": name}));
    let given: Node = serde_json::from_value(json!({"status": status})).unwrap();
    node.status.images = given.status.images;
    node.status.declared_features = given.status.declared_features;
    node
}

#[test]
fn features_that_a_pod_needs_are_declared_by_its_node() {
    let needs = json!({"hostNetwork": true, "hostUsers": false});
    let mut world = World::new(json!([{"name": "a"}]));
    let declares = json!({"declaredFeatures": ["Other", "UserNamespacesHostNetworkSupport"]});
    world.nodes.set_node(&node_with("b", declares.clone()));
    assert_eq!(world.place(&make_pod("p", needs.clone())), Ok("b".to_owned()));
    let change = world.nodes.set_node(&node_with("b", json!({})));
    assert!(change.features);
    assert_eq!(
        world.place(&make_pod("p", needs)),
        Err("0/2 nodes are available: 2 node(s) didn't match Pod's required features.".to_owned())
    );
    assert!(world.place(&make_pod("q", json!({}))).is_ok());
    // A row that another node gets begins without features.
    world.nodes.set_node(&node_with("b", declares));
    world.nodes.remove_node("b");
    assert!(!world.nodes.set_node(&make_node(&json!({"name": "c"}))).features);
}

#[test]
fn node_that_declares_a_feature_wakes_its_pod() {
    let mut scheduler = Scheduler::default();
    let now = Duration::ZERO;
    scheduler.node_changed("a", Some(&make_node(&json!({"name": "a"}))), now);
    let needs = json!({"hostNetwork": true, "hostUsers": false, "schedulerName": "default-scheduler"});
    let pod = make_pod("p", needs);
    scheduler.pod_changed(&pod.key, Some(&pod), now);
    assert!(matches!(scheduler.decide(now, 0), Some(Decision::Reject { .. })));
    let later = Duration::from_secs(60);
    let same = make_node(&json!({"name": "a"}));
    scheduler.node_changed("a", Some(&same), later);
    assert!(scheduler.decide(later, 0).is_none());
    let declares = json!({"declaredFeatures": ["UserNamespacesHostNetworkSupport"]});
    scheduler.node_changed("a", Some(&node_with("a", declares)), later);
    assert!(matches!(scheduler.decide(later, 0), Some(Decision::Bind { .. })));
}

#[test]
fn image_of_a_volume_draws_its_pod_to_the_node_that_has_it() {
    let mut world = World::new(json!([{"name": "a"}]));
    let images = json!({"images": [{"names": ["registry/data:latest"], "sizeBytes": 800_000_000}]});
    world.nodes.set_node(&node_with("b", images));
    let pod = json!({"containers": [{"name": "c", "image": "small:1"}],
        "volumes": [{"name": "v", "image": {"reference": "registry/data"}}]});
    for random in ["p", "q"] {
        assert_eq!(world.place(&make_pod(random, pod.clone())), Ok("b".to_owned()));
    }
    world.nodes.set_node(&node_with("b", json!({})));
    assert_eq!(world.place(&make_pod("r", pod)), Ok("a".to_owned()));
}
