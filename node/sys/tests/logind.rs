//! logind over a real bus, with a service on it by another library (`testdata/fake_logind.py`). Needs Debian's dbus-daemon,
//! python3-dbus and python3-gi: `cargo test --test logind -- --ignored`.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

use machinery_runtime::Runtime;
use node_sys::logind::{Logind, LogindError, SystemLogind};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/fake_logind.py");

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lines(process: &mut Process) -> Lines<BufReader<ChildStdout>> {
    BufReader::new(process.0.stdout.take().unwrap()).lines()
}

/// A bus at a socket of the folder.
fn bus(folder: &Path) -> (Process, String) {
    let address = format!("unix:path={}", folder.join("bus").display());
    let child = Command::new("dbus-daemon")
        .args(["--session", "--nofork", "--nopidfile", "--print-address=1"])
        .arg(format!("--address={address}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut process = Process(child);
    lines(&mut process).next().unwrap().unwrap();
    (process, address)
}

struct Fake {
    process: Process,
    commands: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Fake {
    /// One whose delay is 5 seconds, and another once its configuration was read again.
    fn start(address: &str, configured_seconds: &str) -> Self {
        let child = Command::new("/usr/bin/python3")
            .args([SCRIPT, address, "5", configured_seconds])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut process = Process(child);
        let mut fake = Self {
            commands: process.0.stdin.take().unwrap(),
            lines: lines(&mut process),
            process,
        };
        fake.prints("ready");
        fake
    }

    #[track_caller]
    fn prints(&mut self, line: &str) {
        assert_eq!(self.lines.next().unwrap().unwrap(), line);
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.commands, "{line}").unwrap();
        self.prints("done");
    }
}

#[tokio::test]
#[ignore = "needs dbus-daemon, python3-dbus and python3-gi"]
async fn logind_gives_a_lock_and_says_when_the_machine_goes_down() {
    let folder = tempfile::tempdir().unwrap();
    let (_bus, address) = bus(folder.path());
    let mut fake = Fake::start(&address, "60");
    let drop_ins = folder.path().join("logind.conf.d");
    let logind = SystemLogind::new(Runtime::real(), Some(address)).with_drop_ins(drop_ins.clone());
    let mut session = logind.connect().await.unwrap();
    assert_eq!(session.inhibit_delay_max().await.unwrap(), Duration::from_secs(5));
    logind.override_inhibit_delay(Duration::from_secs(60)).unwrap();
    let written = std::fs::read_to_string(drop_ins.join("99-kubelet.conf")).unwrap();
    assert_eq!(
        written,
        "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=60\n"
    );
    session.reload_configuration().await.unwrap();
    fake.prints("reload systemd-logind.service all 1");
    assert_eq!(
        session.inhibit_delay_max().await.unwrap(),
        Duration::from_secs(60)
    );
    assert!(!session.is_preparing().await.unwrap());
    let lock = session.inhibit().await.unwrap();
    fake.prints("inhibit shutdown kubelet delay");
    // What another connection sends under the same name is no news.
    fake.tell("forge true");
    fake.tell("prepare true");
    fake.tell("prepare false");
    assert!(session.next_event().await.unwrap());
    assert!(!session.next_event().await.unwrap());
    fake.tell("set true");
    assert!(session.is_preparing().await.unwrap());
    drop(lock);
    fake.prints("released");
}

#[tokio::test]
#[ignore = "needs dbus-daemon, python3-dbus and python3-gi"]
async fn logind_that_goes_away_ends_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let (bus, address) = bus(folder.path());
    let logind = SystemLogind::new(Runtime::real(), Some(address.clone()));
    let missing = logind.connect().await.unwrap_err();
    assert!(matches!(missing, LogindError::Bus(..)), "{missing:?}");
    let fake = Fake::start(&address, "60");
    let mut session = logind.connect().await.unwrap();
    drop(fake.process);
    let ended = session.next_event().await.unwrap_err();
    assert!(matches!(ended, LogindError::Restarted), "{ended:?}");
    let _fake = Fake::start(&address, "60");
    let mut session = logind.connect().await.unwrap();
    drop(bus);
    let lost = session.next_event().await.unwrap_err();
    assert!(matches!(lost, LogindError::Bus(..)), "{lost:?}");
    assert!(logind.connect().await.is_err());
}
