//! Custom resources: rows that come and go with their CustomResourceDefinition.
//!
//! [`definition`] compiles a definition into one row per served version; [`strategy`] is their strategy, over the
//! schema; [`columns`] shows them in tables through [`json_path`]. [`controller`] watches definitions, accepts or
//! refuses their names, sets their conditions, puts rows into the registry and, when a definition goes, deletes its
//! objects first. The store, the handlers and discovery treat these rows as built-in ones.
//!
//! Versions differ in `apiVersion` alone, or a webhook converts them ([`version_webhook`](crate::version_webhook)).

mod cleanup;
mod columns;
mod controller;
mod definition;
pub(crate) mod json_path;
mod names;
#[cfg(test)]
mod renewal_tests;
#[cfg(test)]
mod rule_tests;
mod strategy;
#[cfg(test)]
mod taken_tests;

pub(crate) use cleanup::FINALIZER;
pub use controller::start;
