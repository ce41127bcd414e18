//! Classes of users where memory, connections and time are scarce.

use machinery_meta::UserInfo;

/// The service accounts that the control plane itself runs as.
const SYSTEM_GROUP: &str = "system:serviceaccounts:kube-system";
const SYSTEM_USERS: [&str; 2] = ["system:kube-controller-manager", "system:kube-scheduler"];
/// Namespaces whose objects are the system's own. `default` is open to tenants.
pub const SYSTEM_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// A user's class. Nodes that cannot renew their leases are lost and a cluster whose controllers stand still does not heal,
/// so that what is scarce is never all ordinary users'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserClass {
    /// `system:masters`, for repairs of the cluster.
    Administrator,
    /// Nodes, controllers, the scheduler.
    System,
    Ordinary,
}

impl UserClass {
    pub fn of(user: &UserInfo) -> Self {
        if user.in_group(UserInfo::MASTERS) {
            Self::Administrator
        } else if user.node_name().is_some()
            || user.in_group(SYSTEM_GROUP)
            || SYSTEM_USERS.contains(&user.name.as_str())
        {
            Self::System
        } else {
            Self::Ordinary
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_class_is_of_groups_and_names() {
        let named = |name: &str, group: &str| UserClass::of(&UserInfo::named(name, [group]));
        assert_eq!(named("anna", UserInfo::MASTERS), UserClass::Administrator);
        assert_eq!(
            named("system:kube-scheduler", UserInfo::AUTHENTICATED),
            UserClass::System
        );
        // A node's name without its group was given by another authority.
        assert_eq!(
            named("system:node:a", UserInfo::AUTHENTICATED),
            UserClass::Ordinary
        );
        assert_eq!(UserClass::of(&UserInfo::node("a")), UserClass::System);
        let account = |namespace| UserClass::of(&UserInfo::service_account(namespace, "default"));
        assert_eq!(account("kube-system"), UserClass::System);
        assert_eq!(account("evil"), UserClass::Ordinary);
        assert_eq!(UserClass::of(&UserInfo::anonymous()), UserClass::Ordinary);
    }
}
