//! Figures of issuers, which the server publishes.

use std::fmt;

/// Takes figures of tokens and of keys, by issuer.
pub trait JwtObserver: Send + Sync + fmt::Debug {
    /// A token of an issuer was looked at, for so many seconds.
    fn authenticated(&self, issuer: &str, succeeded: bool, seconds: f64);
    /// Keys of an issuer were fetched, or could not be.
    fn fetched(&self, issuer: &str, keys: Option<&[u8]>);
    /// An issuer is trusted no more.
    fn removed(&self, issuer: &str);
}
