//! Writers with an account beside nodes, and the names of accounts.

use crate::engine::user_class::UserClass;
use machinery_meta::{GroupResource, UserInfo};
use std::borrow::Cow;

/// Bearers of bootstrap tokens.
const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// Stands before the names of users; no node has a space in its name.
const USER: &str = "user ";

/// The account of a user's writes to a resource: that of a node, of the bearer of a bootstrap token, or of whoever requests a
/// certificate. Requests have no namespace whose share would bound them, and stay for a day where nobody decides.
pub(super) fn of<'a>(user: &'a UserInfo, resource: &GroupResource) -> Option<Cow<'a, str>> {
    if let Some(node) = user.node_name() {
        return Some(Cow::Borrowed(node));
    }
    let requests =
        resource.group == "certificates.k8s.io" && resource.resource == "certificatesigningrequests";
    let is_bounded = user.in_group(BOOTSTRAPPERS) || (requests && UserClass::of(user) == UserClass::Ordinary);
    is_bounded.then(|| format!("{USER}{}", user.name).into())
}

/// Name of the user that has an account.
pub(super) fn user(account: &str) -> Cow<'_, str> {
    match account.strip_prefix(USER) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(UserInfo::node(account).name),
    }
}

/// Reports whether an account is a node's.
pub(super) fn is_node(account: &str) -> bool {
    !account.starts_with(USER)
}

/// An account in a message.
pub(super) fn shown(account: &str) -> String {
    match account.strip_prefix(USER) {
        Some(name) => format!("user {name:?}"),
        None => format!("node {account:?}"),
    }
}
