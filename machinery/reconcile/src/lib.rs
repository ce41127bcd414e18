//! What every controller stands on. The laws:
//!
//! - A key says which object to look at, never what happened to it; the same key is worked on by one worker at a time.
//! - A reconciler reads what is, plans purely, acts, and writes status only where it differs.
//! - An error means: again, after a growing wait. Waiting is not an error but [`Outcome::RequeueAfter`].
//! - What was asked for but not seen yet is remembered in [`Expectations`], so that nothing is asked for twice.
//! - What it wrote last of the object it looks at is remembered in [`WriteTracker`], so that no look is at what was before.
//! - Nothing starts before its caches are synced, everything is bounded, and the clock is the `Runtime`'s.

pub mod driver;
pub mod events;
pub mod expectations;
pub mod leader_election;
pub mod names;
pub mod queue;
pub mod stats;
pub mod write_tracker;

pub use driver::{Controller, Outcome, ReconcileError, Reconciler};
pub use events::{EventRecorder, EventType, ObjectReference};
pub use expectations::Expectations;
pub use leader_election::{ElectionConfig, Elector, Leadership};
pub use queue::WorkQueue;
pub use stats::{ControllerStats, StatsSnapshot};
pub use write_tracker::WriteTracker;
