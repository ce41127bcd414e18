//! Identities of the components, with upstream's names, which RBAC's bootstrap policy binds.

use machinery_meta::UserInfo;

/// Reads for all controllers.
pub const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
/// Places pods.
pub const SCHEDULER: &str = "system:kube-scheduler";

/// The user who may do everything.
pub fn admin() -> UserInfo {
    UserInfo::named("kubernetes-admin", [UserInfo::MASTERS, UserInfo::AUTHENTICATED])
}

/// The identity behind the shared informers.
pub fn controller_manager() -> UserInfo {
    UserInfo::named(CONTROLLER_MANAGER, [UserInfo::AUTHENTICATED])
}

/// The scheduler.
pub fn scheduler() -> UserInfo {
    UserInfo::named(SCHEDULER, [UserInfo::AUTHENTICATED])
}

/// A controller, by its service account.
pub fn controller(service_account: &str) -> UserInfo {
    UserInfo::service_account("kube-system", service_account)
}
