//! Writers with an account beside nodes, and the names of accounts.

use crate::engine::user_class::UserClass;
use machinery_meta::{GroupResource, UserInfo};
use std::borrow::Cow;

/// Bearers of bootstrap tokens.
const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// Stands before the name of a node in its user's.
const NODE: &str = "system:node:";
/// Stands before the names of users; no node has a space in its name.
const USER: &str = "user ";

/// The account of a user's writes to a resource: that of a node, of the bearer of a bootstrap token, or of a requester of
/// certificates. Requests have no namespace whose share would bound them, and undecided ones stay for a day.
pub(super) fn of<'a>(user: &'a UserInfo, resource: &GroupResource) -> Option<Cow<'a, str>> {
    if let Some(node) = user.node_name() {
        return Some(Cow::Borrowed(node));
    }
    let requests =
        resource.group == "certificates.k8s.io" && resource.resource == "certificatesigningrequests";
    let is_bounded = user.in_group(BOOTSTRAPPERS) || (requests && UserClass::of(user) == UserClass::Ordinary);
    is_bounded.then(|| format!("{USER}{}", user.name).into())
}

/// The account of the user of a name, be it a node.
pub(super) fn of_user(name: &str) -> Cow<'_, str> {
    match name.strip_prefix(NODE) {
        Some(node) => Cow::Borrowed(node),
        None => Cow::Owned(format!("{USER}{name}")),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_requests_of_ordinary_users_are_counted() {
        let requests = GroupResource::new("certificates.k8s.io", "certificatesigningrequests");
        let maps = GroupResource::new("", "configmaps");
        let anna = UserInfo::named("anna", [UserInfo::AUTHENTICATED]);
        assert_eq!(of(&anna, &requests).as_deref(), Some("user anna"));
        assert_eq!(of(&anna, &maps), None);
        let admin = UserInfo::named("anna", [UserInfo::MASTERS]);
        assert_eq!(of(&admin, &requests), None);
        let bearer = UserInfo::named("system:bootstrap:a", [BOOTSTRAPPERS]);
        assert_eq!(of(&bearer, &maps).as_deref(), Some("user system:bootstrap:a"));
        let node = UserInfo::node("n1");
        assert_eq!(of(&node, &maps).as_deref(), Some("n1"));
        assert_eq!(
            (of_user(&node.name), of_user("anna")),
            ("n1".into(), "user anna".into())
        );
        assert!(is_node("n1") && !is_node("user anna"));
    }
}
