//! The disk of a server runs full: it says so and ends, and nothing that was acknowledged is lost.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use std::ffi::OsString;
use std::process::{Command, Stdio};
use support::{Launch, Server, tool_or_skip};

/// A disk of 24 MB; when the server has ended, its owner makes room and starts it again.
const SCRIPT: &str = r#"
mkdir "$1/data" && mount -t tmpfs -o size=24m none "$1/data" || exit 9
shift
"$@"
mount -o remount,size=96m none "$4" && exec "$@"
"#;

/// A mount namespace of its own that ends with the first process in it. Root is not needed where user namespaces are.
const UNSHARE: [&str; 9] = [
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "sh",
    "-c",
];

fn can_mount() -> bool {
    let mut attempt = Command::new(UNSHARE[0]);
    attempt.args(&UNSHARE[1..]).arg("mount -t tmpfs none /tmp");
    attempt.stdout(Stdio::null()).stderr(Stdio::null());
    attempt.status().is_ok_and(|status| status.success())
}

#[test]
fn a_full_disk_loses_nothing_and_says_what_to_do() {
    let test = "a_full_disk_loses_nothing_and_says_what_to_do";
    let Some(kubectl) = tool_or_skip(test, "kubectl") else {
        return;
    };
    if !can_mount() {
        println!("SKIPPED, not passed: {test}: no mount namespace without root here");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut launch = Launch::with(&["--controllers=-*", "--disable-scheduler"]);
    launch.through = UNSHARE
        .iter()
        .chain(&[SCRIPT, "sh"])
        .map(OsString::from)
        .collect();
    launch.through.push(dir.path().into());
    let server = Server::start_in(dir, kubectl, launch);
    let large = server.dir.path().join("large");
    std::fs::write(&large, "y".repeat(900_000)).expect("written");
    let from = format!("--from-file={}", large.display());
    let create = |number: usize| {
        server
            .try_kubectl(&["create", "configmap", &format!("large-{number}"), &from])
            .status
            .success()
    };
    let acknowledged = (0..100).take_while(|number| create(*number)).count();
    assert!(acknowledged > 5, "{}", server.log());
    assert!(acknowledged < 100, "a disk of 24 MB takes no 90");
    server.until("the server to come back", || {
        server.try_kubectl(&["get", "--raw", "/readyz"]).status.success()
    });
    for number in 0..acknowledged {
        let length = [
            "get",
            "configmap",
            &format!("large-{number}"),
            "-o",
            "jsonpath={.data.large}",
        ];
        assert_eq!(server.kubectl(&length).len(), 900_000, "large-{number}");
    }
    server.kubectl(&["create", "configmap", "after", &from]);
    let said = server.log();
    let complaint = said
        .lines()
        .find(|line| line.starts_with("knarr: "))
        .unwrap_or_default();
    assert!(
        complaint.contains("cannot be written; what was acknowledged is kept"),
        "{said}"
    );
    assert!(
        complaint.contains("make room on its disk") && complaint.contains("No space left on device"),
        "{said}"
    );
}
