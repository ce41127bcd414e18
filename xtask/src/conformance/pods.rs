//! A cluster of real nodes for the suite: each in a network namespace, on one link; the suite and a registry in another one
//! beside them, as a client's machine would be.

use super::images::Images;
use super::suite::Place;
use crate::config::Config;
use crate::process;
use crate::up::further_data_dir;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use xtask::host::Host;
use xtask::nodes::{self, FurtherNode};

/// Number of the suite's place on the link.
const SUITE: u8 = 99;
const REGISTRY_PORT: u16 = 5000;
const SECURE_PORT: u16 = 6443;

/// Flags of setpriv: the kernel kills the program when this one ends, however that may be.
const ENDS_WITH_US: [&str; 3] = ["--pdeathsig", "KILL", "--"];

/// Looks at what is awaited: 600 × 200 ms.
const ATTEMPTS: u32 = 600;
const PAUSE: Duration = Duration::from_millis(200);

/// A running cluster. [`Cluster::remove`] takes it down; dropped without it, as far as it goes.
#[derive(Debug)]
pub(super) struct Cluster {
    kubectl: PathBuf,
    knarr: PathBuf,
    /// Everything that it keeps.
    scratch: PathBuf,
    report: PathBuf,
    first: Host,
    suite: Host,
    further: Vec<FurtherNode>,
    /// Ended with the cluster, the last one first.
    children: Vec<Child>,
    kubeconfig: PathBuf,
    is_removed: bool,
}

impl Cluster {
    /// Starts registry, server and nodes, and gives each node the images.
    pub(super) fn start(
        config: &Config,
        images: &Images,
        knarr: &Path,
        nodes: u8,
        report: &Path,
    ) -> Result<Self> {
        let scratch = super::scratch()?;
        let first = Host::prepare(Some(format!("knarr-pods-{}", std::process::id())))?;
        let mut cluster = Self {
            kubectl: config.tools.join("kubectl"),
            knarr: knarr.to_owned(),
            kubeconfig: scratch.join("kubeconfig"),
            scratch,
            report: report.to_owned(),
            suite: first.beside("suite", SUITE)?,
            first,
            further: Vec::new(),
            children: Vec::new(),
            is_removed: false,
        };
        println!("==> starting {nodes} nodes; what an interrupted run leaves is removed by");
        println!("    {}", cluster.removal());
        cluster.start_registry(images)?;
        cluster.start_server()?;
        cluster.settle("node-1", Host::address(1).to_string(), images)?;
        for number in 2..=nodes {
            cluster.join(number)?;
            let name = format!("node-{number}");
            cluster.settle(&name, Host::address(number).to_string(), images)?;
        }
        cluster.follow_events()?;
        Ok(cluster)
    }

    pub(super) fn place(&self) -> Place<'_> {
        Place {
            kubeconfig: &self.kubeconfig,
            host: Some(&self.suite),
            nodes: u8::try_from(self.further.len() + 1).unwrap_or(u8::MAX),
        }
    }

    /// Says how to get in, and waits for a line on standard input.
    pub(super) fn stay(self) -> Result<()> {
        println!(
            "\n    {}{} --kubeconfig {} get nodes\n\nA line on standard input ends it.",
            self.suite.prefix(),
            self.kubectl.display(),
            self.kubeconfig.display()
        );
        std::io::stdin().read_line(&mut String::new())?;
        self.remove()
    }

    fn start_registry(&mut self, images: &Images) -> Result<()> {
        let file = self.scratch.join("registry.yml");
        let address = Host::address(SUITE);
        fs::write(
            &file,
            format!(
                "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n\
                 storage: {{filesystem: {{rootdirectory: {}}}, maintenance: {{readonly: {{enabled: true}}}}}}\n\
                 http: {{addr: \"{address}:{REGISTRY_PORT}\"}}\n",
                images.storage.display()
            ),
        )?;
        let mut registry = self.suite.command("setpriv");
        registry
            .args(ENDS_WITH_US)
            .args(["docker-registry", "serve"])
            .arg(file);
        self.keep("registry.log", &mut registry)
    }

    fn start_server(&mut self) -> Result<()> {
        let data_dir = self.data_dir();
        mirror(&data_dir.join("agent"))?;
        let mut server = self.first.command(&self.knarr);
        server
            .args(["server", "--hostname-override", "node-1", "--data-dir"])
            .arg(&data_dir)
            .args(["--secure-port", &SECURE_PORT.to_string()])
            .args(["--cgroup-root", &self.first.cgroup_root()])
            // The suite is upstream's, whose server refuses neither.
            .args([
                "--allow-unenforced",
                "--disable-admission-plugins=DenyServiceExternalIPs",
            ])
            .arg("--write-kubeconfig")
            .arg(&self.kubeconfig);
        self.keep("server.log", &mut server)?;
        until("a kubeconfig", || Ok(self.kubeconfig.try_exists()?))?;
        // It names the loopback address of the first node.
        let server = format!("https://{}:{SECURE_PORT}", Host::address(1));
        let text = fs::read_to_string(&self.kubeconfig)?;
        let lines = text.lines().map(|line| match line.split_once("server: ") {
            Some((before, _)) => format!("{before}server: {server}\n"),
            None => format!("{line}\n"),
        });
        fs::write(&self.kubeconfig, lines.collect::<String>())?;
        until("the server to be ready", || {
            succeeds(self.kubectl().args(["get", "--raw", "/readyz"]))
        })
    }

    /// Lets a further node join by a token.
    fn join(&mut self, number: u8) -> Result<()> {
        let name = format!("node-{number}");
        let data_dir = further_data_dir(&self.data_dir(), number);
        mirror(&data_dir)?;
        let node = FurtherNode::beside(&self.first, number, &name, &data_dir, SECURE_PORT)?;
        let token = self.scratch.join("token");
        nodes::write_token(&self.first, &self.knarr, &self.data_dir(), &token)?;
        let agent = node.start(&self.knarr, &token, &[""; 0])?;
        self.children.push(agent);
        self.further.push(node);
        Ok(())
    }

    /// Waits until the node is Ready, shows the suite the way to its pods, and gives it the images.
    fn settle(&self, name: &str, address: String, images: &Images) -> Result<()> {
        let node = format!("node/{name}");
        let wait = ["wait", "--for=condition=Ready", &node, "--timeout=1s"];
        until(&format!("{node} to be Ready"), || {
            succeeds(self.kubectl().args(wait))
        })?;
        let mut get = self.kubectl();
        get.args(["get", &node, "-o", "jsonpath={.spec.podCIDR}"]);
        let pods = process::output(&mut get)?;
        let route = ["route", "replace", &pods, "via", &address];
        process::run(self.suite.command("ip").args(route))?;
        println!("==> {name} gets {} images", images.references.len());
        let (host, agent) = match self.further.last() {
            Some(node) => (&node.host, node.data_dir.clone()),
            None => (&self.first, self.data_dir().join("agent")),
        };
        for reference in &images.references {
            let mut pull = host.command("ctr");
            pull.arg("--address")
                .arg(agent.join("containerd/containerd.sock"))
                .args(["--namespace", "k8s.io", "images", "pull", "--hosts-dir"])
                .arg(agent.join("containerd/certs.d"))
                .arg(reference);
            let pulled = pull.output().context("starting ctr")?;
            // It says much where nothing is wrong.
            if !pulled.status.success() {
                bail!(
                    "{name} pulls {reference}: {}",
                    String::from_utf8_lossy(&pulled.stderr)
                );
            }
        }
        Ok(())
    }

    fn follow_events(&mut self) -> Result<()> {
        let mut events = self.suite.command("setpriv");
        events
            .args(ENDS_WITH_US)
            .arg(&self.kubectl)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig);
        let columns = "T:.metadata.creationTimestamp,NS:.metadata.namespace,K:.involvedObject.kind,\
                       N:.involvedObject.name,R:.reason,M:.message";
        events
            .args([
                "get",
                "events",
                "--all-namespaces",
                "--watch",
                "--no-headers",
                "-o",
            ])
            .arg(format!("custom-columns={columns}"));
        self.keep("events.txt", &mut events)
    }

    fn kubectl(&self) -> Command {
        let mut kubectl = self.suite.command(&self.kubectl);
        kubectl
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(self.scratch.join("kubectl"));
        kubectl
    }

    /// The command that removes all of it.
    fn removal(&self) -> String {
        let name = self.first.network_namespace().unwrap_or_default();
        let name = name.file_name().unwrap_or_default();
        let data_dir = self.data_dir();
        format!(
            "cargo xtask down --data-dir {} --isolated {}",
            data_dir.display(),
            name.display()
        )
    }

    fn data_dir(&self) -> PathBuf {
        self.scratch.join("node")
    }

    /// Starts a program that ends with the cluster.
    fn keep(&mut self, log: &str, command: &mut Command) -> Result<()> {
        let log = fs::File::create(self.report.join(log))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        self.children.push(child);
        Ok(())
    }

    /// Takes everything down; logs of agents and containerd stay in the report's folder.
    pub(super) fn remove(mut self) -> Result<()> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_removed, true) {
            return Ok(());
        }
        self.save_logs();
        let mut outcomes = Vec::new();
        for node in self.further.iter().rev() {
            outcomes.push(node.remove(&self.knarr).map(drop));
        }
        let removed = self.first.remove_cluster(&self.knarr, &self.data_dir());
        outcomes.push(removed.map(drop));
        for child in self.children.iter_mut().rev() {
            // Most have ended with their node.
            let _ = child.kill();
            let _ = child.wait();
        }
        outcomes.push(self.suite.remove());
        outcomes.into_iter().collect::<Result<()>>()?;
        Ok(fs::remove_dir_all(&self.scratch)?)
    }

    fn save_logs(&self) {
        let further = self.further.iter().map(|node| node.data_dir.clone());
        let agents = std::iter::once(self.data_dir().join("agent")).chain(further);
        for (index, agent) in agents.enumerate() {
            for log in ["agent.log", "containerd/containerd.log"] {
                let name = log.rsplit('/').next().unwrap_or(log);
                let to = self.report.join(format!("node-{}-{name}", index + 1));
                // A node that never began has none.
                let _ = fs::copy(agent.join(log), to);
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            eprintln!(
                "the cluster in {} was not taken down: {error:#}",
                self.scratch.display()
            );
        }
    }
}

/// Lets a node's containerd pull from our registry whatever host an image names, so that what is not there is not found at once.
fn mirror(agent: &Path) -> Result<()> {
    let folder = agent.join("containerd/certs.d/_default");
    fs::create_dir_all(&folder)?;
    let registry = format!("http://{}:{REGISTRY_PORT}", Host::address(SUITE));
    let hosts =
        format!("server = \"{registry}\"\n[host.\"{registry}\"]\n  capabilities = [\"pull\", \"resolve\"]\n");
    Ok(fs::write(folder.join("hosts.toml"), hosts)?)
}

fn succeeds(command: &mut Command) -> Result<bool> {
    Ok(command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?
        .success())
}

fn until(what: &str, mut look: impl FnMut() -> Result<bool>) -> Result<()> {
    for _ in 0..ATTEMPTS {
        if look()? {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    bail!("waited in vain for {what}")
}
