//! A real etcd of the tools folder, killed when dropped.

use super::tool_or_skip;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Times that free ports are looked for.
const PORTS_TRIED: u32 = 5;

pub(crate) struct Etcd {
    child: Child,
    pub(crate) endpoint: String,
    dir: tempfile::TempDir,
}

impl Etcd {
    pub(crate) fn start_or_skip(test: &str) -> Option<Self> {
        Some(Self::start(&tool_or_skip(test, "etcd")?, "http", &[]))
    }

    /// Speaks TLS only, and only to clients with a certificate of this authority.
    pub(crate) fn start_with_tls(binary: &Path, authority: &Path, certificate: &Path, key: &Path) -> Self {
        let file = |path: &Path| path.display().to_string();
        Self::start(
            binary,
            "https",
            &[
                "--client-cert-auth".to_owned(),
                format!("--trusted-ca-file={}", file(authority)),
                format!("--cert-file={}", file(certificate)),
                format!("--key-file={}", file(key)),
            ],
        )
    }

    fn start(binary: &Path, scheme: &str, more: &[String]) -> Self {
        Self::start_on_free_ports(|peer| {
            let dir = tempfile::tempdir().expect("a directory");
            Self::start_in(binary, scheme, peer, dir, more)
        })
    }

    /// A port that was free may be another test's before etcd has it, which then ends.
    fn start_on_free_ports(start: impl Fn(&str) -> Result<Self, String>) -> Self {
        let mut said = String::new();
        for _ in 0..PORTS_TRIED {
            match start(&format!("http://127.0.0.1:{}", super::free_port())) {
                Ok(etcd) => return etcd,
                Err(log) => said = log,
            }
        }
        panic!("etcd has ended: {said}")
    }

    /// Starts on a data directory that `etcdutl` makes of a snapshot.
    pub(crate) fn start_on_snapshot(binary: &Path, etcdutl: &Path, snapshot: &Path) -> Self {
        Self::start_on_free_ports(|peer| {
            let dir = tempfile::tempdir().expect("a directory");
            restore(etcdutl, snapshot, peer, dir.path());
            Self::start_in(binary, "http", peer, dir, &[])
        })
    }

    /// Ends it properly; its folder, and the database in it.
    pub(crate) fn stop(mut self) -> (tempfile::TempDir, PathBuf) {
        let pid = i32::try_from(self.child.id()).expect("a process number");
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        let _ = self.child.wait();
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().expect("a directory"));
        let database = dir.path().join("data/member/snap/db");
        (dir, database)
    }

    /// Starts it and waits until it listens; its log where it has ended.
    fn start_in(
        binary: &Path,
        scheme: &str,
        peer: &str,
        dir: tempfile::TempDir,
        more: &[String],
    ) -> Result<Self, String> {
        let endpoint = format!("{scheme}://127.0.0.1:{}", super::free_port());
        let log = std::fs::File::create(dir.path().join("log")).expect("a log");
        let child = Command::new(binary)
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .args([
                "--listen-client-urls",
                &endpoint,
                "--advertise-client-urls",
                &endpoint,
            ])
            .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
            .args([
                "--initial-cluster",
                &format!("default={peer}"),
                "--unsafe-no-fsync",
            ])
            .args(more)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("etcd starts");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process number"));
        let etcd = Self { child, endpoint, dir };
        let address = etcd.endpoint.split_once("//").expect("a scheme").1.to_owned();
        let listens = || std::net::TcpStream::connect(&address).is_ok();
        super::until("etcd to listen", || has_ended(pid) || listens(), || etcd.log());
        match has_ended(pid) {
            true => Err(etcd.log()),
            false => Ok(etcd),
        }
    }

    /// Freezes it, or kills it: it answers no client any more.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process number");
        kill(Pid::from_raw(pid), signal).expect("etcd runs");
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

/// Reports whether a child has ended; it is still to be waited for.
fn has_ended(pid: Pid) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive))
}

fn restore(etcdutl: &Path, snapshot: &Path, peer: &str, dir: &Path) {
    let restored = Command::new(etcdutl)
        .args([
            "snapshot",
            "restore",
            "--bump-revision",
            "1000000",
            "--mark-compacted",
        ])
        .args(["--initial-cluster", &format!("default={peer}")])
        .args(["--initial-advertise-peer-urls", peer])
        .arg("--data-dir")
        .arg(dir.join("data"))
        .arg(snapshot)
        .output()
        .expect("etcdutl starts");
    let said = String::from_utf8_lossy(&restored.stderr);
    assert!(restored.status.success(), "{said}");
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
