//! The binary under the name `kube-apiserver`, started as controller-runtime's envtest starts upstream's.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use support::kubectl::until;
use support::{free_port, text, tool_or_skip};

const POD: &str =
    "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: example/a}]}\n";

/// Ends the server where a test fails.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The flags of envtest but `--etcd-servers`: objects lie in the folder.
fn start(folder: &Path, port: u16) -> Started {
    let link = folder.join("kube-apiserver");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_knarr"), &link).expect("a link");
    let log = std::fs::File::create(folder.join("log")).expect("a log");
    let mut command = Command::new(link);
    command
        .args([
            "--allow-privileged=true",
            "--authorization-mode=RBAC",
            "--bind-address=127.0.0.1",
        ])
        .args([
            "--advertise-address=127.0.0.1",
            "--service-cluster-ip-range=10.0.0.0/24",
        ])
        .arg("--disable-admission-plugins=ServiceAccount")
        .arg(format!("--cert-dir={}", folder.join("certs").display()))
        .arg(format!("--secure-port={port}"))
        .arg(format!("--service-account-issuer=https://127.0.0.1:{port}/"));
    let child = command
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        .spawn();
    Started(child.expect("the link starts"))
}

#[test]
fn drop_in_serves_the_api_alone_and_ends_cleanly() {
    let Some(program) = tool_or_skip("drop_in_serves_the_api_alone_and_ends_cleanly", "kubectl") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = start(folder.path(), free_port());
    let config = folder.path().join("certs/knarr/admin.kubeconfig");
    let kubectl = |arguments: &[&str]| -> Output {
        let mut command = Command::new(&program);
        command.arg("--kubeconfig").arg(&config).args(arguments);
        command.stdin(Stdio::null()).output().expect("kubectl starts")
    };
    let log = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    until(
        "the server to be ready",
        || config.is_file() && kubectl(&["get", "--raw", "/readyz"]).status.success(),
        log,
    );
    let pod = folder.path().join("pod.yaml");
    std::fs::write(&pod, POD).expect("a file");
    let pod = pod.display().to_string();
    until(
        "a pod without a service account",
        || kubectl(&["create", "-f", &pod]).status.success(),
        log,
    );
    let accounts = kubectl(&["get", "serviceaccounts", "-A", "-o", "name"]);
    assert_eq!(text(&accounts.stdout).trim(), "", "no controller runs");
    let process = i32::try_from(server.0.id()).expect("a process");
    kill(Pid::from_raw(process), Signal::SIGTERM).expect("it runs");
    let ended = server.0.wait().expect("it ends");
    assert!(ended.success(), "{ended}\n{}", log());
}

/// Suites of operators start the programs of a folder, by names that are upstream's.
#[test]
fn drop_in_serves_envtest_with_an_etcd_of_upstreams() {
    let test = "drop_in_serves_envtest_with_an_etcd_of_upstreams";
    let tools = (
        tool_or_skip(test, "envtest"),
        tool_or_skip(test, "etcd"),
        tool_or_skip(test, "kubectl"),
    );
    let (Some(envtest), Some(etcd), Some(kubectl)) = tools else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let own = Path::new(env!("CARGO_BIN_EXE_knarr"));
    for (program, name) in [(own, "kube-apiserver"), (&etcd, "etcd"), (&kubectl, "kubectl")] {
        std::os::unix::fs::symlink(program, folder.path().join(name)).expect("a link");
    }
    let suite = Command::new(envtest)
        .arg(folder.path())
        .stdin(Stdio::null())
        .output();
    let suite = suite.expect("the suite starts");
    assert!(
        suite.status.success(),
        "{}{}",
        text(&suite.stdout),
        text(&suite.stderr)
    );
    assert!(
        text(&suite.stdout).ends_with("passed\n"),
        "{}",
        text(&suite.stdout)
    );
}
