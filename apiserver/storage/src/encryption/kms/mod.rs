//! Plugins of key management services (KMS v2), which encrypt the keys that data is encrypted with.
//!
//! [`plugin`] has the seed that values are written with, asks its plugin each minute how it is, and takes another seed when that
//! names another key; [`deks`] keeps the keys that were decrypted; [`envelope`] is the stored form, upstream's byte for byte;
//! [`service`] carries the calls of [`api`] over a unix socket; [`measures`] counts.
//!
//! A write needs no call, a read only for a key that was never seen. A plugin that hangs delays a read at the start, or a change of
//! the configuration, by its timeout; nothing else waits for it.
//!
//! Never: a seed, a key or a value in an error, a log line or a `Debug`.

mod api;
mod deks;
mod endpoint;
mod envelope;
mod measures;
mod plugin;
mod service;

pub(super) use endpoint::socket;
pub use measures::{CALL_BOUNDS, CallDurations, KeyUse, KmsCounts};
pub(super) use plugin::{Observers, Plugin, PluginConfig};
