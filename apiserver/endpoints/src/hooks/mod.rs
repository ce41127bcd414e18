//! Questions that other parts of the server answer, a trait for each: [`reviews`], [`tokens`], [`rights`] beyond the request's
//! own, [`connections`], [`parts`] of the control plane, and [`observers`] of what is sent.
//!
//! Methods that are not filled answer that the part is missing; a right has no such answer.

mod connections;
mod observers;
mod parts;
mod reviews;
mod rights;
mod tokens;

pub use connections::{ConnectRequest, Connections};
pub use observers::{Observers, WatchEvents};
pub use parts::{Component, Parts};
pub use reviews::Reviews;
pub use rights::Rights;
pub use tokens::Tokens;

/// All of them, filled by the server.
pub trait Hooks: Connections + Observers + Parts + Reviews + Rights + Tokens {}

impl<T: Connections + Observers + Parts + Reviews + Rights + Tokens> Hooks for T {}
