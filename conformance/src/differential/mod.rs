//! The same requests to two servers, and their answers compared.
//!
//! A [`case`] is a list of steps, read from `conformance/cases`; it runs in a namespace of its own on both servers.
//! Each step's answers go through the [`mask`], which replaces what cannot be the same (times, uids, revisions, addresses
//! from a range) by placeholders, equal values by equal ones; then status code, headers and body must be equal
//! ([`compare`]). [`known`] lists the cases that may differ, with the reason: it only shrinks.

pub mod case;
pub mod client;
pub mod compare;
pub mod known;
pub mod mask;
pub mod run;
pub(crate) mod template;
