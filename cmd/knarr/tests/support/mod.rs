//! A server of the built binary in a directory of its own, and the real kubectl to drive it.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]
#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Nothing in these tests takes longer; a wait that does has failed.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Upstream's kubectl of the pinned version, or `None` after saying what is skipped.
pub fn kubectl_or_skip(test: &str) -> Option<PathBuf> {
    let tools = std::env::var("KNARR_TOOLS")
        .map(PathBuf::from)
        .unwrap_or_else(|_| {
            PathBuf::from(std::env::var("HOME").unwrap_or_default()).join(".cache/knarr/tools")
        });
    let kubectl = tools.join("kubectl");
    if kubectl.is_file() {
        return Some(kubectl);
    }
    println!("SKIPPED, not passed: {test}: kubectl is not built (cargo xtask tools kubectl)");
    None
}

/// A running `knarr server --disable-agent`, killed when dropped.
pub struct Server {
    pub dir: tempfile::TempDir,
    pub port: u16,
    kubectl: PathBuf,
    child: Child,
}

impl Server {
    pub fn start(kubectl: PathBuf) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port();
        let child = spawn(dir.path(), port);
        let server = Self {
            dir,
            port,
            kubectl,
            child,
        };
        server.wait_ready();
        server
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    fn wait_ready(&self) {
        self.until("the server to be ready", || {
            self.kubeconfig().is_file() && self.try_kubectl(&["get", "--raw", "/readyz"]).status.success()
        });
    }

    /// kill -9, then start again on the same data.
    pub fn kill_and_restart(&mut self) {
        self.child.kill().expect("the server runs");
        self.child.wait().expect("it ends");
        self.child = spawn(self.dir.path(), self.port);
        self.wait_ready();
    }

    /// A kubectl command on this server, not yet run.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(arguments);
        command.env("HOME", self.dir.path()).stdin(Stdio::null());
        command
    }

    pub fn try_kubectl(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("kubectl starts")
    }

    /// Runs a command that must succeed, and returns what it printed.
    #[track_caller]
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.try_kubectl(arguments);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success(),
            "kubectl {}: {err}{out}\n{}",
            arguments.join(" "),
            self.log()
        );
        out
    }

    /// Runs a command that must be refused, and returns what it complained about.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = self.try_kubectl(arguments);
        assert!(
            !output.status.success(),
            "kubectl {} was accepted",
            arguments.join(" ")
        );
        text(&output.stderr)
    }

    /// Feeds a document to a command that must succeed.
    #[track_caller]
    pub fn feed(&self, arguments: &[&str], document: &str) -> String {
        let file = self.dir.path().join(format!("document-{}.yaml", document.len()));
        std::fs::write(&file, document).expect("the file is written");
        let mut arguments = arguments.to_vec();
        let name = file.display().to_string();
        arguments.extend(["-f", &name]);
        self.kubectl(&arguments)
    }

    /// Waits for something that other parts of the system bring about.
    #[track_caller]
    pub fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if holds() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("waited {PATIENCE:?} for {what}\n{}", self.log());
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(dir: &Path, port: u16) -> Child {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(dir.join("log"))
        .expect("a log");
    Command::new(env!("CARGO_BIN_EXE_knarr"))
        .arg("server")
        .arg("--data-dir")
        .arg(dir.join("data"))
        .args([
            "--bind-address",
            "127.0.0.1",
            "--secure-port",
            &port.to_string(),
            "--disable-agent",
        ])
        .arg("--write-kubeconfig")
        .arg(dir.join("kubeconfig"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        .spawn()
        .expect("the built binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
