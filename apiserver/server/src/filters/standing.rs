//! Whose requests keep a part of the server when others crowd it: the simplest form of upstream's priority levels. Nodes that
//! cannot renew their leases are given up, and a cluster whose controllers stand still does not heal.

use crate::exchange::Exchange;
use machinery_meta::UserInfo;

/// Groups and users that upstream's flow schemas give a level above `workload-low`, nodes aside.
const SYSTEM_GROUP: &str = "system:serviceaccounts:kube-system";
const SYSTEM_USERS: [&str; 2] = ["system:kube-controller-manager", "system:kube-scheduler"];

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Those who repair the cluster.
    Repair,
    /// Those who make it work: its nodes, and its controllers in this process or outside.
    System,
    Ordinary,
}

impl Standing {
    pub(crate) fn of(exchange: &Exchange) -> Self {
        let is_in_process = exchange.peer.identity.is_some();
        match Self::of_user(&exchange.context.user) {
            Self::Ordinary if is_in_process => Self::System,
            standing => standing,
        }
    }

    fn of_user(user: &UserInfo) -> Self {
        if user.in_group(UserInfo::MASTERS) {
            Self::Repair
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
    fn a_standing_is_of_groups_and_names() {
        let named = |name: &str, group: &str| Standing::of_user(&UserInfo::named(name, [group]));
        assert_eq!(named("anna", UserInfo::MASTERS), Standing::Repair);
        assert_eq!(
            named("system:kube-scheduler", UserInfo::AUTHENTICATED),
            Standing::System
        );
        // A node's name without its group was given by somebody else's authority.
        assert_eq!(
            named("system:node:a", UserInfo::AUTHENTICATED),
            Standing::Ordinary
        );
        assert_eq!(Standing::of_user(&UserInfo::node("a")), Standing::System);
        let account = |namespace| Standing::of_user(&UserInfo::service_account(namespace, "default"));
        assert_eq!(account("kube-system"), Standing::System);
        assert_eq!(account("evil"), Standing::Ordinary);
        assert_eq!(Standing::of_user(&UserInfo::anonymous()), Standing::Ordinary);
    }
}
