//! The agent's plugin beside the one that it replaces.

use crate::world::World;
use node_network::cni::LOOPBACK;
use serde_json::{Value, json};

fn own() -> Value {
    json!({"cniVersion": "1.0.0", "name": "knarr", "type": "knarr-cni", "subnet": "10.244.0.0/24"})
}

/// Configuration of an older agent, with the leases where ours are.
fn ptp(world: &World) -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "knarr", "type": "ptp",
        "ipam": {
            "type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]],
            "routes": [{"dst": "0.0.0.0/0"}], "dataDir": world.folder.path()
        }
    })
}

/// Addresses and routes of a pod, and of the node as far as they are that pod's, with one name for both pods.
async fn shape(world: &World, pod: &str, result: &Value) -> Vec<String> {
    let near = result["interfaces"][0]["name"].as_str().unwrap();
    let address = result["ips"][0]["address"].as_str().unwrap();
    let address = address.strip_suffix("/24").unwrap();
    let mut lines = Vec::new();
    for (at, link) in [(pod, "eth0"), ("node", near)] {
        for what in ["address", "route"] {
            lines.push(world.shown(at, &["-4", "-o", what, "show", "dev", link]).await);
        }
    }
    lines.push(world.shown(pod, &["-o", "link", "show", "lo"]).await);
    let without_numbers = |line: String| {
        let line = format!("{line} ").replace(near, "NEAR");
        let line = line
            .replace(&format!("{address}/"), "ADDRESS/")
            .replace(&format!("{address} "), "ADDRESS ");
        // Without it the kernel adds a route that `ptp` removes again.
        let line = line.replace("noprefixroute ", "");
        let words = line
            .split_whitespace()
            .skip_while(|word| word.ends_with(':') && word.len() < 4);
        words.collect::<Vec<_>>().join(" ")
    };
    lines.into_iter().map(without_numbers).collect()
}

fn leases(world: &World) -> Vec<String> {
    let entries = std::fs::read_dir(world.folder.path().join("knarr")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("10.")).collect();
    names.sort();
    names
}

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn cni_link_is_that_of_ptp_and_takes_its_place() {
    let world = World::new('c').await;
    let old = world.run_plugin("pod1", &ptp(&world)).await;
    let _agent = world.agent();
    let new = world.run_plugin("pod2", &own()).await;
    assert_eq!(
        shape(&world, "pod1", &old).await,
        shape(&world, "pod2", &new).await
    );
    let fields = |result: &Value| {
        let mut result = result.clone();
        for interface in result["interfaces"].as_array_mut().unwrap() {
            interface["mac"] = "".into();
        }
        result["interfaces"][0]["name"] = "".into();
        result["interfaces"][1]["sandbox"] = "".into();
        result["ips"][0]["address"] = "".into();
        result
    };
    assert_eq!(fields(&old), fields(&new));
    assert_eq!(leases(&world), ["10.244.0.2", "10.244.0.3"]);

    // A pod of the older agent is deleted by this one, and one of this agent after its namespace has gone.
    assert_eq!(world.call_plugin("CHECK", "pod1", &own()).await.0, 0);
    assert_eq!(world.call_plugin("DEL", "pod1", &own()).await.0, 0);
    world.run_plugin("pod1", &ptp(&world)).await;
    let mut others = own();
    others["cni.dev/valid-attachments"] = json!([{"containerID": "pod2", "ifname": "eth0"}]);
    assert_eq!(
        world.call_plugin("GC", "", &others).await.0,
        0,
        "without a namespace"
    );
    assert_eq!(leases(&world), ["10.244.0.3"]);
    assert_eq!(world.call_plugin("CHECK", "pod1", &own()).await.1["code"], 101);
    world.at("pod2", &["link", "delete", "eth0"]).await;
    let (code, error) = world.call_plugin("CHECK", "pod2", &own()).await;
    assert_eq!((code, &error["code"]), (1, &json!(101)));
    for _ in 0..2 {
        assert_eq!(world.call_plugin("DEL", "pod2", &own()).await, (0, Value::Null));
    }
    assert_eq!(leases(&world), [""; 0]);
    let left = world.shown("node", &["-o", "link", "show", "type", "veth"]).await;
    assert_eq!(left.lines().count(), 1, "the node's own: {left}");
}

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn cni_call_waits_for_an_agent_that_starts() {
    let world = World::new('w').await;
    let own = own();
    let calling = world.call_plugin("ADD", "pod1", &own);
    let starting = async {
        // The program has begun to wait, or is about to: either is served.
        tokio::task::yield_now().await;
        world.agent()
    };
    let ((code, _), agent) = tokio::join!(calling, starting);
    assert_eq!(code, 0);
    drop(agent);
    let deleting = world.call_plugin("DEL", "pod1", &own);
    let ((code, _), agent) = tokio::join!(deleting, async { world.agent() });
    assert_eq!(code, 0);
    let loopback = json!({"cniVersion": "0.3.1", "name": "cni-loopback", "type": LOOPBACK});
    world.at("pod2", &["link", "set", "lo", "down"]).await;
    let result = world.run_plugin("pod2", &loopback).await;
    assert_eq!(result["ips"][0]["address"], "127.0.0.1/8");
    let addition = world.call_plugin("ADD", "absent", &own).await;
    assert_eq!(
        (addition.0, &addition.1["code"]),
        (1, &json!(5)),
        "no such namespace"
    );
    assert_eq!(leases(&world), [""; 0]);
    drop(agent);
}
