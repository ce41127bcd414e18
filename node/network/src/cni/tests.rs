//! The plugin over a kernel of the test's own: whatever is killed between two steps leaves neither an address nor a link.

use super::links::{Ends, PodLink, PodLinks};
use super::plugin::{Plugin, lock};
use super::{frame, install, serve};
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Links by the name of the node's end. The agent is "killed" at a step: from then on nothing is done, and every call fails.
#[derive(Debug, Default)]
struct Kernel {
    links: Mutex<BTreeMap<String, (Ipv4Addr, PathBuf)>>,
    /// Steps until the kill; `None` is none.
    steps: Mutex<Option<u32>>,
}

impl Kernel {
    fn step(&self) -> io::Result<()> {
        let mut steps = lock(&self.steps);
        match steps.as_mut() {
            None => Ok(()),
            Some(0) => Err(io::Error::other("killed")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    fn count(&self) -> usize {
        lock(&self.links).len()
    }
}

impl PodLinks for Kernel {
    fn add(&self, link: &PodLink<'_>) -> io::Result<Ends> {
        self.step()?;
        let end = (link.address, link.namespace.to_owned());
        if lock(&self.links).values().any(|other| *other == end) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        lock(&self.links).insert(link.near.to_owned(), end);
        // The link is there, and no caller learns of it.
        self.step()?;
        Ok([[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]])
    }

    fn remove(&self, near: &str, _: Option<(&Path, &str)>) -> io::Result<()> {
        self.step()?;
        lock(&self.links).remove(near);
        self.step()
    }

    fn remove_to(&self, address: Ipv4Addr) -> io::Result<()> {
        self.step()?;
        lock(&self.links).retain(|_, (reached, _)| *reached != address);
        Ok(())
    }

    fn missing(&self, link: &PodLink<'_>) -> io::Result<Option<String>> {
        let is_there = lock(&self.links).contains_key(link.near);
        Ok((!is_there).then(|| "all".to_owned()))
    }

    fn set_loopback_up(&self, _: &Path) -> io::Result<Vec<(IpAddr, u8)>> {
        let addresses = ["127.0.0.1", "127.0.0.2", "::1"].map(|text| text.parse().unwrap());
        Ok(addresses.into_iter().zip([8, 8, 128]).collect())
    }

    fn reached(&self) -> io::Result<BTreeSet<Ipv4Addr>> {
        self.step()?;
        Ok(lock(&self.links).values().map(|(address, _)| *address).collect())
    }
}

fn body(command: &str, container: &str, configuration: &Value) -> Vec<u8> {
    let namespace = format!("/run/netns/{container}");
    let variables = [command, container, &namespace, "eth0", "", "/p"].map(|text| text.as_bytes().to_vec());
    let request = frame::request(&variables, configuration.to_string().as_bytes()).unwrap();
    request[frame::HEADER..].to_vec()
}

fn configuration(subnet: &str) -> Value {
    json!({"cniVersion": "1.0.0", "name": "knarr", "type": "knarr-cni", "subnet": subnet})
}

/// The answer; of an error its code.
fn run(plugin: &Plugin, command: &str, container: &str, subnet: &str) -> Result<Value, u64> {
    let answer = plugin.answer(&body(command, container, &configuration(subnet)));
    let text: Value = serde_json::from_str(&answer.text).unwrap_or_default();
    match answer.code {
        0 => Ok(text),
        _ => Err(text["code"].as_u64().unwrap()),
    }
}

const RANGE: &str = "10.244.0.0/29";

struct Node {
    folder: tempfile::TempDir,
    kernel: Arc<Kernel>,
}

impl Node {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            kernel: Arc::default(),
        }
    }

    /// An agent that was just started.
    fn agent(&self) -> Plugin {
        *lock(&self.kernel.steps) = None;
        Plugin::new(self.folder.path(), Arc::clone(&self.kernel) as Arc<dyn PodLinks>)
    }

    fn addresses(&self) -> usize {
        let entries = std::fs::read_dir(self.folder.path().join("knarr")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.parse::<Ipv4Addr>().is_ok()).count()
    }
}

fn live(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn cni_commands_make_and_remove_a_link() {
    let node = Node::new();
    let plugin = node.agent();
    assert_eq!(run(&plugin, "STATUS", "", RANGE), Ok(Value::Null));
    let result = run(&plugin, "ADD", "a", RANGE).unwrap();
    let near = result["interfaces"][0]["name"].as_str().unwrap();
    assert!(near.starts_with("veth") && near.len() == 15, "{near}");
    let expected = json!({
        "cniVersion": "1.0.0",
        "interfaces": [
            {"name": near, "mac": "02:00:00:00:00:01"},
            {"name": "eth0", "mac": "02:00:00:00:00:02", "sandbox": "/run/netns/a"}
        ],
        "ips": [{"interface": 1, "address": "10.244.0.2/29", "gateway": "10.244.0.1"}],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dns": {}
    });
    assert_eq!(result, expected);
    assert_eq!(run(&plugin, "ADD", "a", RANGE), Err(100), "twice");
    assert_eq!(run(&plugin, "CHECK", "a", RANGE), Ok(Value::Null));
    assert_eq!(run(&plugin, "CHECK", "b", RANGE), Err(101));
    for _ in 0..2 {
        assert_eq!(run(&plugin, "DEL", "a", RANGE), Ok(Value::Null));
        assert_eq!((node.addresses(), node.kernel.count()), (0, 0));
    }
    assert_eq!(run(&plugin, "CHECK", "a", RANGE), Err(101));
    let versions = run(&plugin, "VERSION", "", RANGE).unwrap();
    assert_eq!(versions["supportedVersions"][4], "1.1.0");
}

#[test]
fn cni_loopback_is_answered_as_the_plugin_of_that_name_does() {
    let node = Node::new();
    let mut configuration = json!({"cniVersion": "0.3.1", "name": "cni-loopback", "type": "loopback"});
    let answer = node.agent().answer(&body("ADD", "a", &configuration));
    let expected = json!({
        "cniVersion": "0.3.1",
        "interfaces": [{"name": "lo", "mac": "00:00:00:00:00:00", "sandbox": "/run/netns/a"}],
        "ips": [
            {"interface": 0, "address": "127.0.0.1/8", "version": "4"},
            {"interface": 0, "address": "::1/128", "version": "6"}
        ],
        "dns": {}
    });
    assert_eq!(serde_json::from_str::<Value>(&answer.text).unwrap(), expected);
    configuration["prevResult"] = json!({"cniVersion": "0.3.1", "ips": []});
    let answer = node.agent().answer(&body("ADD", "a", &configuration));
    assert_eq!(
        serde_json::from_str::<Value>(&answer.text).unwrap(),
        configuration["prevResult"]
    );
    assert_eq!(node.agent().answer(&body("DEL", "a", &configuration)).code, 0);
}

#[test]
fn cni_range_that_is_full_says_so_and_takes_pods_again() {
    let node = Node::new();
    let plugin = node.agent();
    for name in ["a", "b", "c", "d", "e"] {
        run(&plugin, "ADD", name, RANGE).unwrap();
    }
    let answer = plugin.answer(&body("ADD", "f", &configuration(RANGE)));
    let expected = json!({
        "cniVersion": "1.0.0", "code": 11, "details": "",
        "msg": "no IP addresses available in range set: 10.244.0.1-10.244.0.6"
    });
    assert_eq!(serde_json::from_str::<Value>(&answer.text).unwrap(), expected);
    assert_eq!(run(&plugin, "STATUS", "", RANGE), Err(50));
    let mut valid = configuration(RANGE);
    valid["cni.dev/valid-attachments"] = json!([{"containerID": "b", "ifname": "eth0"}]);
    assert_eq!(plugin.answer(&body("GC", "", &valid)).code, 0);
    assert_eq!((node.addresses(), node.kernel.count()), (1, 1));
    run(&plugin, "ADD", "f", RANGE).unwrap();
}

/// Every sequence of additions and deletions, killed after every step: the runtime's deletion, or the comparison with its
/// sandboxes, leaves what the sandboxes have and nothing else.
#[test]
fn cni_agent_that_is_killed_leaks_no_address_and_no_link() {
    let late = Duration::from_secs(10_000);
    for seed in 0..200_u32 {
        for steps in 0..12 {
            let node = Node::new();
            run(&node.agent(), "ADD", "lives", RANGE).unwrap();
            let killed = node.agent();
            *lock(&node.kernel.steps) = Some(steps);
            let (mut listed, mut again) = (vec!["lives"], Vec::new());
            for turn in 0..4 {
                let name = ["a", "b"][usize::try_from(seed >> turn & 1).unwrap()];
                if seed >> (turn + 4) & 1 == 0 {
                    let is_made = run(&killed, "ADD", name, RANGE).is_ok();
                    listed.extend(is_made.then_some(name));
                } else {
                    // The runtime deletes until it has worked.
                    let is_gone = run(&killed, "DEL", name, RANGE).is_ok();
                    again.extend((!is_gone).then_some(name));
                    listed.retain(|listed| *listed != name);
                }
            }
            let agent = node.agent();
            for name in again {
                run(&agent, "DEL", name, RANGE).unwrap();
            }
            agent.collect(&live(&listed), Duration::ZERO);
            agent.collect(&live(&listed), late);
            let expected = live(&listed).len();
            assert_eq!(
                (node.addresses(), node.kernel.count()),
                (expected, expected),
                "seed {seed}, killed after {steps} steps, {listed:?}"
            );
            for name in ["a", "b"] {
                run(&agent, "DEL", name, RANGE).unwrap();
                run(&agent, "ADD", name, RANGE).unwrap();
            }
        }
    }
}

#[test]
fn cni_addition_that_is_under_way_is_not_collected() {
    let node = Node::new();
    let agent = node.agent();
    run(&agent, "ADD", "new", RANGE).unwrap();
    assert_eq!(agent.collect(&live(&[]), Duration::ZERO), 0);
    assert_eq!(agent.collect(&live(&["new"]), Duration::from_secs(400)), 0);
    // A torn lease, as of a host that lost its power.
    std::fs::write(node.folder.path().join("knarr/10.244.0.6"), "").unwrap();
    assert_eq!(agent.collect(&live(&["new"]), Duration::from_secs(401)), 1);
    assert_eq!(node.addresses(), 1);
}

/// Asks over the socket.
async fn call(socket: &Path, request: &[u8]) -> io::Result<(u8, Value)> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(request).await?;
    let mut header = [0; frame::ANSWER_HEADER];
    stream.read_exact(&mut header).await?;
    let (code, length) = frame::answer_length(&header).unwrap();
    let mut text = vec![0; length];
    stream.read_exact(&mut text).await?;
    Ok((code, serde_json::from_slice(&text).unwrap_or_default()))
}

fn request(command: &str, container: &str, subnet: &str) -> Vec<u8> {
    let namespace = format!("/run/netns/{container}");
    let variables = [command, container, &namespace, "eth0", "", "/p"].map(|text| text.as_bytes().to_vec());
    frame::request(&variables, configuration(subnet).to_string().as_bytes()).unwrap()
}

/// A served node, and its socket.
fn served(node: &Node, runtime: &Runtime) -> PathBuf {
    let (folder, plugin, own) = (
        node.folder.path().to_owned(),
        Arc::new(node.agent()),
        runtime.clone(),
    );
    let socket = install::socket(&folder);
    runtime
        .spawn("cni", async move { serve(&folder, plugin, &own).await.unwrap() })
        .detach();
    socket
}

async fn wait_for(socket: &Path) {
    while UnixStream::connect(socket).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cni_socket_serves_a_thousand_additions_at_once() {
    let node = Node::new();
    let runtime = Runtime::real();
    let socket = served(&node, &runtime);
    wait_for(&socket).await;
    let calls = (0..1000).map(|number| {
        let (socket, request) = (
            socket.clone(),
            request("ADD", &format!("c{number}"), "10.244.0.0/24"),
        );
        async move { call(&socket, &request).await.unwrap() }
    });
    let answers = futures::future::join_all(calls).await;
    let made = answers.iter().filter(|(code, _)| *code == 0);
    let addresses: BTreeSet<String> = made
        .map(|(_, result)| result["ips"][0]["address"].to_string())
        .collect();
    assert_eq!(addresses.len(), 253, "each has one of its own");
    let refused = answers
        .iter()
        .filter(|(code, error)| *code == 1 && error["code"] == 11);
    assert_eq!(refused.count(), 747);
    assert_eq!((node.addresses(), node.kernel.count()), (253, 253));
}

#[tokio::test(flavor = "multi_thread")]
async fn cni_socket_drops_callers_that_send_something_else() {
    let node = Node::new();
    let runtime = Runtime::real();
    let socket = served(&node, &runtime);
    wait_for(&socket).await;
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let good = request("ADD", "a", RANGE);
    let mut long = good.clone();
    long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let torn = [&good[..8], &4_u32.to_le_bytes(), &[0xff; 4]].concat();
    for bytes in [&long[..], b"GET / HTTP/1.1\r\n\r\n"] {
        let answered = call(&socket, bytes).await;
        assert!(answered.is_err(), "{answered:?}");
    }
    let (code, error) = call(&socket, &torn).await.unwrap();
    assert_eq!((code, &error["code"]), (1, &json!(6)));
    assert_eq!(call(&socket, &good).await.unwrap().0, 0, "the others are served");
}
