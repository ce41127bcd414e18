//! Authentication and authorization.
//!
//! A request carries [`authn::Credentials`]; the authenticators in [`authn`] turn them into a
//! [`UserInfo`](machinery_meta::UserInfo) or refuse them. [`impersonation`] may replace the user. Then the
//! authorizers in [`authz`] decide about [`authz::Attributes`], in order, until one has an opinion: members of
//! `system:masters`, the node authorizer, RBAC. Both sides read objects through
//! [`ObjectReader`](machinery_meta::reader::ObjectReader); roles and bindings are kept compiled, change by change.
//!
//! Files of the operator say which issuers of tokens are trusted ([`authn::structured`]).
//!
//! Beside them: [`pki`] (our own certificate authorities and keys), [`jwt`] and [`token_request`] (service account
//! tokens), [`reviews`] (the logic of the review kinds), [`bootstrap`] (upstream's default roles and bindings).
//!
//! Never here: HTTP responses, `Status` objects, storage. Time is always passed in.

pub mod authn;
pub mod authz;
pub mod bootstrap;
mod configuration;
pub mod impersonation;
pub mod jwt;
pub mod pki;
mod review_webhook;
pub mod reviews;
mod syntax;
pub mod token_request;
mod trusted;

pub use review_webhook::{
    CallMade, KubeconfigError, REVIEW_CALL_TIMEOUT, ReviewCallError, ReviewFlow, ReviewWebhook, share_in,
    webhook_credentials, webhook_remote,
};

#[cfg(test)]
mod testing;

/// Errors beyond these are left out of what is shown.
const MAX_AGGREGATED: usize = 16;

/// Errors as upstream's aggregates write them: each once, several in brackets. `None` of none.
fn aggregated(errors: impl IntoIterator<Item = String>) -> Option<String> {
    let mut shown: Vec<String> = Vec::new();
    for error in errors {
        if shown.len() == MAX_AGGREGATED {
            break;
        }
        if !shown.contains(&error) {
            shown.push(error);
        }
    }
    match shown.len() {
        0 | 1 => shown.pop(),
        _ => Some(format!("[{}]", shown.join(", "))),
    }
}
