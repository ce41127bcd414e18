//! A real etcd, where one has been built (`cargo xtask tools`).

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Ends with the test.
pub(super) struct Process {
    process: Child,
    pub(super) endpoint: String,
    _dir: tempfile::TempDir,
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "where the tools are is this test's one setting"
)]
fn binary() -> Option<PathBuf> {
    let tools = std::env::var("KNARR_TOOLS").map(PathBuf::from);
    let tools =
        tools.or_else(|_| std::env::var("HOME").map(|home| PathBuf::from(home).join(".cache/knarr/tools")));
    let path = tools.ok()?.join("etcd");
    let is_there = path.try_exists().unwrap_or(false);
    // A set folder means that the tools are there.
    assert!(is_there || std::env::var("KNARR_TOOLS").is_err(), "no {path:?}");
    is_there.then_some(path)
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Process {
    pub(super) fn start() -> Option<Self> {
        let Some(binary) = binary() else {
            // Past the harness, which keeps what a test prints to itself.
            let why =
                "SKIPPED, not passed: etcd's part of the suite: it is not built (cargo xtask tools etcd)";
            writeln!(std::io::stderr(), "{why}").unwrap();
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let (client, peer) = (
            format!("http://127.0.0.1:{}", free_port()),
            format!("http://127.0.0.1:{}", free_port()),
        );
        #[expect(
            clippy::disallowed_methods,
            reason = "the node's way of running commands is not for tests of storage"
        )]
        let process = Command::new(binary)
            .arg("--data-dir")
            .arg(dir.path())
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args([
                "--initial-cluster",
                &format!("default={peer}"),
                "--unsafe-no-fsync",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self {
            process,
            endpoint: client,
            _dir: dir,
        })
    }
}
