//! Writing of the checkpoint: one task at a time, which goes on where those who wait for it do not.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use machinery_runtime::{Runtime, Watched};
use parking_lot::Mutex;

use super::checkpoint::Data;
use super::state::State;

/// Pause after a failed write, if no other is requested before.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The writer of the checkpoint. Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Saver {
    runtime: Runtime,
    folder: PathBuf,
    state: Arc<Mutex<State>>,
    writes: Arc<Watched<Writes>>,
}

/// Writes so far.
#[derive(Debug, Clone, Default)]
struct Writes {
    /// Number of times that a save was asked for.
    asked: u64,
    /// The last one of these that has been answered.
    answered: u64,
    /// The generation of the state that is on the disk.
    saved: u64,
    /// Failure of the last write.
    failure: Option<String>,
    /// A task writes.
    is_writing: bool,
    /// A task waits to try again after a failure.
    is_retrying: bool,
}

impl Saver {
    /// A writer into this folder. Generation 0 needs no writing.
    pub(super) fn new(runtime: Runtime, folder: PathBuf, state: Arc<Mutex<State>>) -> Self {
        Self {
            runtime,
            folder,
            state,
            writes: Arc::default(),
        }
    }

    /// Waits until the state of now, or a later one, is on the disk.
    ///
    /// # Errors
    /// Upstream's sentence. The next call tries again.
    pub(super) async fn save(&self) -> Result<(), String> {
        let wanted = self.state.lock().generation;
        if self.writes.get().saved >= wanted {
            return Ok(());
        }
        let own = self.save_soon();
        let writes = self.writes.wait_for(|writes| writes.answered >= own).await;
        match writes.saved >= wanted {
            true => Ok(()),
            false => Err(writes.failure.unwrap_or_default()),
        }
    }

    /// Begins to write what is not on the disk yet, or sees to it that the task that writes does so next. A failure is logged.
    /// Returns the number of this request.
    pub(super) fn save_soon(&self) -> u64 {
        let (mut own, mut begins) = (0, false);
        self.writes.change(|writes| {
            writes.asked += 1;
            own = writes.asked;
            begins = !std::mem::replace(&mut writes.is_writing, true);
            false
        });
        if begins {
            let saver = self.clone();
            let writing = async move { while saver.write().await {} };
            self.runtime.spawn("device checkpoint", writing).detach();
        }
        own
    }

    /// Writes once; true where another was asked for meanwhile.
    async fn write(&self) -> bool {
        let before = self.writes.get();
        let (data, generation) = {
            let state = self.state.lock();
            let data = (state.generation > before.saved).then(|| state.data());
            (data, state.generation)
        };
        let outcome = match data {
            Some(data) => self.store(data).await,
            None => Ok(()),
        };
        if let Err(error) = &outcome {
            tracing::error!(error, "allocated devices not saved");
            self.retry();
        }
        let mut goes_on = false;
        self.writes.change(|writes| {
            writes.answered = before.asked;
            match outcome {
                Ok(()) => (writes.saved, writes.failure) = (generation.max(before.saved), None),
                Err(error) => writes.failure = Some(error),
            }
            goes_on = writes.asked > writes.answered;
            writes.is_writing = goes_on;
            true
        });
        goes_on
    }

    /// Tries again after a while: nothing else may change until the next agent, which would go on with what is on the disk.
    fn retry(&self) {
        let mut begins = false;
        self.writes.change(|writes| {
            begins = !std::mem::replace(&mut writes.is_retrying, true);
            false
        });
        if !begins {
            return;
        }
        let saver = self.clone();
        let retrying = async move {
            saver.runtime.sleep(RETRY_AFTER).await;
            saver.writes.change(|writes| {
                writes.is_retrying = false;
                false
            });
            saver.save_soon();
        };
        self.runtime.spawn("device checkpoint", retrying).detach();
    }

    async fn store(&self, data: Data) -> Result<(), String> {
        let folder = self.folder.clone();
        let stored = self.runtime.blocking(move || data.store(&folder)).await;
        let failed = |error: &dyn std::fmt::Display| {
            format!("failed to write checkpoint file \"kubelet_internal_checkpoint\": {error}")
        };
        stored
            .map_err(|error| failed(&error))?
            .map_err(|error| failed(&error))
    }
}
