//! Nobody grants what they do not hold (upstream's `policybased` stores).

use super::rules::{PolicyRule, uncovered};
use super::{RbacAuthorizer, RoleRef};
use crate::authz::attributes::{ResourceTarget, Target};
use crate::authz::{Attributes, AuthorizerChain};
use machinery_meta::UserInfo;
use machinery_meta::reader::ReadError;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Whether a role or binding may be written as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantCheck {
    Allowed,
    /// The words behind `… is forbidden: `.
    Refused(String),
    /// The role a binding names does not exist, and only one who may bind it anyway can name it.
    RoleMissing(RoleRef),
}

/// The role or binding about to be written.
#[derive(Debug, Clone, Copy)]
pub struct GrantTarget<'a> {
    /// `roles`, `clusterroles`, `rolebindings`, `clusterrolebindings`.
    pub resource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

/// May `user` write a role with these rules?
pub async fn may_hold_role(
    rbac: &RbacAuthorizer,
    chain: &AuthorizerChain,
    user: &UserInfo,
    target: GrantTarget<'_>,
    rules: &[PolicyRule],
) -> Result<GrantCheck, ReadError> {
    if user.in_group(UserInfo::MASTERS) || may(chain, user, "escalate", target).await {
        return Ok(GrantCheck::Allowed);
    }
    confirm(rbac, user, target.namespace, rules).await
}

/// May `user` bind this role?
pub async fn may_bind(
    rbac: &RbacAuthorizer,
    chain: &AuthorizerChain,
    user: &UserInfo,
    namespace: &str,
    role: &RoleRef,
) -> Result<GrantCheck, ReadError> {
    let resource = if role.kind == "ClusterRole" {
        "clusterroles"
    } else {
        "roles"
    };
    let target = GrantTarget {
        resource,
        namespace,
        name: &role.name,
    };
    if user.in_group(UserInfo::MASTERS) || may(chain, user, "bind", target).await {
        return Ok(GrantCheck::Allowed);
    }
    let index = rbac.index().await?;
    match index.rules(role, namespace) {
        None => Ok(GrantCheck::RoleMissing(role.clone())),
        Some(rules) => confirm(rbac, user, namespace, rules).await,
    }
}

async fn may(chain: &AuthorizerChain, user: &UserInfo, verb: &str, target: GrantTarget<'_>) -> bool {
    let resource = ResourceTarget {
        group: GROUP,
        version: "*",
        resource: target.resource,
        namespace: target.namespace,
        name: target.name,
        ..ResourceTarget::default()
    };
    chain
        .authorize(&Attributes {
            user,
            verb,
            target: Target::Resource(resource),
        })
        .await
        .is_allowed()
}

async fn confirm(
    rbac: &RbacAuthorizer,
    user: &UserInfo,
    namespace: &str,
    rules: &[PolicyRule],
) -> Result<GrantCheck, ReadError> {
    let held = rbac.effective_rules(user, namespace).await?;
    let missing = uncovered(&held, rules);
    if missing.is_empty() {
        return Ok(GrantCheck::Allowed);
    }
    let mut shown: Vec<String> = missing.iter().map(compact).collect();
    shown.sort_unstable();
    Ok(GrantCheck::Refused(format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        shown.join("\n")
    )))
}

fn quoted(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|one| format!("{one:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

/// `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
fn compact(rule: &PolicyRule) -> String {
    let parts = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("ResourceNames", &rule.resource_names),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("Verbs", &rule.verbs),
    ];
    let shown: Vec<String> = parts
        .iter()
        .filter(|(_, values)| !values.is_empty())
        .map(|(name, values)| format!("{name}:{}", quoted(values)))
        .collect();
    format!("{{{}}}", shown.join(", "))
}
