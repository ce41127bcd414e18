//! `knarr storage`: the commands of `docs/storage.md` in their order, exit codes of the check, and the way to etcd and back.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod support;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::etcd::Etcd;
use support::upstream::Upstream;
use support::{Launch, Server, tool_or_skip};

const KNARR: &str = env!("CARGO_BIN_EXE_knarr");
const QUIET: [&str; 2] = ["--controllers=-*", "--disable-scheduler"];

fn knarr(arguments: &[&str]) -> Output {
    let mut command = Command::new(KNARR);
    command.args(arguments).stdin(Stdio::null());
    command.output().expect("the built binary starts")
}

#[track_caller]
fn done(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The lines of the page's blocks of commands.
fn commands_of_the_page() -> Vec<String> {
    let page = include_str!("../../../docs/storage.md");
    let blocks = page.split("```sh\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap_or_default().lines());
    lines.map(str::to_owned).collect()
}

#[test]
fn storage_page_is_true() {
    let test = "storage_page_is_true";
    let Some(kubectl) = tool_or_skip(test, "kubectl") else {
        return;
    };
    let mut server = Server::start(kubectl.clone(), &QUIET);
    server.kubectl(&["create", "configmap", "kept", "--from-literal=a=1"]);
    let dir = server.dir.path().to_owned();
    let (backups, bin) = (dir.join("backups"), dir.join("bin"));
    std::fs::create_dir_all(&backups).expect("made");
    std::fs::create_dir_all(&bin).expect("made");
    std::os::unix::fs::symlink(KNARR, bin.join("knarr")).expect("linked");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    for line in commands_of_the_page() {
        match line.as_str() {
            "systemctl stop knarr" => server.stop(),
            "systemctl start knarr" => server.start_again(),
            _ => {
                let places = [
                    ("/var/lib/knarr", text(&dir.join("data"))),
                    ("/var/lib/", text(&dir) + "/"),
                    ("/backups", text(&backups)),
                ];
                let line = places
                    .iter()
                    .fold(line, |line, (from, to)| line.replace(from, to));
                let mut shell = Command::new("sh");
                done(
                    &shell
                        .args(["-c", &line])
                        .env("PATH", &path)
                        .output()
                        .expect("a shell"),
                );
            }
        }
    }
    let yaml = std::fs::read_to_string(backups.join("configmaps.yaml")).expect("exported");
    assert!(
        yaml.contains("name: kept") && !yaml.contains("kind: Namespace"),
        "{yaml}"
    );
    let json = std::fs::read(backups.join("monday.json")).expect("exported");
    let list: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    assert!(list["items"].as_array().is_some_and(|items| items.len() > 50));
    for restored in ["restored", "from-etcd"] {
        let other = tempfile::tempdir().expect("a directory");
        std::fs::rename(dir.join(restored), other.path().join("data")).expect("moved");
        let other = Server::start_in(other, kubectl.clone(), Launch::with(&QUIET));
        let value = ["get", "configmap", "kept", "-o", "jsonpath={.data.a}"];
        assert_eq!(other.kubectl(&value), "1", "{restored}");
        other.kubectl(&["create", "configmap", "new"]);
        let version = [
            "get",
            "configmap",
            "new",
            "-o",
            "jsonpath={.metadata.resourceVersion}",
        ];
        let version: u64 = other.kubectl(&version).parse().expect("a number");
        assert!(version > 1_000_000_000, "{version}");
    }
}

#[test]
fn storage_check_answers_by_its_exit_code() {
    let test = "storage_check_answers_by_its_exit_code";
    let Some(kubectl) = tool_or_skip(test, "kubectl") else {
        return;
    };
    let mut server = Server::start(kubectl, &QUIET);
    let data = text(&server.dir.path().join("data"));
    let check = || knarr(&["storage", "check", "--data-dir", &data]);
    let running = check();
    let said = String::from_utf8_lossy(&running.stderr).into_owned();
    assert_eq!(running.status.code(), Some(1), "{said}");
    assert!(said.contains("a server runs in"), "{said}");
    server.stop();
    assert_eq!(check().status.code(), Some(0));
    let backup = text(&server.dir.path().join("one"));
    done(&knarr(&["storage", "backup", &backup, "--data-dir", &data]));
    let again = knarr(&["storage", "backup", &backup, "--data-dir", &data]);
    assert_eq!(again.status.code(), Some(1), "an existing file stays");
    let into_used = knarr(&["storage", "restore", &backup, "--data-dir", &data]);
    let said = String::from_utf8_lossy(&into_used.stderr).into_owned();
    assert!(said.contains("is not empty"), "{said}");
    let segment = std::fs::read_dir(server.dir.path().join("data/storage"))
        .expect("a directory")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "seg"))
        .expect("a segment");
    let mut bytes = std::fs::read(&segment).expect("read");
    bytes[2000] ^= 4;
    std::fs::write(&segment, bytes).expect("written");
    let damaged = check();
    let told = String::from_utf8_lossy(&damaged.stdout).into_owned();
    assert_eq!(damaged.status.code(), Some(3), "{told}");
    assert!(
        told.contains(&text(&segment)) && told.contains("knarr storage restore"),
        "{told}"
    );
    std::fs::write(&backup, &std::fs::read(&backup).expect("read")[..700]).expect("cut");
    let cut = knarr(&["storage", "check", "--from", &backup]);
    assert_eq!(cut.status.code(), Some(3));
}

#[test]
fn storage_backup_of_a_running_server_is_for_administrators() {
    let test = "storage_backup_of_a_running_server_is_for_administrators";
    let Some(server) = Server::start_with_or_skip(test, &QUIET) else {
        return;
    };
    let path = "/knarr/storage/backup";
    for user in [
        &["--as", "eve"][..],
        &["--as", "eve", "--as-group", "system:nodes"],
    ] {
        server.refused(&[&["get", "--raw", path], user].concat());
    }
    let anonymous = server.refused(&["get", "--raw", path, "--as", "system:anonymous"]);
    assert!(anonymous.contains("forbidden"), "{anonymous}");
    let read = server.try_kubectl(&["get", "--raw", path]);
    assert!(read.stdout.starts_with(b"KNARRBAK"));
}

#[test]
fn storage_snapshot_moves_to_etcd_and_back() {
    let test = "storage_snapshot_moves_to_etcd_and_back";
    let tools = tool_or_skip(test, "kubectl").zip(tool_or_skip(test, "etcd"));
    let Some(((kubectl, etcd), etcdutl)) = tools.zip(tool_or_skip(test, "etcdutl")) else {
        return;
    };
    let server = Server::start(kubectl.clone(), &QUIET);
    server.kubectl(&["create", "namespace", "moved"]);
    let large = server.dir.path().join("large");
    std::fs::write(&large, "y".repeat(30_000)).expect("written");
    let from = format!("--from-file={}", large.display());
    server.kubectl(&["-n", "moved", "create", "configmap", "large", &from]);
    let data = text(&server.dir.path().join("data"));
    let snapshot = text(&server.dir.path().join("snapshot.db"));
    let way = [
        "storage",
        "backup",
        &snapshot,
        "--format",
        "etcd",
        "--data-dir",
        &data,
    ];
    done(&knarr(&way));
    let status = Command::new(&etcdutl)
        .args(["snapshot", "status", &snapshot])
        .output();
    done(&status.expect("etcdutl starts"));
    let restored = Etcd::start_on_snapshot(&etcd, &etcdutl, Path::new(&snapshot));
    let flags = [&["--etcd-servers", &restored.endpoint][..], &QUIET].concat();
    let on_etcd = Server::start(kubectl.clone(), &flags);
    let value = [
        "-n",
        "moved",
        "get",
        "configmap",
        "large",
        "-o",
        "jsonpath={.data.large}",
    ];
    assert_eq!(on_etcd.kubectl(&value).len(), 30_000);
    on_etcd.kubectl(&["-n", "moved", "create", "configmap", "from-etcd"]);
    drop(on_etcd);
    let upstream = Upstream::start_or_skip(test, &restored, &[]);
    if let Some(upstream) = &upstream {
        assert_eq!(upstream.kubectl(&value).len(), 30_000);
        upstream.kubectl(&["-n", "moved", "create", "configmap", "from-upstream"]);
    }
    let ((_kept, back), dir) = (restored.stop(), tempfile::tempdir().expect("a directory"));
    let (back, data) = (text(&back), text(&dir.path().join("data")));
    done(&knarr(&[
        "storage",
        "restore",
        &back,
        "--data-dir",
        &data,
        "--skip-hash-check",
    ]));
    let again = Server::start_in(dir, kubectl, Launch::with(&QUIET));
    assert_eq!(again.kubectl(&value).len(), 30_000);
    again.kubectl(&["-n", "moved", "get", "configmap", "from-etcd"]);
    if upstream.is_some() {
        again.kubectl(&["-n", "moved", "get", "configmap", "from-upstream"]);
    }
}
