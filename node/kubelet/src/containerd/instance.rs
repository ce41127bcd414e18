//! Starting containerd, adopting one that runs, and starting it again when it ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use machinery_runtime::Runtime;
use node_cri::{CriClient, v1};
use node_sys::cgroup::CgroupDriver;
use node_sys::exec::{Daemon, ExecError};
use node_sys::supervise::{Supervised, last_line};

use super::config::ContainerdConfig;

/// Time within which containerd answers: a second here; a cold disk may take longer.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Pause before one that ended before it answered is started again.
const START_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// containerd cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ContainerdError {
    /// A file could not be written.
    #[error("writing {}", path.display())]
    Write {
        /// File or folder.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// It does not run.
    #[error("starting containerd")]
    Start(#[from] ExecError),
    /// One that runs makes cgroups by the other driver; it and its pods keep that for as long as they are there.
    #[error(
        "containerd in {} runs with the cgroup driver {before}, and the configuration has {now}: drain the node, end containerd          (pid {pid}), and start again",
        directory.display()
    )]
    Driver {
        /// Directory of containerd.
        directory: PathBuf,
        /// Its driver.
        before: CgroupDriver,
        /// The driver of the configuration.
        now: CgroupDriver,
        /// Its process.
        pid: u32,
    },
    /// It does not answer.
    #[error("containerd does not answer on {}; its log is {}", socket.display(), log.display())]
    Silent {
        /// Socket that it should serve.
        socket: PathBuf,
        /// Log file of containerd.
        log: PathBuf,
    },
}

/// Our containerd.
#[derive(Debug, Clone)]
pub struct Containerd {
    pub(super) runtime: Runtime,
    pub(super) config: ContainerdConfig,
}

/// The process, and how it is known again.
fn supervised(directory: &Path) -> Supervised {
    Supervised {
        name: "containerd",
        daemon: Daemon {
            program: "containerd".into(),
            args: vec![
                "--config".into(),
                ContainerdConfig::path_in(directory).into(),
                "--log-level".into(),
                "warn".into(),
            ],
            env: Vec::new(),
            log: directory.join("containerd.log"),
            pid_file: directory.join("containerd.pid"),
        },
        socket: Some(ContainerdConfig::socket_in(directory)),
    }
}

/// Enters the mount namespace that the containers live in: the one an earlier agent has kept, or a new one. Must be
/// called before any thread is started.
pub fn join_namespace(directory: &Path) -> std::io::Result<()> {
    let holder = supervised(directory).running().map(|found| found.pid);
    node_sys::mount_namespace::enter(&directory.join("namespace"), holder)
}

impl Containerd {
    /// Adopts the running one or starts it, and waits until it answers.
    pub async fn ensure(runtime: &Runtime, config: ContainerdConfig) -> Result<Self, ContainerdError> {
        let containerd = Self {
            runtime: runtime.clone(),
            config,
        };
        containerd.refuse_another_driver()?;
        containerd.write_config()?;
        containerd.end_repair().await;
        let running = containerd.supervised().ensure()?;
        // One that an agent started before this one may have been given no such score. Its own is also the lowest that
        // it gives a container (`restrict_oom_score_adj`).
        node_sys::process::spare_from_oom(running.pid);
        containerd.wait_until_it_answers().await?;
        Ok(containerd)
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.config.socket()
    }

    fn supervised(&self) -> Supervised {
        supervised(&self.config.directory)
    }

    fn refuse_another_driver(&self) -> Result<(), ContainerdError> {
        let Some(running) = self.supervised().running() else {
            return Ok(());
        };
        let (directory, now) = (self.config.directory.clone(), self.config.cgroup_driver);
        let written = std::fs::read_to_string(ContainerdConfig::path_in(&directory)).unwrap_or_default();
        let before = ContainerdConfig::driver_in(&written);
        match before.filter(|before| *before != now) {
            None => Ok(()),
            Some(before) => Err(ContainerdError::Driver {
                directory,
                before,
                now,
                pid: running.pid,
            }),
        }
    }

    fn write_config(&self) -> Result<(), ContainerdError> {
        let path = ContainerdConfig::path_in(&self.config.directory);
        let write = || {
            std::fs::create_dir_all(&self.config.directory)?;
            std::fs::create_dir_all(&self.config.cni_conf_dir)?;
            node_sys::fs::write_atomically(&path, self.config.toml().as_bytes(), 0o600)?;
            self.reserve_repair()
        };
        write().map_err(|source| ContainerdError::Write {
            path: path.clone(),
            source,
        })
    }

    async fn wait_until_it_answers(&self) -> Result<(), ContainerdError> {
        let cri = CriClient::new(self.socket());
        let deadline = self.runtime.monotonic() + START_TIMEOUT;
        loop {
            if cri
                .version(v1::VersionRequest { version: "v1".into() })
                .await
                .is_ok()
            {
                return Ok(());
            }
            if self.supervised().running().is_none() {
                self.repair(last_line(&self.supervised().daemon.log).unwrap_or_default())
                    .await;
                self.runtime.sleep(START_AGAIN_AFTER).await;
                self.supervised().ensure()?;
            }
            if self.runtime.monotonic() > deadline {
                return Err(ContainerdError::Silent {
                    socket: self.socket(),
                    log: self.supervised().daemon.log,
                });
            }
            self.runtime.sleep(ASK_AGAIN_AFTER).await;
        }
    }

    /// Starts it again whenever it has ended, for ever.
    pub async fn supervise(self) {
        let repair = |said| self.repair(said);
        self.supervised()
            .keep_repaired(self.runtime.clone(), repair)
            .await;
    }
}
