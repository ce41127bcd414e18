//! Ports of the node that lead to pods, kept by the real keeper in the node's namespace.

use crate::plan_of_one_node;
use crate::world::{World, answer};
use machinery_runtime::Runtime;
use node_network::host_ports::table::TABLE;
use node_network::host_ports::{
    HostPort, HostPortError, HostPorts, HostPortsConfig, LinuxHostPorts, PortKey, Protocol,
};
use node_sys::{CommandSpec, Exec, SystemExec};
use serde_json::json;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

const NODE: &str = "192.0.2.1";

/// A node with two pods that serve, and its keeper of host ports.
struct Node {
    world: World,
    pods: [Ipv4Addr; 2],
    _folder: tempfile::TempDir,
}

impl Node {
    async fn new(mark: char) -> Self {
        let world = World::new(mark).await;
        let folder = tempfile::tempdir().unwrap();
        let plan = plan_of_one_node(folder.path());
        world.nft(&plan.rules.unwrap()).await;
        let conflist = plan.conflist.unwrap();
        let pods = [
            world.add_pod("pod1", &conflist).await,
            world.add_pod("pod2", &conflist).await,
        ];
        // As the cluster's name server is on every node.
        world
            .at("node", &["address", "add", "10.96.0.10/32", "dev", "lo"])
            .await;
        world.serve("pod1");
        world.serve("pod2");
        Self {
            world,
            pods,
            _folder: folder,
        }
    }

    /// Runs a story on threads of the node's namespace.
    fn run<F: Future>(&self, story: impl FnOnce() -> F + Send) -> F::Output
    where
        F::Output: Send,
    {
        self.world.inside("node", || {
            let executor = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .unwrap();
            executor.block_on(story())
        })
    }

    fn ask(&self, from: &str, to: &str) -> String {
        self.world.ask(from, to)
    }
}

/// An agent's keeper; the agent ends with the runtime's scope.
fn agent(runtime: &Runtime) -> HostPorts {
    let config = HostPortsConfig {
        reserved_addresses: vec!["10.96.0.0/16".parse().unwrap()],
        node_ports: vec![6443],
    };
    let kernel = LinuxHostPorts::new(&config.reserved_addresses, Arc::new(SystemExec), runtime.clone());
    let ports = HostPorts::new(config, Arc::new(kernel), runtime.clone());
    let keeper = ports.clone();
    runtime.keep("host ports", move || keeper.clone().run()).detach();
    ports
}

fn port(protocol: Protocol, address: &str, port: u16) -> HostPort {
    let key = PortKey {
        protocol,
        port,
        address: address.parse().ok(),
    };
    let container_port = if protocol == Protocol::Udp { 5353 } else { 8080 };
    HostPort { key, container_port }
}

fn tcp(address: &str, number: u16) -> HostPort {
    port(Protocol::Tcp, address, number)
}

fn udp(address: &str, number: u16) -> HostPort {
    port(Protocol::Udp, address, number)
}

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn host_ports_lead_to_the_pod_from_everywhere() {
    let node = Node::new('h').await;
    let [one, two] = node.pods;
    node.run(|| async {
        let ports = agent(&Runtime::real());
        let asked = [
            tcp("", 80),
            udp("", 53),
            tcp("127.0.0.1", 81),
            tcp(NODE, 82),
            tcp("127.0.0.9", 83),
            port(Protocol::Sctp, "", 84),
        ];
        ports.hold("a", one, &asked).await.unwrap();
        ports.hold("b", two, &[tcp("127.0.0.1", 82)]).await.unwrap();

        // From outside and from other pods the client keeps its address.
        let own = format!("pod1 saw {NODE}");
        assert_eq!(node.ask("out", "192.0.2.1:80"), "pod1 saw 192.0.2.2");
        assert_eq!(node.world.ask_udp("out", "192.0.2.1:53"), "pod1 saw 192.0.2.2");
        assert_eq!(node.ask("pod2", "192.0.2.1:80"), format!("pod1 saw {two}"));
        assert_eq!(node.ask("pod2", "10.244.0.1:80"), format!("pod1 saw {two}"));
        assert_eq!(node.ask("node", "192.0.2.1:80"), own);
        // It cannot where the pod is its own client, and where the node's address is none for others.
        assert_eq!(node.ask("pod1", "192.0.2.1:80"), "pod1 saw 10.244.0.1");
        assert_eq!(node.world.ask_udp("pod1", "192.0.2.1:53"), "pod1 saw 10.244.0.1");
        assert_eq!(node.ask("node", "127.0.0.1:80"), "pod1 saw 10.244.0.1");
        assert_eq!(node.world.ask_udp("node", "127.0.0.1:53"), "pod1 saw 10.244.0.1");
        // Addresses are distinguished.
        assert_eq!(node.ask("node", "127.0.0.1:81"), "pod1 saw 10.244.0.1");
        assert_eq!(node.ask("out", "192.0.2.1:81"), "connection refused");
        assert_eq!(node.ask("node", "127.0.0.1:82"), "pod2 saw 10.244.0.1");
        assert_eq!(node.ask("node", "192.0.2.1:82"), own);
        assert_eq!(node.ask("out", "192.0.2.1:82"), "pod1 saw 192.0.2.2");
        assert_eq!(node.ask("node", "127.0.0.9:83"), "pod1 saw 10.244.0.1");
        // Another source than the loopback address, as upstream's conformance has it.
        let socket = UdpSocket::bind((NODE, 0)).unwrap();
        socket.connect("127.0.0.1:53").unwrap();
        assert_eq!(answer(&socket), own);
        // The cluster's addresses and other programs' loopback addresses are not the pod's.
        assert_eq!(node.ask("node", "10.96.0.10:80"), "connection refused");
        assert_eq!(node.ask("pod2", "10.96.0.10:80"), "connection refused");
        assert_eq!(node.ask("node", "127.0.0.2:80"), "connection refused");

        ports.release("a", &[one]).await;
        assert_eq!(node.ask("out", "192.0.2.1:80"), "connection refused");
        assert_eq!(node.ask("node", "127.0.0.1:82"), "pod2 saw 10.244.0.1");
    });
}

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn host_ports_open_no_loopback_address_to_others() {
    let node = Node::new('m').await;
    let [one, _] = node.pods;
    // Clients that send to the node's loopback addresses, as no kernel lets them by itself.
    for (name, gateway) in [("pod1", "10.244.0.1"), ("out", NODE)] {
        node.world.at(name, &["address", "flush", "dev", "lo"]).await;
        node.world
            .at(name, &["route", "add", "127.0.0.1/32", "via", gateway])
            .await;
        node.world.inside(name, || {
            std::fs::write("/proc/sys/net/ipv4/conf/all/route_localnet", "1").unwrap()
        });
    }
    node.run(|| async {
        let ports = agent(&Runtime::real());
        ports
            .hold("a", one, &[udp("127.0.0.1", 54), udp("", 55)])
            .await
            .unwrap();
        let send = |from: &str, to: &str, text: &str| {
            let socket = node.world.inside(from, || UdpSocket::bind("0.0.0.0:0").unwrap());
            socket.send_to(text.as_bytes(), to).unwrap();
        };
        // The pod's link takes packets from loopback addresses, and none to them.
        let program = UdpSocket::bind("127.0.0.1:7777").unwrap();
        program.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        send("pod1", "127.0.0.1:7777", "forged");
        send("node", "127.0.0.1:7777", "true");
        let mut buffer = [0; 16];
        let length = program.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"true");
        // A port of the loopback address is none of the node's neighbours'. A packet that is let in has the same socket as
        // one that is not, so that the first answer decides.
        let asked = node.world.inside("out", || UdpSocket::bind("0.0.0.0:0").unwrap());
        asked.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        asked.send_to(b"?", "127.0.0.1:54").unwrap();
        asked.send_to(b"?", "192.0.2.1:55").unwrap();
        let (_, from) = asked.recv_from(&mut buffer).unwrap();
        assert_eq!(from.to_string(), "192.0.2.1:55");
    });
}

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn host_ports_outlive_the_agent_and_belong_to_one_pod() {
    let node = Node::new('o').await;
    let [one, two] = node.pods;
    node.run(|| async {
        let first = Runtime::real().child_scope();
        let ports = agent(first.runtime());
        ports.hold("a", one, &[tcp("", 80)]).await.unwrap();
        ports.hold("gone", two, &[tcp("", 81)]).await.unwrap();
        let taken = ports.hold("b", two, &[tcp(NODE, 80)]).await;
        assert_eq!(taken, Err(HostPortError::Taken(tcp(NODE, 80).key)));
        // A node port of the same number.
        let service = format!(
            "table ip service {{ chain prerouting {{ type nat hook prerouting priority dstnat; tcp dport 80 dnat to {two}:8080\n }}\n}}"
        );
        node.world.nft(&service).await;
        assert_eq!(node.ask("out", "192.0.2.1:80"), "pod1 saw 192.0.2.2");
        node.world.nft("delete table ip service").await;

        first.stopped().await;
        assert_eq!(node.ask("out", "192.0.2.1:80"), "pod1 saw 192.0.2.2");
        let ports = agent(&Runtime::real());
        // Of this pod only its end is seen: it ended while the agent was away.
        ports.release("gone", &[two]).await;
        assert_eq!(node.ask("out", "192.0.2.1:81"), "connection refused");
        assert_eq!(node.ask("out", "192.0.2.1:80"), "pod1 saw 192.0.2.2");
        ports.hold("a", one, &[tcp("", 80)]).await.unwrap();
        ports.settle();
        assert_eq!(node.ask("out", "192.0.2.1:80"), "pod1 saw 192.0.2.2");

        // Another takes the table away.
        node.world.nft(&format!("delete table ip {TABLE}")).await;
        while node.ask("out", "192.0.2.1:80") != "pod1 saw 192.0.2.2" {
            tokio::task::yield_now().await;
        }
    });
}

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn host_port_takes_over_flows_that_are_older() {
    let node = Node::new('u').await;
    let [one, two] = node.pods;
    node.run(|| async {
        let ports = agent(&Runtime::real());
        let client = node.world.inside("out", || UdpSocket::bind("0.0.0.0:0").unwrap());
        client.connect("192.0.2.1:53").unwrap();
        let other = node.world.inside("out", || UdpSocket::bind("0.0.0.0:0").unwrap());
        other.connect("192.0.2.1:54").unwrap();
        // No pod is there yet, and the kernel remembers that.
        assert_eq!(answer(&client), "connection refused");
        ports.hold("a", one, &[udp("", 53)]).await.unwrap();
        assert_eq!(answer(&client), "pod1 saw 192.0.2.2");
        ports.release("a", &[one]).await;
        assert_eq!(answer(&client), "connection refused");
        ports.hold("b", two, &[udp(NODE, 53)]).await.unwrap();
        assert_eq!(answer(&client), "pod2 saw 192.0.2.2");
        assert_eq!(answer(&other), "connection refused");
    });
}

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn host_port_of_a_program_of_the_node_is_not_given_away() {
    let node = Node::new('p').await;
    node.run(|| async {
        let ports = agent(&Runtime::real());
        let _everywhere = TcpListener::bind("0.0.0.0:10250").unwrap();
        let _six = TcpListener::bind("[::]:10251").unwrap();
        let _names = UdpSocket::bind("10.96.0.10:53").unwrap();
        let _local = TcpListener::bind("127.0.0.1:2379").unwrap();
        let connected = TcpStream::connect("127.0.0.1:2379").unwrap();
        let refused = |port: HostPort| Err(HostPortError::InUse(port.key));
        for port in [
            tcp("", 10250),
            tcp(NODE, 10250),
            tcp("", 10251),
            tcp("", 2379),
            tcp("", 6443),
        ] {
            assert_eq!(ports.check(&[port]).await, refused(port));
        }
        let client = connected.local_addr().unwrap().port();
        for port in [
            udp("", 10250),
            udp("", 53),
            tcp(NODE, 2379),
            tcp("", client),
            tcp("", 80),
        ] {
            assert_eq!(ports.check(&[port]).await, Ok(()));
        }
    });
}

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn host_ports_of_portmap_are_taken_over() {
    let node = Node::new('x').await;
    let [one, _] = node.pods;
    let mapping = json!({"hostPort": 80, "containerPort": 8080, "protocol": "tcp"});
    let portmap = json!({
        "cniVersion": "1.0.0", "name": "knarr", "type": "portmap", "snat": true,
        "capabilities": {"portMappings": true}, "runtimeConfig": {"portMappings": [mapping]},
        "prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "s"}],
            "ips": [{"address": format!("{one}/24"), "interface": 0}]},
    });
    node.world.run_plugin("pod1", &portmap).await;
    node.run(|| async {
        let rules = || async {
            let save = CommandSpec::new("iptables-save").args(["-t", "nat"]);
            let saved = SystemExec.run(save).await.unwrap().stdout;
            String::from_utf8(saved).unwrap()
        };
        assert!(
            rules().await.contains("CNI-HOSTPORT-DNAT"),
            "as an older agent left it"
        );
        assert_eq!(node.ask("out", "192.0.2.1:80"), "pod1 saw 192.0.2.2");
        let ports = agent(&Runtime::real());
        ports.hold("a", one, &[tcp("", 80)]).await.unwrap();
        assert_eq!(node.ask("out", "192.0.2.1:80"), "pod1 saw 192.0.2.2");
        ports.settle();
        while rules().await.contains("CNI-") {
            tokio::task::yield_now().await;
        }
        assert_eq!(node.ask("out", "192.0.2.1:80"), "pod1 saw 192.0.2.2");
        assert_eq!(node.ask("node", "127.0.0.1:80"), "pod1 saw 10.244.0.1");
    });
}
