//! Flows of reviews, which have a share of the webhook together, and the places of their reviews.

use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::HashMap;

/// Places of reviews under way, with those that wait for their turn; and of one flow, which has no more than it leaves free.
const MAX_WAITING: usize = 1_024;
pub(super) const MAX_WAITING_OF_FLOW: usize = 128;
/// Bytes of a review for which it takes another place, and the most places of one: four of the largest are under way for a flow.
pub(super) const BYTES_OF_PLACE: usize = 8 << 10;
const MAX_PLACES: usize = MAX_WAITING_OF_FLOW / 4;

/// Reviews that have a share together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReviewFlow<'a> {
    pub(super) name: &'a str,
    pub(super) is_anonymous: bool,
}

impl<'a> ReviewFlow<'a> {
    /// Reviews that a user causes who is known.
    pub fn of_user(name: &'a str) -> Self {
        Self {
            name,
            is_anonymous: false,
        }
    }

    /// Reviews of credentials that nothing is known of, by the client that shows them.
    pub fn of_anonymous(client: &'a str) -> Self {
        Self {
            name: client,
            is_anonymous: true,
        }
    }
}

/// The namespace of the accounts that the control plane runs as.
const SYSTEM: &str = "kube-system";

/// The user, or all service accounts of a namespace: a tenant that may make one of them makes a thousand.
pub(crate) fn share_of(user: &str) -> &str {
    let account = user.strip_prefix("system:serviceaccount:");
    match account.and_then(|rest| rest.split_once(':')) {
        Some((namespace, name)) if namespace != SYSTEM => &user[..user.len() - name.len() - 1],
        _ => user,
    }
}

/// The share of a user for what concerns a namespace. Accounts of the control plane work for all namespaces, so that each has one in
/// each of them: a tenant's objects take none of the share for others'.
pub fn share_in<'a>(user: &'a str, namespace: &str) -> Cow<'a, str> {
    let account = user.strip_prefix("system:serviceaccount:");
    match account.and_then(|rest| rest.split_once(':')) {
        Some((SYSTEM, _)) if !namespace.is_empty() => format!("{user} in {namespace}").into(),
        _ => share_of(user).into(),
    }
}

/// Places of reviews under way, by flow.
#[derive(Debug, Default)]
pub(super) struct Waiting(pub(super) Mutex<HashMap<String, usize>>);

/// Places of one review.
pub(super) struct Place<'a> {
    waiting: &'a Waiting,
    flow: &'a str,
    places: usize,
}

impl Waiting {
    /// The places of a review with so many bytes; `None` where there are not so many, or not for the flow.
    pub(super) fn enter<'a>(&'a self, flow: &'a str, bytes: usize) -> Option<Place<'a>> {
        let places = (1 + bytes / BYTES_OF_PLACE).min(MAX_PLACES);
        let mut all = self.0.lock();
        let own = all.get(flow).copied().unwrap_or_default();
        let free = MAX_WAITING.saturating_sub(all.values().sum());
        if own + places > MAX_WAITING_OF_FLOW.min(free) {
            return None;
        }
        all.insert(flow.to_owned(), own + places);
        Some(Place {
            waiting: self,
            flow,
            places,
        })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut all = self.waiting.0.lock();
        match all.get_mut(self.flow) {
            Some(own) if *own > self.places => *own -= self.places,
            _ => drop(all.remove(self.flow)),
        }
    }
}
