//! User of a request (apiserver's `user.Info`).

use std::collections::BTreeMap;

/// The identity an authenticator found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserInfo {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// Group of users that proved an identity.
    pub const AUTHENTICATED: &'static str = "system:authenticated";
    /// Group of users that did not.
    pub const UNAUTHENTICATED: &'static str = "system:unauthenticated";
    /// Members may do everything.
    pub const MASTERS: &'static str = "system:masters";

    /// The user of a request that carries no credentials.
    pub fn anonymous() -> Self {
        Self::named("system:anonymous", [Self::UNAUTHENTICATED])
    }

    pub fn named<G: Into<String>>(name: impl Into<String>, groups: impl IntoIterator<Item = G>) -> Self {
        Self {
            name: name.into(),
            groups: groups.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// The identity of a service account, with the three groups upstream gives it.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            Self::AUTHENTICATED.to_owned(),
        ];
        Self::named(format!("system:serviceaccount:{namespace}:{name}"), groups)
    }

    /// The identity of a node's agent.
    pub fn node(name: &str) -> Self {
        Self::named(
            format!("system:node:{name}"),
            ["system:nodes", Self::AUTHENTICATED],
        )
    }

    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// The node's name, when this is a node's agent (`system:node:<name>` in group `system:nodes`).
    pub fn node_name(&self) -> Option<&str> {
        self.name
            .strip_prefix("system:node:")
            .filter(|_| self.in_group("system:nodes"))
    }
}
