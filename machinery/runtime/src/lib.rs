//! The one handle for everything that makes two runs differ.
//!
//! A component is given a [`Runtime`] and asks it for the time, for sleep, for randomness and uuids, for tasks and
//! blocking work, for its disk. [`Runtime::real`] answers from the machine; [`Simulation`] answers from a seed: one
//! thread, paused time, seeded order of tasks, a disk that loses what was not synced, and the same seed gives the
//! same [`Simulation::trace_hash`].
//!
//! Every task belongs to a [`Scope`]. Cancelling or dropping a scope ends every task in it and in its children;
//! [`Scope::stopped`] waits until none is left, [`Scope::drained`] lets them finish first. Panics of tasks and of
//! blocking work are caught, logged and counted, reported to their scopes ([`Scope::panicked`]), and fail the simulation that
//! saw them. [`Runtime::supervise`] begins a component again that panicked.
//!
//! Work that takes long is bounded and fair: a future within [`Runtime::by_weight`] that becomes heavy goes on in
//! turn with that of others, on threads that give way to those of requests.
//!
//! [`LingeringClose`] closes a connection so that its client can read the last answer; every listener of ours uses it, and [`keep_alive`]. [`ConnectionSlots`] bounds
//! connections by address, [`AnswerRooms`] what clients of this process keep of others' answers, [`LogThrottle`] lines of the log
//! about one thing.
//!
//! [`metrics`] holds what components count, for the `/metrics` page of their server.
//!
//! This crate is the only place that may call `tokio::spawn`, `Instant::now` and their kin; clippy says so.

mod answer_room;
mod background;
mod components;
mod connection_slots;
pub mod disk;
mod heavy_work;
mod keepalive;
mod linger;
mod log_throttle;
pub mod metrics;
mod runtime;
mod scope;
mod silence;
mod simulation;
mod trace;
mod watched;
mod weight;

pub use answer_room::{AnswerRoom, AnswerRooms, HeldRoom, WatchPlace};
pub use background::Background;
pub use components::{Components, Election};
pub use connection_slots::{ConnectionSlot, ConnectionSlots, client_of};
pub use disk::{
    Disk, DiskCall, DiskFile, DiskLock, MemDisk, ObservedDisk, OpenMode, RealDisk, SimDisk, Space,
};
pub use heavy_work::{HeavyFigures, HeavyFlow};
pub use keepalive::{KeepAlive, keep_alive};
pub use linger::{LingeringClose, UnreadFlag};
pub use log_throttle::LogThrottle;
pub use runtime::{Elapsed, Runtime, WorkerStep};
pub use scope::{Scope, TaskEnded, TaskHandle};
pub use simulation::{Simulation, seeds};
pub use tokio_util::sync::CancellationToken;
pub use watched::Watched;
pub use weight::{ByWeight, Weight};
