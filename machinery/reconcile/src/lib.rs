//! Base of every controller. Its rules:
//!
//! - A key says which object to look at, never what happened to it; the same key is worked on by one worker at a time.
//! - A reconcile reads the caches, plans purely, acts, and writes status only if it differs.
//! - An error means a retry with backoff. Waiting is not an error but [`Outcome::RequeueAfter`].
//! - Writes that were sent and not seen yet are kept in [`Expectations`], so that none is sent twice.
//! - The last write of each object is kept in [`WriteTracker`], so that no reconcile acts on a stale cache.
//! - Nothing starts before its caches are synced, everything is bounded, and the clock is the `Runtime`'s.

pub mod driver;
pub mod expectations;
pub mod leader_election;
pub mod names;
pub mod outcome;
pub mod queue;
mod running;
pub mod stats;
pub mod write_tracker;

pub use driver::{Controller, QueueKey, Reconciler};
pub use expectations::Expectations;
pub use leader_election::{ElectionConfig, Elector, Leadership};
pub use machinery_client::events::{EventRecorder, EventType, ObjectReference};
pub use outcome::{Outcome, ReconcileError};
pub use queue::WorkQueue;
pub use stats::{ControllerStats, StatsSnapshot};
pub use write_tracker::WriteTracker;
