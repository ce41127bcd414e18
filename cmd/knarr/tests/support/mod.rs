//! Servers of the built binary, each in a directory of its own, and the real kubectl to drive them.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]
#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

pub(crate) mod cluster;
pub(crate) mod harness;
pub(crate) mod image;
pub(crate) mod kubectl;
pub(crate) mod network;

pub(crate) use kubectl::{Kubectl, text};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
pub(crate) use xtask::host::Host;

/// A running `knarr server --disable-agent`, killed when dropped.
pub(crate) struct Server {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) port: u16,
    kubectl: Kubectl,
    child: Child,
}

impl Deref for Server {
    type Target = Kubectl;

    fn deref(&self) -> &Kubectl {
        &self.kubectl
    }
}

impl Server {
    pub(crate) fn start(program: PathBuf) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port();
        let host = Host::existing(None);
        let child = without_agent(dir.path(), &host, port);
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
            child,
        };
        wait_ready(&server);
        server
    }

    /// kill -9, then start again on the same data.
    pub(crate) fn kill_and_restart(&mut self) {
        self.child.kill().expect("the server runs");
        self.child.wait().expect("it ends");
        self.child = without_agent(self.dir.path(), &self.kubectl.host, self.port);
        wait_ready(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn without_agent(dir: &Path, host: &Host, port: u16) -> Child {
    spawn(
        server_command(dir, host, port).args(["--bind-address", "127.0.0.1", "--disable-agent"]),
        dir,
    )
}

pub(crate) fn wait_ready(kubectl: &Kubectl) {
    kubectl.until("the server to be ready", || {
        kubectl.kubeconfig().is_file() && kubectl.try_kubectl(&["get", "--raw", "/readyz"]).status.success()
    });
}

/// `knarr server` as built, its things below `dir`.
pub(crate) fn server_command(dir: &Path, host: &Host, port: u16) -> Command {
    let mut command = host.command(env!("CARGO_BIN_EXE_knarr"));
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
