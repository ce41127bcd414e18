//! Acting as another: the `Impersonate-*` headers, the rights that they need, and the resulting user.
//!
//! There are five [`modes`]. Four are constrained: the user needs `impersonate:MODE` on whom they act as, and
//! `impersonate-on:MODE:VERB` on what they do as them. The fifth is the old verb `impersonate`, which allows everything
//! that the other user may do. They are tried in upstream's order, the one that served a user last first.

mod extra;
mod headers;
mod modes;

pub use headers::strip;
pub(crate) use headers::unescape;

use crate::authz::{Attributes, AuthorizerChain, Busy, Forbidden};
use http::HeaderMap;
use machinery_meta::UserInfo;
use modes::{MODES, Refusal};
use parking_lot::Mutex;
use ring::digest;
use std::collections::HashMap;

/// Users whose last mode is kept. Above this number all are forgotten, which changes only the order of attempts.
const MAX_REMEMBERED: usize = 10_000;

/// The reason for which a request is refused instead of going on as another user.
#[derive(Debug, thiserror::Error)]
pub enum ImpersonationError {
    #[error("requested {0} without impersonating a user name")]
    WithoutUser(String),
    #[error("too many impersonation headers")]
    TooMany,
    #[error("an impersonation header is no UTF-8")]
    NotText,
    #[error("{}", .0.message())]
    Forbidden(Box<Forbidden>),
    /// No authorizer has decided: the client is to come again.
    #[error(transparent)]
    Busy(#[from] Busy),
}

/// The user a request goes on as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impersonated {
    pub user: UserInfo,
    /// The verb that allowed it, where the mode is constrained; for the audit log.
    pub constraint: Option<&'static str>,
}

/// See the module. Shared by all requests of a server.
#[derive(Debug, Default)]
pub struct Impersonation {
    /// The mode that served a user last, by a digest of the name.
    last: Mutex<HashMap<[u8; 32], usize>>,
}

fn key(user: &UserInfo) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, user.name.as_bytes()).as_ref());
    out
}

impl Impersonation {
    /// The user to go on as, when the headers request one and the user of `request` may act as it there.
    ///
    /// # Errors
    /// [`ImpersonationError::Forbidden`] with the refusal of the first mode that applies, as upstream answers;
    /// [`ImpersonationError::Busy`] where none is allowed and the authorizers have not decided about one.
    pub async fn impersonate(
        &self,
        request: &Attributes<'_>,
        headers: &HeaderMap,
        chain: &AuthorizerChain,
    ) -> Result<Option<Impersonated>, ImpersonationError> {
        let Some(wanted) = headers::wanted(headers)? else {
            return Ok(None);
        };
        let key = key(request.user);
        let last = self.last.lock().get(&key).copied();
        let order = last
            .into_iter()
            .chain((0..MODES.len()).filter(|at| Some(*at) != last));
        let (mut refused, mut is_busy) = (None, false);
        for at in order {
            match modes::check(&MODES[at], request, &wanted, chain).await {
                Ok(Some(found)) => {
                    self.remember(key, at);
                    return Ok(Some(found));
                }
                Ok(None) => {}
                Err(Refusal::Forbidden(forbidden)) => {
                    refused.get_or_insert(forbidden);
                }
                // A later mode may be allowed without the authorizer that has not decided.
                Err(Refusal::Busy) => is_busy = true,
            }
        }
        if is_busy {
            return Err(Busy.into());
        }
        // The old mode applies to every user, so there is a refusal.
        Err(refused.map_or(ImpersonationError::TooMany, |forbidden| {
            ImpersonationError::Forbidden(Box::new(forbidden))
        }))
    }

    fn remember(&self, key: [u8; 32], mode: usize) {
        let mut last = self.last.lock();
        if last.len() >= MAX_REMEMBERED && !last.contains_key(&key) {
            last.clear();
        }
        last.insert(key, mode);
    }
}

#[cfg(test)]
mod tests;
