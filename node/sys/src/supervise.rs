//! A program that outlives us: started or adopted, watched, and started again when it ends.
//!
//! Whoever starts it notes its identity in a file; whoever comes later finds it by that, or, where the starter died
//! before it could write, by its arguments. An adopted program is watched as one's own child is, by a descriptor of it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use machinery_runtime::Runtime;

use crate::exec::{Daemon, ExecError};
use crate::process::{self, ProcessIdentity};

/// The first pause before a program that ended soon is started again, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// One that has run this long had started well: its end is news, and it is started again at once.
const WELL_AFTER: Duration = Duration::from_secs(5);

/// The program does not run.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// It could not be started.
    #[error(transparent)]
    Start(#[from] ExecError),
    /// It runs, but the next one to look for it will have to search.
    #[error("writing {}", path.display())]
    Record {
        /// The file of its identity.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// One program that is to run always.
#[derive(Debug, Clone)]
pub struct Supervised {
    /// For the log.
    pub name: &'static str,
    /// How it is started.
    pub daemon: Daemon,
    /// Where its identity is noted.
    pub pid_file: PathBuf,
}

impl Supervised {
    /// The one that runs, whoever started it.
    pub fn running(&self) -> Option<ProcessIdentity> {
        let text = std::fs::read_to_string(&self.pid_file).unwrap_or_default();
        let recorded = ProcessIdentity::from_text(&text).filter(ProcessIdentity::is_alive);
        recorded.or_else(|| self.search())
    }

    fn search(&self) -> Option<ProcessIdentity> {
        let found = process::find(|line| arguments(line) == self.daemon.args);
        found.into_iter().find_map(|pid| ProcessIdentity::of(pid).ok())
    }

    /// Adopts the one that runs, or starts it.
    pub fn ensure(&self) -> Result<ProcessIdentity, SuperviseError> {
        if let Some(running) = self.running() {
            tracing::info!(name = self.name, pid = running.pid, "adopted");
            return Ok(running);
        }
        let started = self.daemon.start()?;
        tracing::info!(name = self.name, pid = started.pid, log = %self.daemon.log.display(), "started");
        crate::fs::write_atomically(&self.pid_file, started.to_text().as_bytes(), 0o644).map_err(
            |source| SuperviseError::Record {
                path: self.pid_file.clone(),
                source,
            },
        )?;
        Ok(started)
    }

    /// Keeps it running for ever: whenever it has ended it is started again, after a pause if it had only just begun.
    pub async fn keep_running(self, runtime: Runtime) {
        let mut pause = PAUSE.0;
        loop {
            let began = runtime.monotonic();
            match self.ensure() {
                Ok(running) => {
                    // An error means that it had ended before it could be watched.
                    let _ = running.ended().await;
                    tracing::warn!(name = self.name, pid = running.pid, "ended, starting it again");
                }
                Err(error) => tracing::error!(name = self.name, %error, "not started"),
            }
            if runtime.monotonic() - began >= WELL_AFTER {
                pause = PAUSE.0;
                continue;
            }
            runtime.sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }
}

/// What follows the program's name in a command line as the kernel keeps it.
fn arguments(line: &[u8]) -> Vec<OsString> {
    let line = line.strip_suffix(b"\0").unwrap_or(line);
    let words = line.split(|byte| *byte == 0).skip(1);
    words.map(|word| OsString::from_vec(word.to_vec())).collect()
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
                // Nobody else sleeps exactly so long.
                args: vec![format!("100{}.5", std::process::id()).into()],
                env: Vec::new(),
                log: folder.join("log"),
            },
            pid_file: folder.join("pid"),
        }
    }

    #[tokio::test]
    async fn one_that_runs_is_adopted_and_one_that_ended_is_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let sleeper = sleeper(folder.path());
        let first = sleeper.ensure().unwrap();
        assert_eq!(sleeper.ensure().unwrap(), first, "known by its file");
        std::fs::remove_file(&sleeper.pid_file).unwrap();
        // Between fork and exec a process still has its parent's arguments.
        while sleeper.running().is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(sleeper.running(), Some(first.clone()), "known by its arguments");
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
}
