//! A node, two pods and an outside host, each in a network namespace of its own. The node's agent serves its CNI plugin.

use ipnet::Ipv4Net;
use machinery_runtime::{Runtime, Scope};
use node_network::cni::links::KernelLinks;
use node_network::cni::{self, Plugin};
use node_sys::{CommandSpec, Exec, SystemExec, namespace::in_network_namespace};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const PLUGINS: &str = "/usr/lib/cni";
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
const NAMES: [&str; 4] = ["node", "pod1", "pod2", "out"];

/// Namespaces that go when the test ends, however it ends.
pub(crate) struct World {
    prefix: String,
    /// Folder of the agent's plugin; its leases are below.
    pub(crate) folder: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new(mark: char) -> Self {
        let world = Self {
            prefix: format!("kn{mark}{}", std::process::id()),
            folder: tempfile::tempdir().unwrap(),
        };
        for name in NAMES {
            ip(&["netns", "add", &world.name(name)]).await;
            world.at(name, &["link", "set", "lo", "up"]).await;
        }
        let out = world.name("out");
        let link = [
            "link", "add", "up0", "type", "veth", "peer", "name", "eth0", "netns", &out,
        ];
        world.at("node", &link).await;
        for (name, link, address) in [("node", "up0", "192.0.2.1/24"), ("out", "eth0", "192.0.2.2/24")] {
            world.at(name, &["address", "add", address, "dev", link]).await;
            world.at(name, &["link", "set", link, "up"]).await;
        }
        world.inside("node", || {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap()
        });
        cni::install(world.folder.path()).unwrap();
        world
    }

    /// An agent of the node that serves the plugin until it is dropped.
    pub(crate) fn agent(&self) -> Scope {
        let links = self.inside("node", || KernelLinks::open().unwrap());
        let folder = self.folder.path().to_owned();
        let plugin = Arc::new(Plugin::new(&folder, Arc::new(links)));
        let scope = Runtime::real().child_scope();
        let own = scope.runtime().clone();
        let serving = async move { cni::serve(&folder, plugin, &own).await.unwrap() };
        scope.runtime().spawn("agent", serving).detach();
        scope
    }

    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/run/netns").join(self.name(name))
    }

    pub(crate) async fn at(&self, name: &str, arguments: &[&str]) {
        let name = self.name(name);
        ip(&[&["-n", &name], arguments].concat()).await;
    }

    pub(crate) fn inside<T: Send>(&self, name: &str, act: impl FnOnce() -> T + Send) -> T {
        in_network_namespace(&self.path(name), act).unwrap()
    }

    pub(crate) async fn nft(&self, rules: &str) {
        let arguments = ["netns", "exec", &self.name("node"), "nft", "-f", "-"].map(str::to_owned);
        let spec = CommandSpec::new("ip").args(arguments).stdin(rules);
        SystemExec.run(spec).await.unwrap().success("nft").unwrap();
    }

    /// The address that the plugin gives to a pod.
    pub(crate) async fn add_pod(&self, name: &str, conflist: &str) -> Ipv4Addr {
        let _agent = self.agent();
        let conflist: Value = serde_json::from_str(conflist).unwrap();
        let mut plugin = conflist["plugins"][0].clone();
        plugin["cniVersion"] = conflist["cniVersion"].clone();
        plugin["name"] = conflist["name"].clone();
        let result = self.run_plugin(name, &plugin).await;
        let range: Ipv4Net = result["ips"][0]["address"].as_str().unwrap().parse().unwrap();
        range.addr()
    }

    /// Output of a plugin that is called to add a pod.
    pub(crate) async fn run_plugin(&self, name: &str, plugin: &Value) -> Value {
        let (code, output) = self.call_plugin("ADD", name, plugin).await;
        assert_eq!(code, 0, "{output}");
        output
    }

    /// Exit code and output of a plugin: the agent's, or else of Debian's.
    pub(crate) async fn call_plugin(&self, command: &str, name: &str, plugin: &Value) -> (i32, Value) {
        let own = self.folder.path().join(plugin["type"].as_str().unwrap());
        let others = Path::new(PLUGINS).join(plugin["type"].as_str().unwrap());
        let program = if own.is_file() { own } else { others };
        let program = program.display().to_string();
        let namespace = self.path(name).display().to_string();
        let mut spec = CommandSpec::new("nsenter")
            .args([format!("--net={}", self.path("node").display()), program])
            .stdin(plugin.to_string());
        spec.env = [
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", name),
            ("CNI_NETNS", &namespace),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", PLUGINS),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        let output = SystemExec.run(spec).await.unwrap();
        let text = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.code, text)
    }

    /// Output of `ip` in a namespace.
    pub(crate) async fn shown(&self, name: &str, arguments: &[&str]) -> String {
        let name = self.name(name);
        let spec = CommandSpec::new("ip").args([&["-n", &name], arguments].concat());
        let output = SystemExec.run(spec).await.unwrap().success("ip").unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Servers at TCP 8080 and UDP 5353 that send their name and their client's; they end with the process.
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

    /// Answer over TCP: the server's name and the address it saw, or the error.
    pub(crate) fn ask(&self, from: &str, to: &str) -> String {
        let to: SocketAddr = to.parse().unwrap();
        let asked = || -> std::io::Result<String> {
            let mut text = String::new();
            TcpStream::connect_timeout(&to, PATIENCE)?.read_to_string(&mut text)?;
            Ok(text)
        };
        self.inside(from, || asked().unwrap_or_else(|error| error.kind().to_string()))
    }

    /// The same over UDP.
    pub(crate) fn ask_udp(&self, from: &str, to: &str) -> String {
        let socket = self.inside(from, || UdpSocket::bind("0.0.0.0:0").unwrap());
        socket.connect(to).unwrap();
        answer(&socket)
    }
}

/// Asks over a socket that is connected.
pub(crate) fn answer(socket: &UdpSocket) -> String {
    let asked = || -> std::io::Result<String> {
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send(b"?")?;
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    };
    asked().unwrap_or_else(|error| error.kind().to_string())
}

async fn ip(arguments: &[&str]) {
    let spec = CommandSpec::new("ip").args(arguments.iter().copied());
    SystemExec.run(spec).await.unwrap().success("ip").unwrap();
}

impl Drop for World {
    fn drop(&mut self) {
        for name in NAMES {
            let delete = CommandSpec::new("ip").args(["netns", "delete", &self.name(name)]);
            let run = || {
                let executor = tokio::runtime::Runtime::new().unwrap();
                executor.block_on(SystemExec.run(delete))
            };
            let _ = std::thread::scope(|scope| scope.spawn(run).join());
        }
    }
}
