//! Writing of checkpoints: of each, one task at a time, which goes on where its callers leave. [`file`] is the form of their
//! files.

pub(crate) mod file;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use machinery_runtime::{Runtime, Watched};
use parking_lot::Mutex;

/// Pause after a failed write, if no other is requested before.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(30);

/// A state that outlives the agent.
pub(crate) trait Checkpointed: Send + 'static {
    /// The part that is written.
    type Data: Send + 'static;

    /// Name of the checkpoint's file.
    const FILE: &'static str;

    /// Number of changes of what is written; 0 needs no writing.
    fn generation(&self) -> u64;

    /// Everything that is written, as it is now.
    fn data(&self) -> Self::Data;

    /// Writes it into a folder. Blocks.
    ///
    /// # Errors
    /// It is too large, or cannot be written.
    fn store(data: Self::Data, folder: &Path) -> io::Result<()>;
}

/// The writer of a checkpoint. Clones are the same one.
pub(crate) struct Saver<S> {
    runtime: Runtime,
    folder: PathBuf,
    state: Arc<Mutex<S>>,
    writes: Arc<Watched<Writes>>,
}

impl<S> Clone for Saver<S> {
    fn clone(&self) -> Self {
        Self {
            runtime: self.runtime.clone(),
            folder: self.folder.clone(),
            state: Arc::clone(&self.state),
            writes: Arc::clone(&self.writes),
        }
    }
}

impl<S> std::fmt::Debug for Saver<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Saver")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// Writes so far.
#[derive(Debug, Clone, Default)]
struct Writes {
    /// Number of times that a save was requested.
    requested: u64,
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

impl<S: Checkpointed> Saver<S> {
    /// A writer into this folder.
    pub(crate) fn new(runtime: Runtime, folder: PathBuf, state: Arc<Mutex<S>>) -> Self {
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
    pub(crate) async fn save(&self) -> Result<(), String> {
        let wanted = self.state.lock().generation();
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
    pub(crate) fn save_soon(&self) -> u64 {
        let (mut own, mut begins) = (0, false);
        self.writes.change(|writes| {
            writes.requested += 1;
            own = writes.requested;
            begins = !std::mem::replace(&mut writes.is_writing, true);
            false
        });
        if begins {
            let saver = self.clone();
            let writing = async move { while saver.write().await {} };
            self.runtime.spawn("checkpoint", writing).detach();
        }
        own
    }

    /// Writes once; true where another was requested meanwhile.
    async fn write(&self) -> bool {
        let before = self.writes.get();
        let (data, generation) = {
            let state = self.state.lock();
            let data = (state.generation() > before.saved).then(|| state.data());
            (data, state.generation())
        };
        let outcome = match data {
            Some(data) => self.store(data).await,
            None => Ok(()),
        };
        if let Err(error) = &outcome {
            tracing::error!(error, "checkpoint not saved");
            self.retry();
        }
        let mut goes_on = false;
        self.writes.change(|writes| {
            writes.answered = before.requested;
            match outcome {
                Ok(()) => (writes.saved, writes.failure) = (generation.max(before.saved), None),
                Err(error) => writes.failure = Some(error),
            }
            goes_on = writes.requested > writes.answered;
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
        self.runtime.spawn("checkpoint", retrying).detach();
    }

    async fn store(&self, data: S::Data) -> Result<(), String> {
        let folder = self.folder.clone();
        let stored = self.runtime.blocking(move || S::store(data, &folder)).await;
        let failed =
            |error: &dyn std::fmt::Display| format!("failed to write checkpoint file {:?}: {error}", S::FILE);
        stored
            .map_err(|error| failed(&error))?
            .map_err(|error| failed(&error))
    }
}
