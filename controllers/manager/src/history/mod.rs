//! ControllerRevisions: what a workload looked like before, as `kubectl rollout history|undo` reads it.
//!
//! A revision holds a strategic merge patch that brings the template back. [`revisions`] are upstream's rules (data,
//! hash, name, order, number, surplus) as pure functions; [`History`] claims, makes, numbers and deletes.
//!
//! A revision that was made or numbered is not awaited: its name is decided by its data, so that making it again finds
//! it, and its event brings the owner's next round. Never: changes the data of a revision, decides whose pods stay.

mod control;
pub mod revisions;
#[cfg(test)]
mod tests;
mod view;

pub use control::{Creation, History, NewRevision};
pub use view::{RevisionRef, RevisionView};
