//! A real etcd of the tools folder, killed when dropped.

use super::tool_or_skip;
use std::path::Path;
use std::process::{Child, Command, Stdio};

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
        let dir = tempfile::tempdir().expect("a directory");
        let endpoint = format!("{scheme}://127.0.0.1:{}", super::free_port());
        let peer = format!("http://127.0.0.1:{}", super::free_port());
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
            .args(more)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("etcd starts");
        let etcd = Self { child, endpoint, dir };
        let address = etcd.endpoint.split_once("//").expect("a scheme").1.to_owned();
        super::until(
            "etcd to listen",
            || std::net::TcpStream::connect(&address).is_ok(),
            || etcd.log(),
        );
        etcd
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
