//! A program that outlives its starter: started or adopted, watched, and started again when it ends.
//!
//! It records its identity before it begins ([`crate::exec::Daemon`]), so that a later starter finds it there; where
//! the record is lost, by the socket it listens on. Nothing is recognised by its command line, which any process may
//! choose. An adopted program is watched as a child is, by a descriptor of it.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use machinery_runtime::Runtime;

use crate::exec::{Daemon, ExecError};
use crate::process::ProcessIdentity;

/// The first pause before a program that ended soon is started again, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// Run time from which a start counts as successful; the next one follows at once and the backoff is reset.
const WELL_AFTER: Duration = Duration::from_secs(5);
/// The end of a program's log that is read for its last line.
const LAST_LINE_BYTES: u64 = 512;

/// One program that is to run always.
#[derive(Debug, Clone)]
pub struct Supervised {
    /// For the log.
    pub name: &'static str,
    /// Program and its start.
    pub daemon: Daemon,
    /// The socket that it alone listens on, in a folder of root's.
    pub socket: Option<PathBuf>,
}

impl Supervised {
    /// The running process, whatever started it.
    pub fn running(&self) -> Option<ProcessIdentity> {
        ProcessIdentity::recorded(&self.daemon.pid_file)
            .or_else(|| ProcessIdentity::listening(self.socket.as_ref()?))
    }

    /// Adopts the one that runs, or starts it.
    pub fn ensure(&self) -> Result<ProcessIdentity, ExecError> {
        if let Some(running) = self.running() {
            tracing::info!(name = self.name, pid = running.pid, "adopted");
            return Ok(running);
        }
        let started = self.daemon.start()?;
        tracing::info!(name = self.name, pid = started.pid, log = %self.daemon.log.display(), "started");
        Ok(started)
    }

    /// Keeps it running for ever: whenever it has ended it is started again, after a pause if it had only just begun.
    pub async fn keep_running(self, runtime: Runtime) {
        self.keep_repaired(runtime, |_| std::future::ready(())).await;
    }

    /// The same, where one that has ended is repaired before it is started again; the repair gets the last line of its log.
    pub async fn keep_repaired<Repair, Repaired>(self, runtime: Runtime, repair: Repair)
    where
        Repair: Fn(String) -> Repaired,
        Repaired: Future<Output = ()>,
    {
        let mut pause = PAUSE.0;
        loop {
            let began = runtime.monotonic();
            match self.ensure() {
                Ok(running) => {
                    // An error means that it had ended before it could be watched.
                    let _ = running.ended().await;
                    let said = last_line(&self.daemon.log).unwrap_or_default();
                    tracing::warn!(
                        name = self.name,
                        pid = running.pid,
                        ?said,
                        "process exited, restarting"
                    );
                }
                Err(error) => tracing::error!(name = self.name, %error, "not started"),
            }
            let lasted = runtime.monotonic() - began;
            // Whatever time it took until it ended: a busy machine is slow to fail.
            repair(last_line(&self.daemon.log).unwrap_or_default()).await;
            if lasted >= WELL_AFTER {
                pause = PAUSE.0;
                continue;
            }
            runtime.sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }
}

/// The last line of a log that is not empty, its end where it is longer than [`LAST_LINE_BYTES`].
pub fn last_line(log: &Path) -> Option<String> {
    let file = File::open(log).ok()?;
    let begin = file.metadata().ok()?.len().saturating_sub(LAST_LINE_BYTES);
    let mut end = Vec::new();
    let mut rest = &file;
    rest.seek(SeekFrom::Start(begin)).ok()?;
    rest.take(LAST_LINE_BYTES).read_to_end(&mut end).ok()?;
    let text = String::from_utf8_lossy(&end);
    text.lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::Signal;

    fn sleeper(folder: &std::path::Path) -> Supervised {
        Supervised {
            name: "sleeper",
            daemon: Daemon {
                program: "sleep".into(),
                args: vec![format!("100{}.5", std::process::id()).into()],
                env: Vec::new(),
                log: folder.join("log"),
                pid_file: folder.join("pid"),
            },
            socket: Some(folder.join("socket")),
        }
    }

    #[tokio::test]
    async fn supervised_that_runs_is_adopted_and_one_that_ended_is_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let sleeper = sleeper(folder.path());
        assert_eq!(sleeper.running(), None);
        let first = sleeper.ensure().unwrap();
        let record = std::fs::read_to_string(&sleeper.daemon.pid_file).unwrap();
        let recorded = ProcessIdentity::from_text(&record);
        assert_eq!(recorded.as_ref(), Some(&first), "it wrote its own record");
        assert_eq!(sleeper.ensure().unwrap(), first, "found by its record");
        let scope = Runtime::real().child_scope();
        let watch = sleeper.clone().keep_running(scope.runtime().clone());
        scope.runtime().spawn("watch", watch).detach();
        assert!(first.signal(Signal::SIGKILL));
        let second = loop {
            match sleeper.running().filter(|found| *found != first) {
                Some(found) => break found,
                None => tokio::task::yield_now().await,
            }
        };
        scope.stopped().await;
        assert!(second.signal(Signal::SIGKILL));
    }

    #[test]
    fn supervised_log_has_a_last_line_of_bounded_length() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        assert_eq!(last_line(&log), None);
        std::fs::write(&log, "began\nno address\n\n").unwrap();
        assert_eq!(last_line(&log).as_deref(), Some("no address"));
        std::fs::write(&log, "x".repeat(5_000)).unwrap();
        assert_eq!(last_line(&log), Some("x".repeat(512)));
    }

    #[test]
    fn supervised_without_a_record_is_found_by_its_socket() {
        let folder = tempfile::tempdir().unwrap();
        let sleeper = sleeper(folder.path());
        let _listener = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
        assert_eq!(sleeper.running().map(|found| found.pid), Some(std::process::id()));
    }

    /// The kernel gives a pid away again once its process has ended.
    #[test]
    fn supervised_record_of_an_earlier_process_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let sleeper = sleeper(folder.path());
        let own = ProcessIdentity::of(std::process::id()).unwrap();
        let of_earlier_start = ProcessIdentity {
            start_time: own.start_time + 1,
            ..own.clone()
        };
        let of_another_boot = ProcessIdentity {
            boot_id: "another".to_owned(),
            ..own.clone()
        };
        let record = |identity: &ProcessIdentity| {
            std::fs::write(&sleeper.daemon.pid_file, identity.to_text()).unwrap();
            sleeper.running()
        };
        assert_eq!(record(&of_earlier_start), None);
        assert_eq!(record(&of_another_boot), None);
        assert_eq!(record(&own), Some(own));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a process that nobody supervises")]
    fn supervised_is_not_found_by_its_command_line() {
        use std::os::unix::process::CommandExt;
        let folder = tempfile::tempdir().unwrap();
        let sleeper = sleeper(folder.path());
        let mut decoy = std::process::Command::new("sleep");
        decoy.args(&sleeper.daemon.args);
        if nix::unistd::geteuid().is_root() {
            decoy.uid(65534);
        }
        // Between fork and exec a process has its parent's arguments; a spawned one is beyond that.
        let mut decoy = decoy.spawn().unwrap();
        let found = sleeper.running();
        decoy.kill().unwrap();
        decoy.wait().unwrap();
        assert_eq!(found, None);
    }
}
