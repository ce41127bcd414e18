//! Upstream's kube-apiserver of the tools folder.

use super::etcd::Etcd;
use super::{free_port, tool_or_skip, until};
use rcgen::KeyPair;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// Upstream's server on an etcd, spoken to by kubectl.
pub(crate) struct Upstream {
    child: Child,
    pub(crate) kubectl: PathBuf,
    port: u16,
    dir: tempfile::TempDir,
}

const TOKEN: &str = "one-of-this-test";

impl Upstream {
    pub(crate) fn start_or_skip(test: &str, etcd: &Etcd, flags: &[&str]) -> Option<Self> {
        let (binary, kubectl) = (
            tool_or_skip(test, "kube-apiserver")?,
            tool_or_skip(test, "kubectl")?,
        );
        let (dir, port) = (tempfile::tempdir().expect("a directory"), free_port());
        let file = |name: &str| dir.path().join(name).display().to_string();
        let key = KeyPair::generate().expect("a key");
        std::fs::write(file("sa.key"), key.serialize_pem()).expect("written");
        std::fs::write(file("sa.pub"), key.public_key_pem()).expect("written");
        let admin = format!("{TOKEN},admin,admin,\"system:masters\"\n");
        std::fs::write(file("tokens"), admin).expect("written");
        let log = std::fs::File::create(file("log")).expect("a log");
        let child = Command::new(binary)
            .args(["--etcd-servers", &etcd.endpoint, "--cert-dir", &file("certs")])
            .args(["--bind-address", "127.0.0.1", "--secure-port", &port.to_string()])
            .args([
                "--token-auth-file",
                &file("tokens"),
                "--authorization-mode",
                "Node,RBAC",
            ])
            .args(["--service-account-key-file", &file("sa.pub")])
            .args(["--service-account-signing-key-file", &file("sa.key")])
            .args([
                "--service-account-issuer",
                "https://kubernetes.default.svc.cluster.local",
            ])
            .args(["--service-cluster-ip-range", "10.96.0.0/16"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("kube-apiserver starts");
        let upstream = Self {
            child,
            kubectl,
            port,
            dir,
        };
        let log = || std::fs::read_to_string(upstream.dir.path().join("log")).unwrap_or_default();
        until(
            "upstream's server",
            || upstream.run(&["get", "--raw", "/readyz"]).status.success(),
            log,
        );
        Some(upstream)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        Command::new(&self.kubectl)
            .args([
                "--kubeconfig",
                "/dev/null",
                "--insecure-skip-tls-verify",
                "--token",
                TOKEN,
            ])
            .args(["--server", &format!("https://127.0.0.1:{}", self.port)])
            .args(arguments)
            .env("HOME", self.dir.path())
            .stdin(Stdio::null())
            .output()
            .expect("kubectl starts")
    }

    #[track_caller]
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[track_caller]
    pub(crate) fn feed(&self, document: &str) {
        let file = self.dir.path().join("document.yaml");
        std::fs::write(&file, document).expect("written");
        self.kubectl(&["create", "-f", &file.display().to_string()]);
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
