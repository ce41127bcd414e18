//! Connections through the table, in network namespaces of our own.
//!
//! A node namespace with a bridge, two pods on it and a client outside. The table is made from services as the proxy
//! makes it; what is asserted is who answered, and whom the server saw.

#![allow(clippy::unwrap_used, reason = "a test")]

use machinery_client::Projection;
use machinery_meta::{ObjectHeader, ObjectKey};
use node_proxy::elements::{Delta, Elements, Key, Value as Element, Wanted};
use node_proxy::model::{Protocol, Service, Slice};
use node_proxy::{netlink, rules, table};
use node_sys::{CommandSpec, Exec, SystemExec, namespace::in_network_namespace};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(2);

/// Namespaces that go when the test ends, however it ends.
struct World {
    prefix: String,
}

impl World {
    async fn new() -> Self {
        let world = Self {
            prefix: format!("knp{}", std::process::id()),
        };
        for name in ["node", "pod1", "pod2", "out"] {
            world.ip(&["netns", "add", &world.name(name)]).await;
            world.at(name, &["link", "set", "lo", "up"]).await;
        }
        world.at("node", &["link", "add", "br0", "type", "bridge"]).await;
        world
            .at("node", &["address", "add", "10.244.0.1/24", "dev", "br0"])
            .await;
        world.at("node", &["link", "set", "br0", "up"]).await;
        for (name, address) in [("pod1", "10.244.0.2/24"), ("pod2", "10.244.0.3/24")] {
            world.link(name, name, address, "10.244.0.1").await;
            world.at("node", &["link", "set", name, "master", "br0"]).await;
            world
                .at(
                    "node",
                    &["link", "set", name, "type", "bridge_slave", "hairpin", "on"],
                )
                .await;
        }
        world.link("out", "out", "192.0.2.2/24", "192.0.2.1").await;
        world
            .at("node", &["address", "add", "192.0.2.1/24", "dev", "out"])
            .await;
        world
            .at("node", &["route", "add", "default", "via", "192.0.2.2"])
            .await;
        world.inside("node", || {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            let _ = std::fs::write("/proc/sys/net/bridge/bridge-nf-call-iptables", "1");
        });
        world
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    async fn ip(&self, arguments: &[&str]) {
        let output = SystemExec
            .run(CommandSpec::new("ip").args(arguments.iter().copied()))
            .await;
        output.unwrap().success("ip").unwrap();
    }

    async fn at(&self, name: &str, arguments: &[&str]) {
        let name = self.name(name);
        self.ip(&[&["-n", &name], arguments].concat()).await;
    }

    /// A pair of links between the node and another namespace.
    async fn link(&self, name: &str, link: &str, address: &str, gateway: &str) {
        let other = self.name(name);
        self.at(
            "node",
            &[
                "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", &other,
            ],
        )
        .await;
        self.at("node", &["link", "set", link, "up"]).await;
        self.at(name, &["address", "add", address, "dev", "eth0"]).await;
        self.at(name, &["link", "set", "eth0", "up"]).await;
        self.at(name, &["route", "add", "default", "via", gateway]).await;
    }

    fn inside<T: Send>(&self, name: &str, act: impl FnOnce() -> T + Send) -> T {
        in_network_namespace(&PathBuf::from("/run/netns").join(self.name(name)), act).unwrap()
    }

    async fn apply(&self, script: String) {
        let arguments = ["netns", "exec", &self.name("node"), "nft", "-f", "-"].map(str::to_owned);
        let output = SystemExec
            .run(CommandSpec::new("ip").args(arguments).stdin(script))
            .await
            .unwrap();
        output.success("nft").unwrap();
    }

    /// Servers that say who they are and whom they saw; they end with the process.
    fn serve(&self, name: &'static str) {
        let (tcp, udp) = self.inside(name, || {
            (
                TcpListener::bind("0.0.0.0:8080").unwrap(),
                UdpSocket::bind("0.0.0.0:5353").unwrap(),
            )
        });
        std::thread::Builder::new()
            .spawn(move || {
                for stream in tcp.incoming() {
                    let mut stream = stream.unwrap();
                    let seen = stream.peer_addr().unwrap().ip();
                    let _ = stream.write_all(format!("{name} saw {seen}").as_bytes());
                }
            })
            .unwrap();
        std::thread::Builder::new()
            .spawn(move || {
                let mut buffer = [0; 64];
                while let Ok((_, from)) = udp.recv_from(&mut buffer) {
                    let _ = udp.send_to(format!("{name} saw {}", from.ip()).as_bytes(), from);
                }
            })
            .unwrap();
    }

    /// Who answered whom, over several tries; an error is an answer too.
    fn ask(&self, from: &str, to: &str, tries: usize) -> BTreeSet<String> {
        let to: SocketAddr = to.parse().unwrap();
        self.inside(from, || (0..tries).map(|_| ask(to)).collect())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for name in ["node", "pod1", "pod2", "out"] {
            let name = self.name(name);
            let _ = std::thread::scope(|scope| {
                let delete = CommandSpec::new("ip").args(["netns", "delete", &name]);
                let run = || {
                    tokio::runtime::Runtime::new()
                        .unwrap()
                        .block_on(SystemExec.run(delete))
                };
                scope.spawn(run).join()
            });
        }
    }
}

fn ask(to: SocketAddr) -> String {
    let asked = || -> std::io::Result<String> {
        let mut text = String::new();
        if to.port() == 53 || to.port() == 30053 {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.connect(to)?;
            socket.send(b"?")?;
            let mut buffer = [0; 64];
            let length = socket.recv(&mut buffer)?;
            text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        } else {
            TcpStream::connect_timeout(&to, PATIENCE)?.read_to_string(&mut text)?;
        }
        Ok(text)
    };
    asked().unwrap_or_else(|error| error.kind().to_string())
}

fn wanted(spec: &Value, endpoints: &[&str]) -> Wanted {
    let bytes = |value: &Value| serde_json::to_vec(value).unwrap();
    let service = Service::project(&ObjectHeader::default(), &bytes(&json!({"spec": spec}))).unwrap();
    let header = ObjectHeader {
        key: ObjectKey::new("ns", "s"),
        labels: vec![("kubernetes.io/service-name".into(), "s".into())],
        ..ObjectHeader::default()
    };
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|one| json!({"addresses": [one], "nodeName": "here"}))
        .collect();
    let ports = json!([{"name": "t", "port": 8080}, {"name": "u", "protocol": "UDP", "port": 5353}]);
    let slice = json!({"addressType": "IPv4", "endpoints": endpoints, "ports": ports});
    let slices = [Slice::project(&header, &bytes(&slice)).unwrap()];
    rules::wanted(&service, slices.iter(), "here")
}

/// CPU time of this thread; the kernel's work on our behalf is in it.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn set(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn services_carry_traffic() {
    let world = World::new().await;
    let pods = ["10.244.0.2", "10.244.0.3"];
    let ports = json!([{"name": "t", "port": 80, "nodePort": 30080},
        {"name": "u", "port": 53, "protocol": "UDP", "nodePort": 30053}]);
    let mut all = wanted(&json!({"clusterIP": "10.96.0.5", "ports": ports}), &pods);
    all.append(&mut wanted(
        &json!({"clusterIP": "10.96.0.6", "sessionAffinity": "ClientIP", "ports": [{"name": "t", "port": 80}]}),
        &pods,
    ));
    all.append(&mut wanted(
        &json!({"clusterIP": "10.96.0.7", "ports": [{"name": "t", "port": 80}]}),
        &[],
    ));
    all.append(&mut wanted(
        &json!({"clusterIP": "10.96.0.8", "externalTrafficPolicy": "Local",
            "ports": [{"name": "t", "port": 80, "nodePort": 30081}]}),
        &pods[..1],
    ));
    world
        .apply(table::base(Some("10.244.0.0/16".parse().unwrap())) + &table::additions(all.into_iter()))
        .await;
    world.serve("pod1");
    world.serve("pod2");

    // A pod keeps its address, except where it reaches itself.
    let to_both = set(&["pod1 saw 10.244.0.1", "pod2 saw 10.244.0.2"]);
    assert_eq!(world.ask("pod1", "10.96.0.5:80", 40), to_both);
    assert_eq!(world.ask("pod1", "10.96.0.5:53", 40), to_both);
    // What comes from elsewhere gets the node's, unless traffic stays on the node anyway.
    let outside = set(&["pod1 saw 10.244.0.1", "pod2 saw 10.244.0.1"]);
    assert_eq!(world.ask("node", "10.96.0.5:80", 40), outside);
    assert_eq!(world.ask("out", "192.0.2.1:30080", 40), outside);
    assert_eq!(world.ask("out", "192.0.2.1:30053", 40), outside);
    assert_eq!(world.ask("node", "192.0.2.1:30080", 40), outside);
    assert_eq!(world.ask("pod1", "192.0.2.1:30080", 40), outside);
    assert_eq!(
        world.ask("out", "192.0.2.1:30081", 5),
        set(&["pod1 saw 192.0.2.2"])
    );
    // One client, one server; nobody there, nobody answers.
    assert_eq!(world.ask("pod1", "10.96.0.6:80", 20).len(), 1);
    assert_eq!(world.ask("pod1", "10.96.0.7:80", 1), set(&["connection refused"]));
    assert_eq!(world.ask("node", "10.96.0.7:80", 1), set(&["connection refused"]));
    assert_eq!(world.ask("pod1", "10.96.0.5:81", 1), set(&["connection refused"]));

    // One endpoint goes: a few elements change. What is not there cannot be deleted, and then nothing is.
    let fewer = wanted(&json!({"clusterIP": "10.96.0.5", "ports": ports}), &pods[1..]);
    let service: Arc<str> = Arc::from("ns/s");
    let (mut elements, mut delta) = (Elements::default(), Delta::default());
    elements.set(
        &service,
        &wanted(&json!({"clusterIP": "10.96.0.5", "ports": ports}), &pods),
        &mut delta,
    );
    let mut delta = Delta::default();
    elements.set(&service, &fewer, &mut delta);
    delta.delete.retain(|key, _| !matches!(key, Key::Hairpin(_)));
    world.inside("node", || netlink::batch(&delta).apply()).unwrap();
    assert_eq!(
        world.ask("pod1", "10.96.0.5:80", 10),
        set(&["pod2 saw 10.244.0.2"])
    );
    let again = world
        .inside("node", || netlink::batch(&delta).apply())
        .unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::NotFound);

    // Thirty thousand services more.
    let many = |range: std::ops::Range<u32>| {
        let mut delta = Delta::default();
        for index in range {
            let address = Ipv4Addr::from(0x0a61_0000 + index);
            delta.add.insert(
                Key::Service(address, Protocol::Tcp, 80),
                Element::Spread {
                    slots: 2,
                    by_client: false,
                },
            );
            delta
                .add
                .insert(Key::Masquerade(address, Protocol::Tcp, 80), Element::Nothing);
            for slot in 0..2 {
                let target = Element::Target(Ipv4Addr::new(10, 244, 0, 2), 8080);
                delta
                    .add
                    .insert(Key::Endpoint(address, Protocol::Tcp, 80, slot), target);
            }
        }
        delta
    };
    let (all, one) = (many(0..30_000), many(30_000..30_001));
    let took = |delta: &Delta| {
        let begun = cpu();
        netlink::batch(delta).apply().unwrap();
        cpu() - begun
    };
    let (all, one) = world.inside("node", || (took(&all), took(&one)));
    let more: Vec<Delta> = (30_001..30_101).map(|index| many(index..index + 1)).collect();
    let each = world.inside("node", || more.iter().map(took).sum::<Duration>()) / 100;
    eprintln!("30,000 services: {all:?} CPU; the next: {one:?} CPU; those after it: {each:?} CPU each");
}
