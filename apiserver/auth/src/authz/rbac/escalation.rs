//! Escalation: no user grants rules that they do not hold (upstream's `policybased` stores).
//!
//! [`check_role`] and [`check_binding`] decide, from the change and the rules its author holds; [`check`] asks them with
//! what the authorizers and the roles of the moment say.

use super::coverage::{self, Held, Missing};
use super::rules::{PolicyRule, full_authority};
use super::{RbacAuthorizer, RoleRef};
use crate::authz::attributes::{AttributesTarget, ResourceTarget};
use crate::authz::{Attributes, AuthorizerChain, Busy};
use machinery_meta::UserInfo;
use machinery_schema::{Kind, Ref, Tree};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Members of the metadata that garbage collection and the server itself write; a change of these alone grants nothing.
const GARBAGE_COLLECTION_FIELDS: [&str; 5] = [
    "ownerReferences",
    "finalizers",
    "selfLink",
    "managedFields",
    "resourceVersion",
];

/// The verdict on writing a role or binding as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantCheck {
    Allowed,
    /// The words behind `… is forbidden: `.
    Refused(String),
    /// The role a binding names does not exist, and only a user with the verb `bind` can name it.
    RoleMissing(RoleRef),
}

/// The role or binding about to be written.
#[derive(Debug, Clone, Copy)]
pub struct GrantTarget<'a> {
    /// `roles`, `clusterroles`, `rolebindings`, `clusterrolebindings`.
    pub resource: &'a str,
    pub namespace: &'a str,
    /// The name in the request's address: empty on create.
    pub name: &'a str,
}

/// A role or binding as stored (absent on create) and as it is about to be stored.
#[derive(Debug, Clone, Copy)]
pub struct GrantChange<'a> {
    pub old: Option<&'a Tree>,
    pub new: &'a Tree,
}

/// The reason for which a change grants more than its author holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Escalation {
    /// Rules the author lacks.
    Missing(Missing),
    /// An aggregation rule may gather anything, and its author does not hold everything.
    Aggregates,
    /// The rules combine to more than can be compared with what the author holds.
    TooComplex,
    /// Rules that cannot be read may grant anything.
    Unreadable(String),
}

impl GrantChange<'_> {
    /// Reports whether the change is limited to the fields that garbage collection needs to delete the object later.
    pub fn is_only_garbage_collection(&self) -> bool {
        self.old.is_some_and(|old| compared(old) == compared(self.new))
    }
}

/// The object without the members that do not count; empty members are as good as absent ones.
fn compared(object: &Tree) -> Tree {
    let mut object = object.clone();
    for member in GARBAGE_COLLECTION_FIELDS {
        object.remove(&["metadata", member]);
    }
    for path in [
        &["metadata", "labels"][..],
        &["metadata", "annotations"],
        &["rules"],
        &["subjects"],
        &["aggregationRule"],
    ] {
        if object.at(path).is_some_and(is_nothing) {
            object.remove(path);
        }
    }
    object
}

fn is_nothing(value: Ref<'_>) -> bool {
    match value.kind() {
        Kind::Null => true,
        Kind::List | Kind::Map => value.is_empty(),
        _ => false,
    }
}

/// Checks that a user who holds these rules may write this role.
pub fn check_role(change: GrantChange<'_>, held: &Held) -> Result<(), Escalation> {
    if change.is_only_garbage_collection() {
        return Ok(());
    }
    let rules = rules_of(change.new).map_err(|error| Escalation::Unreadable(error.to_string()))?;
    covered(held, &rules)?;
    // The old one too: removing an aggregation rule leaves its rules in place, and its writer must hold them.
    let aggregates = has_aggregation_rule(change.new) || change.old.is_some_and(has_aggregation_rule);
    if aggregates && covered(held, &full_authority()).is_err() {
        return Err(Escalation::Aggregates);
    }
    Ok(())
}

/// Checks that a user who holds the rules `held` may write this binding of a role with the rules `granted`.
pub fn check_binding(change: GrantChange<'_>, granted: &[PolicyRule], held: &Held) -> Result<(), Escalation> {
    if change.is_only_garbage_collection() {
        return Ok(());
    }
    covered(held, granted)
}

fn covered(held: &Held, granted: &[PolicyRule]) -> Result<(), Escalation> {
    match coverage::missing(held, granted) {
        Ok(missing) if missing.rules.is_empty() => Ok(()),
        Ok(missing) => Err(Escalation::Missing(missing)),
        Err(coverage::TooComplex) => Err(Escalation::TooComplex),
    }
}

fn rules_of(role: &Tree) -> Result<Vec<PolicyRule>, serde_json::Error> {
    match role.get("rules") {
        Some(rules) if !rules.is_null() => serde_json::from_str(&rules.to_json()),
        _ => Ok(Vec::new()),
    }
}

/// Reports whether the role aggregates others; a selector list of an unknown form counts as aggregation.
fn has_aggregation_rule(role: &Tree) -> bool {
    role.at(&["aggregationRule", "clusterRoleSelectors"])
        .is_some_and(|selectors| !is_nothing(selectors))
}

/// Checks that `user` may make this change.
///
/// # Errors
/// [`Busy`] where no authorizer has decided about the rights `bind` and `escalate`.
pub async fn check(
    rbac: &RbacAuthorizer,
    chain: &AuthorizerChain,
    user: &UserInfo,
    target: GrantTarget<'_>,
    change: GrantChange<'_>,
) -> Result<GrantCheck, Busy> {
    // `system:masters` passes without RBAC, or a cluster with broken roles could not be repaired.
    if user.in_group(UserInfo::MASTERS) || change.is_only_garbage_collection() {
        return Ok(GrantCheck::Allowed);
    }
    let checked = if target.resource.ends_with("bindings") {
        let role = role_ref(change.new);
        // `bind` comes before the role is read: its holder may bind a role that does not exist yet.
        if may_bind(chain, user, target.namespace, &role).await? {
            return Ok(GrantCheck::Allowed);
        }
        let Some(granted) = rbac.rules_of(&role, target.namespace) else {
            return Ok(GrantCheck::RoleMissing(role));
        };
        check_binding(change, &granted, &rbac.held(user, target.namespace))
    } else {
        if may(chain, user, "escalate", target).await? {
            return Ok(GrantCheck::Allowed);
        }
        check_role(change, &rbac.held(user, target.namespace))
    };
    Ok(match checked {
        Ok(()) => GrantCheck::Allowed,
        Err(escalation) => {
            let mut why = escalation.explain(user);
            if matches!(escalation, Escalation::Missing(_)) {
                why.push_str(&resolution_errors(rbac, user, target));
            }
            GrantCheck::Refused(why)
        }
    })
}

/// The roles that the author's bindings name in vain, as upstream's refusals list them: all under the resource requested.
fn resolution_errors(rbac: &RbacAuthorizer, user: &UserInfo, target: GrantTarget<'_>) -> String {
    let missing = rbac.0.read().visit(user, target.namespace, |_, _| {});
    let errors = missing
        .iter()
        .map(|role| format!("{}.{GROUP} {:?} not found", target.resource, role.name));
    match crate::aggregated(errors) {
        None => String::new(),
        Some(errors) => format!("; resolution errors: [{errors}]"),
    }
}

fn role_ref(binding: &Tree) -> RoleRef {
    RoleRef {
        kind: binding.str_at(&["roleRef", "kind"]).to_owned(),
        name: binding.str_at(&["roleRef", "name"]).to_owned(),
    }
}

async fn may_bind(
    chain: &AuthorizerChain,
    user: &UserInfo,
    namespace: &str,
    role: &RoleRef,
) -> Result<bool, Busy> {
    let resource = match role.kind.as_str() {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        _ => return Ok(false),
    };
    let target = GrantTarget {
        resource,
        namespace,
        name: &role.name,
    };
    may(chain, user, "bind", target).await
}

async fn may(
    chain: &AuthorizerChain,
    user: &UserInfo,
    verb: &str,
    target: GrantTarget<'_>,
) -> Result<bool, Busy> {
    let resource = ResourceTarget {
        group: GROUP,
        version: "*",
        resource: target.resource,
        namespace: target.namespace,
        name: target.name,
        ..ResourceTarget::default()
    };
    chain
        .allows(&Attributes {
            asker: None,
            user,
            verb,
            target: AttributesTarget::Resource(resource),
        })
        .await
}

impl Escalation {
    /// The words behind `… is forbidden: `.
    fn explain(&self, user: &UserInfo) -> String {
        match self {
            Self::Missing(missing) => {
                let mut shown: Vec<String> = missing.rules.iter().map(compact).collect();
                shown.sort_unstable();
                if missing.more > 0 {
                    shown.push(format!("and {} more", missing.more));
                }
                format!(
                    "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
                    user.name,
                    quoted(&user.groups),
                    shown.join("\n")
                )
            }
            Self::Aggregates => "must have cluster-admin privileges to use the aggregationRule".to_owned(),
            Self::TooComplex => format!("{}; write several roles", coverage::TooComplex),
            Self::Unreadable(why) => format!("its rules cannot be read: {why}"),
        }
    }
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
