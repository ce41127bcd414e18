//! The commands of `docs/users.md`, `docs/tenants.md`, `docs/audit.md`, `docs/admission.md`, `docs/admission-policies.md`, `docs/webhooks.md`, `docs/aggregation.md`, `docs/pod-security.md`, `docs/fairness.md`, `docs/nodes.md`,
//! `docs/configuration.md`, `docs/kubelet-configuration.md`, `docs/controllers.md`, `docs/autoscaling.md` and `docs/scheduling.md`, in their order.
//!
//! A block `sh` is one script (`support/page.rs`). One that begins with `knarr server` starts the server again with these flags; one
//! that begins with `grep` may wait for what it looks for.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::kubectl::skipped;
use support::page::{blocks, script};
use support::{Launch, Server, free_port, text, tool_or_skip};

/// The page's paths and addresses as the server under test has them, and the port of a receiver that the page starts.
fn placed(block: &str, server: &Server, receiver: u16) -> String {
    let dir = server.dir.path().display();
    let block = block
        .replace("/var/lib/knarr", &format!("{dir}/data"))
        .replace("/etc/knarr", &format!("{dir}/etc"))
        .replace("/var/log/knarr", &format!("{dir}/log.d"))
        .replace("10.0.0.1:6443", &format!("127.0.0.1:{}", server.port))
        .replace("9443", &receiver.to_string());
    script(&block)
}

/// The flags of a block that starts the server; the data directory is the harness's.
fn flags(block: &str) -> Option<Vec<&str>> {
    let flags = block.strip_prefix("knarr server")?;
    let mut words = flags.split_whitespace().filter(|word| *word != "\\");
    assert_eq!(words.next(), Some("--data-dir"), "{block}");
    Some(words.skip(1).collect())
}

fn run(block: &str, server: &Server, program: &Path) -> Output {
    let script = format!("kubectl() {{ \"$KUBECTL\" \"$@\"; }}\nknarr() {{ \"$KNARR\" \"$@\"; }}\n{block}");
    Command::new("sh")
        .args(["-ec", &script])
        .env("KUBECTL", program)
        .env("KNARR", env!("CARGO_BIN_EXE_knarr"))
        .env("KUBECONFIG", server.kubeconfig())
        .env("HOME", server.dir.path())
        .current_dir(server.dir.path())
        .stdin(Stdio::null())
        .output()
        .expect("a shell")
}

#[track_caller]
fn check(test: &str, page: &str) {
    let Some(program) = tool_or_skip(test, "kubectl") else {
        return;
    };
    let mut server = Server::start(program.clone(), &[]);
    for folder in ["etc", "log.d"] {
        std::fs::create_dir(server.dir.path().join(folder)).expect("made");
    }
    let receiver = free_port();
    for block in blocks(page) {
        let block = placed(block, &server, receiver);
        if let Some(flags) = flags(&block) {
            server.restart_with(Launch::with(&flags));
            continue;
        }
        let mut output = run(&block, &server, &program);
        if block.starts_with("grep") {
            server.until(&block, || {
                output = run(&block, &server, &program);
                output.status.success()
            });
        }
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{}\n{block}\n{said}", output.status);
    }
}

#[test]
fn page_users_commands_work() {
    check("page_users_commands_work", include_str!("../../../docs/users.md"));
}

#[test]
fn page_tenants_commands_work() {
    check(
        "page_tenants_commands_work",
        include_str!("../../../docs/tenants.md"),
    );
}

#[test]
fn page_audit_commands_work() {
    check("page_audit_commands_work", include_str!("../../../docs/audit.md"));
}

#[test]
fn page_admission_commands_work() {
    check(
        "page_admission_commands_work",
        include_str!("../../../docs/admission.md"),
    );
}

#[test]
fn page_pod_security_commands_work() {
    check(
        "page_pod_security_commands_work",
        include_str!("../../../docs/pod-security.md"),
    );
}

#[test]
fn page_admission_policies_commands_work() {
    check(
        "page_admission_policies_commands_work",
        include_str!("../../../docs/admission-policies.md"),
    );
}

#[test]
fn page_webhooks_commands_work() {
    check(
        "page_webhooks_commands_work",
        include_str!("../../../docs/webhooks.md"),
    );
}

#[test]
fn page_aggregation_commands_work() {
    check(
        "page_aggregation_commands_work",
        include_str!("../../../docs/aggregation.md"),
    );
}

#[test]
fn page_fairness_commands_work() {
    check(
        "page_fairness_commands_work",
        include_str!("../../../docs/fairness.md"),
    );
}

#[test]
fn page_nodes_commands_work() {
    check("page_nodes_commands_work", include_str!("../../../docs/nodes.md"));
}

#[test]
fn page_configuration_commands_work() {
    check(
        "page_configuration_commands_work",
        include_str!("../../../docs/configuration.md"),
    );
}

#[test]
fn page_kubelet_configuration_commands_work() {
    check(
        "page_kubelet_configuration_commands_work",
        include_str!("../../../docs/kubelet-configuration.md"),
    );
}

#[test]
fn page_scheduling_commands_work() {
    check(
        "page_scheduling_commands_work",
        include_str!("../../../docs/scheduling.md"),
    );
}

/// Units have flags that the program knows and settings that systemd knows.
#[test]
fn page_nodes_units_are_valid() {
    let folder = tempfile::tempdir().expect("a folder");
    let knarr = env!("CARGO_BIN_EXE_knarr");
    for (name, unit) in [
        ("knarr.service", include_str!("../../../docs/knarr.service")),
        (
            "knarr-control-plane.service",
            include_str!("../../../docs/knarr-control-plane.service"),
        ),
    ] {
        let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
        let mut words = command.expect("a command").split(' ');
        assert_eq!(words.next(), Some("/usr/local/bin/knarr"));
        let help = Command::new(knarr).args(words).arg("--help").output();
        assert!(help.expect("the built binary starts").status.success(), "{name}");
        let path = folder.path().join(name);
        std::fs::write(&path, unit.replace("/usr/local/bin/knarr", knarr)).expect("a unit");
        let verified = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&path)
            .output();
        let Ok(verified) = verified else {
            skipped("page_nodes_units_are_valid", "systemd-analyze is not here");
            continue;
        };
        let said = text(&verified.stderr);
        assert!(verified.status.success() && !said.contains(name), "{said}");
    }
}

#[test]
fn page_autoscaling_commands_work() {
    check(
        "page_autoscaling_commands_work",
        include_str!("../../../docs/autoscaling.md"),
    );
}

#[test]
fn page_controllers_commands_work() {
    check(
        "page_controllers_commands_work",
        include_str!("../../../docs/controllers.md"),
    );
}
