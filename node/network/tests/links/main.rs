//! Pods on links made by the CNI configuration of the plan, in network namespaces of our own.
//!
//! The tests assert which peers reach each other, with which address, and that a pod cannot be another one.

#![allow(clippy::unwrap_used, reason = "a test")]

mod host_ports;
mod plugin;
mod world;

use node_network::NetworkConfig;
use node_network::model::NodeView;
use node_network::plan::{Plan, plan};
use node_network::third_party::PluginFolders;
use node_sys::routes::{LinuxRoutes, Routes};
use node_sys::{CommandSpec, Exec, SystemExec};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use world::{PATIENCE, World};

fn config(folder: &Path) -> NetworkConfig {
    NetworkConfig {
        node_name: "here".to_owned(),
        cluster_cidr: "10.244.0.0/16".parse().unwrap(),
        cni_config_dir: folder.join("cni"),
        third_party_config_dir: folder.join("net.d"),
        plugins: PluginFolders {
            from: Vec::new(),
            links: folder.join("plugins"),
        },
        is_enabled: true,
        host_settings: folder.join("note"),
        mtu: None,
    }
}

/// The plan of a node without others.
fn plan_of_one_node(folder: &Path) -> Plan {
    let view = NodeView {
        pod_cidr: "10.244.0.0/24".parse().ok(),
        internal_ip: None,
    };
    plan(&config(folder), [("here", &view)].into_iter())
}

/// Sends a datagram with this source, its own or not.
fn send_from(source: Ipv4Addr, to: SocketAddr, text: &str) {
    let socket = UdpSocket::bind((source, 0)).unwrap();
    socket.send_to(text.as_bytes(), to).unwrap();
}

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn pod_links_carry_traffic_and_no_forged_source() {
    let world = World::new('l').await;
    let folder = tempfile::tempdir().unwrap();
    let plan = plan_of_one_node(folder.path());
    let conflist = plan.conflist.unwrap();
    world.nft(&plan.rules.unwrap()).await;
    let pod1 = world.add_pod("pod1", &conflist).await;
    let pod2 = world.add_pod("pod2", &conflist).await;

    // A pod sees another pod's own address, and the world the node's.
    let asked = |to: &str| {
        let listener = world.inside(to, || TcpListener::bind("0.0.0.0:8080").unwrap());
        let address = if to == "pod2" {
            pod2
        } else {
            Ipv4Addr::new(192, 0, 2, 2)
        };
        let _stream = world.inside("pod1", || {
            TcpStream::connect_timeout(&(address, 8080).into(), PATIENCE).unwrap()
        });
        listener.accept().unwrap().1.ip()
    };
    assert_eq!(asked("pod2"), pod1);
    assert_eq!(asked("out"), Ipv4Addr::new(192, 0, 2, 1));

    // What has another's source does not arrive, wherever it goes; what is sent after it does.
    world
        .at("pod1", &["address", "add", &format!("{pod2}/32"), "dev", "lo"])
        .await;
    world
        .at("pod1", &["address", "add", "192.0.2.77/32", "dev", "lo"])
        .await;
    for (server, address) in [
        ("node", Ipv4Addr::new(10, 244, 0, 1)),
        ("out", Ipv4Addr::new(192, 0, 2, 2)),
    ] {
        let socket = world.inside(server, || UdpSocket::bind("0.0.0.0:5353").unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let to = SocketAddr::from((address, 5353));
        world.inside("pod1", || {
            send_from(pod2, to, "forged");
            send_from(Ipv4Addr::new(192, 0, 2, 77), to, "forged");
            send_from(pod1, to, "true");
        });
        let mut buffer = [0; 16];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"true", "at {server}");
    }
}

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn routes_are_ours_alone() {
    let world = World::new('r').await;
    world
        .at("node", &["route", "add", "10.9.0.0/16", "via", "192.0.2.2"])
        .await;
    let routes = world.inside("node", || LinuxRoutes::open().unwrap());
    let range = |third| (Ipv4Addr::new(10, 244, third, 0), 24);
    let (near, far) = (Ipv4Addr::new(192, 0, 2, 2), Ipv4Addr::new(198, 51, 100, 1));
    routes.set(range(1), near).unwrap();
    let refused = routes.set(range(2), far).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::NetworkUnreachable);
    routes.set(range(3), near).unwrap();
    // Again, and over another's.
    routes.set(range(3), near).unwrap();
    world
        .at("node", &["route", "add", "10.244.4.0/24", "via", "192.0.2.2"])
        .await;
    routes.set(range(4), near).unwrap();
    let all = routes.list().unwrap();
    assert_eq!(
        all.keys().copied().collect::<Vec<_>>(),
        [range(1), range(3), range(4)]
    );
    assert!(all.values().all(|via| *via == near));
    routes.remove(range(3)).unwrap();
    routes.remove(range(3)).unwrap();
    assert!(routes.remove((Ipv4Addr::new(10, 9, 0, 0), 16)).is_ok());
    let output = SystemExec
        .run(CommandSpec::new("ip").args(["-n", &world.name("node"), "route"]))
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("10.9.0.0/16 via"), "somebody else's stays: {text}");
    assert!(!text.contains("10.244.3.0/24"), "{text}");
}
