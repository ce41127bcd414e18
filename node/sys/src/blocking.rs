//! Work that may block for ever: a path leads to a dead file system, or the kernel waits for one.
//!
//! It runs on a thread for blocking work, one piece at a time for each owner, and its caller waits no longer than a
//! deadline. A piece that is stuck keeps its thread and its owner's lane; it delays no other owner.

use std::sync::Arc;
use std::time::Duration;

use machinery_runtime::Runtime;
use tokio::sync::Mutex;

/// Upstream's time for setting up a pod's volumes, less what it waits in between.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// A piece of blocking work that gave no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockingError {
    /// It has not ended in time, and goes on.
    #[error("{action} has not ended within {} seconds", deadline.as_secs())]
    Stuck {
        /// Operation.
        action: &'static str,
        /// The time it had.
        deadline: Duration,
    },
    /// An earlier piece has not ended yet.
    #[error("{action} waits for an earlier operation that is stuck")]
    Occupied {
        /// Operation that was not begun.
        action: &'static str,
    },
    /// The agent ends, or the work panicked.
    #[error("{action} was ended")]
    Ended {
        /// Operation.
        action: &'static str,
    },
}

/// The blocking work of one owner, one piece at a time. Cloning gives another handle of the same lane.
#[derive(Debug, Clone)]
pub struct BlockingLane {
    runtime: Runtime,
    deadline: Duration,
    occupied: Arc<Mutex<()>>,
}

impl BlockingLane {
    /// A lane in which a piece has [`DEADLINE`].
    pub fn new(runtime: Runtime) -> Self {
        Self::with_deadline(runtime, DEADLINE)
    }

    /// A lane in which a piece has this long.
    pub fn with_deadline(runtime: Runtime, deadline: Duration) -> Self {
        Self {
            runtime,
            deadline,
            occupied: Arc::default(),
        }
    }

    /// Runs a piece of work and waits for it. A dropped caller leaves it to end by itself; the next piece waits for it.
    pub async fn run<T, F>(&self, action: &'static str, work: F) -> Result<T, BlockingError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let deadline = self.deadline;
        let turn = self.occupied.clone().lock_owned();
        let turn = self.runtime.timeout(deadline, turn).await;
        let turn = turn.map_err(|_| BlockingError::Occupied { action })?;
        let working = self.runtime.blocking(move || {
            let result = work();
            drop(turn);
            // Inside of the work: a caller that timed out or was dropped does not free the lane while the
            // kernel still holds the thread.
            result
        });
        match self.runtime.timeout(deadline, working).await {
            Ok(result) => result.map_err(|_| BlockingError::Ended { action }),
            Err(_) => Err(BlockingError::Stuck { action, deadline }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn blocking_work_that_is_stuck_holds_its_own_lane_alone() {
        let runtime = Runtime::real();
        let short = Duration::from_millis(20);
        let lane = BlockingLane::with_deadline(runtime.clone(), short);
        let (release, wait) = mpsc::channel::<()>();
        let stuck = lane.run("reading", move || wait.recv().is_ok()).await;
        let action = "reading";
        assert_eq!(
            stuck,
            Err(BlockingError::Stuck {
                action,
                deadline: short
            })
        );
        let next = lane.run("writing", || 1).await;
        assert_eq!(next, Err(BlockingError::Occupied { action: "writing" }));
        let other = BlockingLane::new(runtime.clone());
        assert_eq!(other.run("reading", || 2).await, Ok(2));
        release.send(()).unwrap();
        let patient = BlockingLane {
            deadline: DEADLINE,
            ..lane
        };
        assert_eq!(patient.run("writing", || 3).await, Ok(3), "once it has ended");
    }
}
