//! A bus of its own with a logind on it that says what a test has it say.

use super::kubectl::skipped;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// Debian's, for which the package of the library is.
const PYTHON: &str = "/usr/bin/python3";
const SCRIPT: &str = include_str!("../../../../node/sys/testdata/fake_logind.py");

/// Both end when it is dropped.
pub(crate) struct FakeLogind {
    bus: Child,
    logind: Child,
    commands: ChildStdin,
    lines: Receiver<String>,
    /// Address of the bus.
    pub(crate) address: String,
}

impl FakeLogind {
    /// One that allows delays of 1000 seconds; or `None` after printing what is skipped.
    pub(crate) fn start(test: &str, folder: &Path) -> Option<Self> {
        let has_library = Command::new(PYTHON)
            .args(["-c", "import dbus.mainloop.glib, gi"])
            .stderr(Stdio::null())
            .status();
        if node_sys::exec::find_program("dbus-daemon").is_none() || !has_library.is_ok_and(|it| it.success())
        {
            skipped(test, "dbus-daemon, python3-dbus or python3-gi is not installed");
            return None;
        }
        let address = format!("unix:path={}", folder.join("bus").display());
        let mut bus = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--nopidfile", "--print-address=1"])
            .arg(format!("--address={address}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("dbus-daemon starts");
        let mut line = String::new();
        let mut printed = BufReader::new(bus.stdout.take().expect("its output"));
        printed.read_line(&mut line).expect("its address");
        let mut logind = Command::new(PYTHON)
            .args(["-c", SCRIPT, &address, "1000", "1000"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python starts");
        let commands = logind.stdin.take().expect("its input");
        let printed = BufReader::new(logind.stdout.take().expect("its output"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let all = printed.lines().map_while(Result::ok);
            all.take_while(|line| sender.send(line.clone()).is_ok())
                .for_each(drop);
        });
        let found = Self {
            bus,
            logind,
            commands,
            lines,
            address,
        };
        found.expect("ready");
        Some(found)
    }

    /// Waits for a line that it prints.
    #[track_caller]
    pub(crate) fn expect(&self, line: &str) {
        let patience = super::kubectl::PATIENCE;
        loop {
            match self.lines.recv_timeout(patience) {
                Ok(found) if found == line => return,
                Ok(_) => {}
                Err(error) => panic!("logind did not print {line:?}: {error}"),
            }
        }
    }

    /// Reports whether it has printed a line since the last call.
    pub(crate) fn has_printed(&self, line: &str) -> bool {
        self.lines.try_iter().any(|found| found == line)
    }

    /// Has it say that the machine goes down, or does not after all.
    pub(crate) fn prepare(&mut self, value: bool) {
        writeln!(self.commands, "prepare {value}").expect("it reads");
    }
}

impl Drop for FakeLogind {
    fn drop(&mut self) {
        for child in [&mut self.logind, &mut self.bus] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
