//! Clients that stay with an endpoint, and UDP flows that stay where they are.

use crate::world::{POD1, POD2, World};
use crate::{elements_of, set, slice_of, whole_table};
use machinery_client::Projection;
use machinery_meta::ObjectHeader;
use machinery_runtime::Runtime;
use machinery_views::Service;
use node_proxy::affinity::AffinityEntry;
use node_proxy::elements::{Delta, Elements, Wanted};
use node_proxy::flows::Flows;
use node_proxy::table::{AFFINITY, TABLE};
use node_proxy::{Kernel, LinuxKernel, netlink, table};
use node_sys::{SystemExec, nftables};
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

fn spec(seconds: u32) -> Value {
    json!({"spec": {"clusterIP": "10.96.0.6", "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}},
        "ports": [{"name": "t", "port": 80, "nodePort": 30080}, {"name": "u", "port": 53, "protocol": "UDP"}]}})
}

fn notes(world: &World) -> Vec<AffinityEntry> {
    let present = world.inside("node", || nftables::elements(TABLE, AFFINITY).unwrap());
    present
        .iter()
        .map(|one| AffinityEntry::read(one).unwrap())
        .collect()
}

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn affinity_survives_other_endpoints_and_a_new_table() {
    let world = World::new('a').await;
    let both = [(POD1, "here"), (POD2, "here")];
    let first = elements_of(&spec(600), &both, &Wanted::new());
    world.apply(whole_table(first.clone())).await;
    world.serve("pod1");
    world.serve("pod2");
    let service: Arc<str> = Arc::from("ns/s");
    let mut elements = Elements::default();
    elements.set(&service, &first, &mut Delta::default());

    for (client, to) in [
        ("pod1", "10.96.0.6:80"),
        ("pod2", "10.96.0.6:53"),
        ("out", "192.0.2.1:30080"),
        ("node", "10.96.0.6:80"),
    ] {
        assert_eq!(world.ask(client, to, 10).len(), 1, "{client} {to}");
    }
    let noted = notes(&world);
    assert_eq!(noted.len(), 4);
    assert!(noted.iter().all(|note| note.holds(&elements)));
    assert!(
        noted
            .iter()
            .all(|note| note.expires_in <= Duration::from_secs(600))
    );

    // Written anew, as an agent does that starts: every client stays where it was.
    let before: Vec<_> = ["pod1", "node"]
        .map(|client| world.ask(client, "10.96.0.6:80", 3))
        .into();
    world.apply(whole_table(first) + &table::notes(&noted)).await;
    assert_eq!(notes(&world).len(), 4);
    let after: Vec<_> = ["pod1", "node"]
        .map(|client| world.ask(client, "10.96.0.6:80", 3))
        .into();
    assert_eq!(before, after);

    // An endpoint goes. Clients of the other one stay with it, its own clients find another.
    let left = elements_of(&spec(600), &both[..1], &elements.of(&service));
    let mut delta = Delta::default();
    elements.set(&service, &left, &mut delta);
    world.inside("node", || netlink::batch(&delta).apply()).unwrap();
    let gone: Vec<AffinityEntry> = notes(&world)
        .into_iter()
        .filter(|note| !note.holds(&elements))
        .collect();
    world.inside("node", || netlink::without(&gone).apply()).unwrap();
    for client in ["pod2", "out"] {
        let to = if client == "out" {
            "192.0.2.1:30080"
        } else {
            "10.96.0.6:80"
        };
        let answers = world.ask(client, to, 5);
        assert!(
            answers.iter().all(|answer| answer.starts_with("pod1")),
            "{client}: {answers:?}"
        );
    }
    assert!(notes(&world).iter().all(|note| note.holds(&elements)));
}

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn affinity_ends_with_its_time() {
    let world = World::new('t').await;
    let both = [(POD1, "here"), (POD2, "here")];
    world
        .apply(whole_table(elements_of(&spec(1), &both, &Wanted::new())))
        .await;
    world.serve("pod1");
    world.serve("pod2");
    // Each time the note has ended, the client may go elsewhere, and some time it does.
    let mut seen = world.ask("out", "192.0.2.1:30080", 1);
    while seen.len() < 2 {
        while !notes(&world).is_empty() {
            std::thread::sleep(Duration::from_millis(20));
        }
        seen.append(&mut world.ask("out", "192.0.2.1:30080", 1));
    }
    assert_eq!(seen, set(&["pod1 saw 10.244.0.1", "pod2 saw 10.244.0.1"]));
}

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn udp_flows_go_only_with_their_endpoint() {
    let world = World::new('u').await;
    let spec = json!({"spec": {"clusterIP": "10.96.0.5",
        "ports": [{"name": "u", "port": 53, "protocol": "UDP", "nodePort": 30053}]}});
    let both = [(POD1, "here"), (POD2, "here")];
    world
        .apply(whole_table(elements_of(&spec, &both, &Wanted::new())))
        .await;
    world.serve("pod1");
    world.serve("pod2");
    let service = Service::project(&ObjectHeader::default(), &serde_json::to_vec(&spec).unwrap()).unwrap();
    let flows = |endpoints: &[(&str, &str)]| Flows::of(&service, [slice_of(endpoints)].iter(), 100);
    // Sockets with flows to both.
    let mut sockets: Vec<(String, UdpSocket)> = Vec::new();
    while !["pod1", "pod2"]
        .iter()
        .all(|pod| sockets.iter().any(|(answer, _)| answer.starts_with(pod)))
    {
        let socket = world.inside("out", || UdpSocket::bind("0.0.0.0:0").unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        socket.connect("192.0.2.1:30053").unwrap();
        let answer = answered(&socket);
        sockets.push((answer, socket));
    }
    let forget = |flows: Flows| {
        world.inside("node", || {
            let executor = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            executor.block_on(async {
                let kernel = LinuxKernel::new(Arc::new(SystemExec), Runtime::real());
                kernel.delete_conntrack_entries(flows).await.unwrap()
            })
        })
    };
    assert_eq!(
        forget(flows(&both)),
        0,
        "as an agent does that starts: nobody is disturbed"
    );
    let left = &both[..1];
    world
        .apply(whole_table(elements_of(&spec, left, &Wanted::new())))
        .await;
    let gone = sockets
        .iter()
        .filter(|(answer, _)| answer.starts_with("pod2"))
        .count();
    assert_eq!(forget(Flows::changed(&flows(&both), &flows(left))), gone);
    for (_, socket) in &sockets {
        assert!(answered(socket).starts_with("pod1"));
    }
}

fn answered(socket: &UdpSocket) -> String {
    socket.send(b"?").unwrap();
    let mut buffer = [0; 64];
    let length = socket.recv(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}
