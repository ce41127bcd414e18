//! Servers of the built binary, each in a directory of its own, and the real kubectl to drive them.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]
#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

pub(crate) mod cluster;
pub(crate) mod csi_driver;
pub(crate) mod device_plugin;
pub(crate) mod dra_driver;
pub(crate) mod etcd;
pub(crate) mod harness;
pub(crate) mod image;
pub(crate) mod kubectl;
pub(crate) mod logind;
pub(crate) mod network;
pub(crate) mod page;
pub(crate) mod python;
pub(crate) mod registry;
pub(crate) mod systemd_machine;
pub(crate) mod systemd_node;
pub(crate) mod upstream;

use etcd::Etcd;
pub(crate) use kubectl::{Kubectl, text, tool_or_skip, until};
use std::ffi::OsString;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
pub(crate) use xtask::host::Host;

/// A running `knarr server --disable-agent`, killed when dropped.
pub(crate) struct Server {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) port: u16,
    kubectl: Kubectl,
    launch: Launch,
    child: Child,
    /// Its own etcd, where it has one; ends after it.
    etcd: Option<Etcd>,
}

/// Start of a server's process: words before the program's, and flags of its own.
#[derive(Clone, Default)]
pub(crate) struct Launch {
    pub(crate) through: Vec<OsString>,
    pub(crate) flags: Vec<String>,
}

impl Launch {
    pub(crate) fn with(flags: &[&str]) -> Self {
        Self {
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            ..Self::default()
        }
    }
}

impl Deref for Server {
    type Target = Kubectl;

    fn deref(&self) -> &Kubectl {
        &self.kubectl
    }
}

impl Server {
    /// Objects lie in the data directory.
    pub(crate) fn start_or_skip(test: &str) -> Option<Self> {
        Some(Self::start(tool_or_skip(test, "kubectl")?, &[]))
    }

    /// The same as [`Self::start_or_skip`], with further flags.
    pub(crate) fn start_with_or_skip(test: &str, flags: &[&str]) -> Option<Self> {
        Some(Self::start(tool_or_skip(test, "kubectl")?, flags))
    }

    /// Objects lie in an etcd of its own.
    pub(crate) fn start_on_etcd_or_skip(test: &str) -> Option<Self> {
        let (kubectl, etcd) = (tool_or_skip(test, "kubectl")?, Etcd::start_or_skip(test)?);
        let mut server = Self::start(kubectl, &["--etcd-servers", &etcd.endpoint]);
        server.etcd = Some(etcd);
        Some(server)
    }

    pub(crate) fn start(program: PathBuf, flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self::start_in(dir, program, Launch::with(flags))
    }

    pub(crate) fn start_in(dir: tempfile::TempDir, program: PathBuf, launch: Launch) -> Self {
        let port = free_port();
        let host = Host::existing(None);
        let child = without_agent(dir.path(), &host, port, &launch);
        let kubectl = Kubectl {
            program,
            folder: dir.path().to_owned(),
            host,
            namespace: None,
        };
        let server = Self {
            dir,
            port,
            kubectl,
            launch,
            child,
            etcd: None,
        };
        wait_ready(&server);
        server
    }

    /// kill -9, then start again on the same data.
    pub(crate) fn kill_and_restart(&mut self) {
        self.stop();
        self.start_again();
    }

    /// kill -9.
    pub(crate) fn stop(&mut self) {
        self.child.kill().expect("the server runs");
        self.child.wait().expect("it ends");
    }

    /// kill -9, then start with other flags on the same data.
    pub(crate) fn restart_with(&mut self, launch: Launch) {
        self.launch = launch;
        self.kill_and_restart();
    }

    /// Starts the server that was stopped.
    pub(crate) fn start_again(&mut self) {
        self.child = without_agent(self.dir.path(), &self.kubectl.host, self.port, &self.launch);
        wait_ready(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn without_agent(dir: &Path, host: &Host, port: u16, launch: &Launch) -> Child {
    let mut command = server_command(dir, host, port, &launch.through);
    command.args(["--bind-address", "127.0.0.1", "--disable-agent"]);
    spawn(command.args(&launch.flags), dir)
}

/// A free port.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
        .port()
}

pub(crate) fn wait_ready(kubectl: &Kubectl) {
    kubectl.until("the server to be ready", || {
        kubectl.kubeconfig().is_file() && kubectl.try_kubectl(&["get", "--raw", "/readyz"]).status.success()
    });
}

/// `knarr server` as built, its things below `dir`; begun by what `through` says, where that says anything.
pub(crate) fn server_command(dir: &Path, host: &Host, port: u16, through: &[OsString]) -> Command {
    const PROGRAM: &str = env!("CARGO_BIN_EXE_knarr");
    let mut command = match through.split_first() {
        Some((first, rest)) => {
            let mut command = host.command(first);
            command.args(rest).arg(PROGRAM);
            command
        }
        None => host.command(PROGRAM),
    };
    command.arg("server").arg("--data-dir").arg(dir.join("data"));
    command.args(["--secure-port", &port.to_string()]);
    command.arg("--write-kubeconfig").arg(dir.join("kubeconfig"));
    command
}

/// Starts it, what it says going to `log`.
pub(crate) fn spawn(command: &mut Command, dir: &Path) -> Child {
    let mut options = std::fs::File::options();
    let log = options.create(true).append(true).open(dir.join("log"));
    let log = log.expect("a log");
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        .spawn()
        .expect("the built binary starts")
}

/// The processes whose command line, words ended by zero bytes, fits.
pub(crate) fn processes(fits: impl Fn(&[u8]) -> bool) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("a table of processes");
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| fits(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()))
        .collect()
}
