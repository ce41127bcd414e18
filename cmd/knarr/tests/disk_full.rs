//! The disk of a server runs full: reads and deletes go on, writes are refused, nothing that was acknowledged is lost, and
//! the server recovers by itself once there is room.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use std::ffi::OsString;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{Launch, Server, tool_or_skip};

/// A disk of 24 MB; its owner makes room when the test requests it by a file.
const SCRIPT: &str = r#"
dir=$1
shift
mkdir "$dir/data" && mount -t tmpfs -o size=24m none "$dir/data" || exit 9
(until [ -e "$dir/room" ]; do sleep 0.1; done; mount -o remount,size=96m none "$dir/data") &
exec "$@"
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
fn full_disk_refuses_writes_and_recovers_by_itself() {
    let Some(server) = on_a_small_disk("full_disk_refuses_writes_and_recovers_by_itself") else {
        return;
    };
    let large = server.dir.path().join("large");
    std::fs::write(&large, "y".repeat(900_000)).expect("written");
    let from = format!("--from-file={}", large.display());
    let create = |number: usize| {
        let name = format!("large-{number}");
        server.try_kubectl(&["create", "configmap", &name, &from])
    };
    let is_healthy = |check: &str| server.try_kubectl(&["get", "--raw", check]).status.success();
    let mut acknowledged = 0;
    // History of the log gives some room once; then the disk is full for good.
    let refused = (0..200).find_map(|_| {
        let made = create(acknowledged);
        acknowledged += usize::from(made.status.success());
        let full = !made.status.success() && !is_healthy("/readyz/storage-space");
        full.then_some(made)
    });
    assert!(acknowledged > 5, "{}", server.log());
    assert!(acknowledged < 100, "a disk of 24 MB takes no 90");
    let refused = refused.unwrap_or_else(|| panic!("the disk is never full: {}", server.log()));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("etcdserver: mvcc: database space exceeded"),
        "{said}"
    );
    assert!(
        is_healthy("/readyz"),
        "a server that reads and deletes is reached"
    );
    server.kubectl(&["delete", "configmap", "large-0"]);
    all_are_there(&server, 1..acknowledged);
    std::fs::write(server.dir.path().join("room"), "").expect("written");
    server.until("the disk to have room", || {
        server
            .try_kubectl(&["create", "configmap", "after", &from])
            .status
            .success()
    });
    assert!(is_healthy("/readyz/storage-space"));
    all_are_there(&server, 1..acknowledged);
}

/// A server whose data directory is on a disk of 24 MB; or `None` after printing what is skipped.
fn on_a_small_disk(test: &str) -> Option<Server> {
    let kubectl = tool_or_skip(test, "kubectl")?;
    if !can_mount() {
        support::kubectl::skipped(test, "no mount namespace without root here");
        return None;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut launch = Launch::with(&["--controllers=-*", "--disable-scheduler"]);
    launch.through = UNSHARE
        .iter()
        .chain(&[SCRIPT, "sh"])
        .map(OsString::from)
        .collect();
    launch.through.push(dir.path().into());
    Some(Server::start_in(dir, kubectl, launch))
}

/// The server alone is on the disk: room comes from what it keeps of the deleted objects.
#[test]
fn full_disk_of_own_objects_has_room_again_once_they_are_deleted() {
    let Some(server) = on_a_small_disk("full_disk_of_own_objects_has_room_again_once_they_are_deleted")
    else {
        return;
    };
    let large = server.dir.path().join("large");
    std::fs::write(&large, "y".repeat(880_000)).expect("written");
    let from = format!("--from-file={}", large.display());
    let create = |number: usize| {
        let name = format!("large-{number}");
        let made = server.try_kubectl(&["create", "configmap", &name, &from]);
        made.status.success()
    };
    let metric = |name: &str| -> f64 {
        let metrics = server.kubectl(&["get", "--raw", "/metrics"]);
        let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(name));
        let value = lines.find_map(|rest| rest.trim().parse().ok());
        value.expect("the metric is there")
    };
    let whole = metric("knarr_storage_reserve_bytes ");
    for _ in 0..2 {
        let mut made = (0..100).take_while(|number| create(*number)).count();
        assert!((5..100).contains(&made), "{made}: {}", server.log());
        while made > 0 {
            made -= 1;
            server.kubectl(&["delete", "configmap", &format!("large-{made}")]);
        }
        server.until("room on the disk, and the reserve", || {
            metric("knarr_storage_full ") == 0.0 && metric("knarr_storage_reserve_bytes ") >= whole
        });
    }
}

fn all_are_there(server: &Server, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let name = format!("large-{number}");
        let length = ["get", "configmap", &name, "-o", "jsonpath={.data.large}"];
        assert_eq!(server.kubectl(&length).len(), 900_000, "{name}");
    }
}

/// A log on a full disk loses lines, and the process that may make room goes on (seen with an agent whose pods had filled its disk).
#[test]
fn log_that_cannot_be_written_ends_no_process() {
    let dir = tempfile::tempdir().expect("a folder");
    let port = support::free_port();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut command = Command::new(env!("CARGO_BIN_EXE_knarr"));
    command
        .args([
            "server",
            "--disable-agent",
            "--bind-address",
            "127.0.0.1",
            "--secure-port",
        ])
        .arg(port.to_string())
        .arg("--data-dir")
        .arg(dir.path().join("data"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut server = command
        .stderr(full.expect("/dev/full"))
        .spawn()
        .expect("it starts");
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let ended = server.try_wait().expect("a process");
        assert!(ended.is_none(), "it ended: {ended:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    server.kill().expect("it runs");
    server.wait().expect("it has ended");
}
