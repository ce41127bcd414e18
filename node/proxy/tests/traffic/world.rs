//! A node with two pods on routed links and a client outside, in network namespaces of their own.

use node_sys::{CommandSpec, Exec, SystemExec, namespace::in_network_namespace};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(2);
pub(crate) const POD1: &str = "10.244.0.2";
pub(crate) const POD2: &str = "10.244.0.3";

/// Namespaces that go when the test ends, however it ends.
pub(crate) struct World {
    prefix: String,
}

impl World {
    pub(crate) async fn new(mark: char) -> Self {
        let world = Self {
            prefix: format!("kp{mark}{}", std::process::id()),
        };
        for name in ["node", "pod1", "pod2", "out"] {
            world.ip(&["netns", "add", &world.name(name)]).await;
            world.at(name, &["link", "set", "lo", "up"]).await;
        }
        for (name, address) in [("pod1", POD1), ("pod2", POD2)] {
            world.pod(name, address).await;
        }
        world.link("out", "out", "192.0.2.2/24", Some("192.0.2.1")).await;
        world
            .at("node", &["address", "add", "192.0.2.1/24", "dev", "out"])
            .await;
        world
            .at("node", &["route", "add", "default", "via", "192.0.2.2"])
            .await;
        world.inside("node", || {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            // Nothing here may need it.
            let _ = std::fs::write("/proc/sys/net/bridge/bridge-nf-call-iptables", "0");
        });
        world
    }

    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    async fn ip(&self, arguments: &[&str]) {
        let output = SystemExec
            .run(CommandSpec::new("ip").args(arguments.iter().copied()))
            .await;
        output.unwrap().success("ip").unwrap();
    }

    pub(crate) async fn at(&self, name: &str, arguments: &[&str]) {
        let name = self.name(name);
        self.ip(&[&["-n", &name], arguments].concat()).await;
    }

    /// A routed link, as CNI's `ptp` makes it.
    async fn pod(&self, name: &str, address: &str) {
        self.link(name, name, &format!("{address}/32"), None).await;
        self.at("node", &["address", "add", "10.244.0.1/32", "dev", name])
            .await;
        self.at("node", &["route", "add", &format!("{address}/32"), "dev", name])
            .await;
        self.at(name, &["route", "add", "10.244.0.1/32", "dev", "eth0"])
            .await;
        self.at(name, &["route", "add", "default", "via", "10.244.0.1"])
            .await;
    }

    /// A pair of links between the node and another namespace.
    async fn link(&self, name: &str, link: &str, address: &str, gateway: Option<&str>) {
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
        if let Some(gateway) = gateway {
            self.at(name, &["route", "add", "default", "via", gateway]).await;
        }
    }

    pub(crate) fn inside<T: Send>(&self, name: &str, act: impl FnOnce() -> T + Send) -> T {
        in_network_namespace(&PathBuf::from("/run/netns").join(self.name(name)), act).unwrap()
    }

    pub(crate) async fn apply(&self, script: impl Into<String>) {
        let script: String = script.into();
        let arguments = ["netns", "exec", &self.name("node"), "nft", "-f", "-"].map(str::to_owned);
        let output = SystemExec
            .run(CommandSpec::new("ip").args(arguments).stdin(script))
            .await
            .unwrap();
        output.success("nft").unwrap();
    }

    /// Servers that send their name and their client's; they end with the process.
    pub(crate) fn serve(&self, name: &'static str) {
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

    /// Answers over several tries: servers' names and the addresses they saw, or errors.
    pub(crate) fn ask(&self, from: &str, to: &str, tries: usize) -> BTreeSet<String> {
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
