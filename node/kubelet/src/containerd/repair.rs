//! Repair of a containerd that cannot read what it has recorded.
//!
//! One that finds two records of one name ends at each start ([`node_cri::twins`]), and the node would be without pods for
//! good. A second containerd, which serves no CRI and so takes no names, opens the same records, and the surplus ones are
//! removed through it. Its socket is another one, so that no agent takes it for the first.

use std::path::PathBuf;
use std::time::Duration;

use node_cri::{CriClient, CriError, twins};
use node_sys::exec::{Daemon, ExecError};
use node_sys::supervise::Supervised;

use super::Containerd;

/// End of the message with which containerd ends: `name "…" is reserved for "…"`.
const SAID: &str = "is reserved for";
/// Time in which the second containerd answers, and the one in which it ends.
const TIMEOUT: Duration = Duration::from_secs(60);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The records could not be repaired.
#[derive(Debug, thiserror::Error)]
enum RepairError {
    #[error(transparent)]
    Start(#[from] ExecError),
    #[error(transparent)]
    Call(#[from] CriError),
    #[error("no answer in {} s", TIMEOUT.as_secs())]
    Timeout,
}

impl Containerd {
    /// Removes surplus records if it was them that containerd complained of in its last line.
    pub(super) async fn repair(&self, said: String) {
        if !said.contains(SAID) {
            return;
        }
        let repaired = self.runtime.timeout(TIMEOUT, self.remove_twins()).await;
        self.end_repair().await;
        match repaired.unwrap_or(Err(RepairError::Timeout)) {
            Ok(removed) => tracing::warn!(
                ?removed,
                "containers of one name removed from containerd's records"
            ),
            Err(error) => tracing::error!(%error, "records of containerd not repaired"),
        }
    }

    async fn remove_twins(&self) -> Result<Vec<String>, RepairError> {
        let second = self.second();
        second.ensure()?;
        let client = CriClient::new(self.repair_file("sock"));
        loop {
            match twins::remove(&client).await {
                Err(error) if !error.is_final() => self.runtime.sleep(ASK_AGAIN_AFTER).await,
                ended => return Ok(ended?),
            }
        }
    }

    /// Ends the second containerd, also one that an agent left which was killed: the records are open to one alone.
    pub(super) async fn end_repair(&self) {
        let Some(running) = self.second().running() else {
            return;
        };
        running.terminate();
        if self.runtime.timeout(TIMEOUT, running.ended()).await.is_err() {
            running.kill();
        }
    }

    /// Writes what the second one needs, while there is room on the disk.
    pub(super) fn reserve_repair(&self) -> std::io::Result<()> {
        let text = self.config.repair_toml(&self.repair_file("sock"));
        node_sys::fs::write_atomically(&self.repair_file("toml"), text.as_bytes(), 0o600)?;
        self.second().daemon.reserve()
    }

    fn repair_file(&self, suffix: &str) -> PathBuf {
        self.config.directory.join(format!("repair.{suffix}"))
    }

    fn second(&self) -> Supervised {
        Supervised {
            name: "containerd without CRI",
            daemon: Daemon {
                program: "containerd".into(),
                args: vec!["--config".into(), self.repair_file("toml").into()],
                env: Vec::new(),
                log: self.config.directory.join("containerd.log"),
                pid_file: self.repair_file("pid"),
            },
            socket: Some(self.repair_file("sock")),
        }
    }
}
