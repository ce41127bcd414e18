//! Roles and bindings, compiled: from a subject to the rules it was granted. Their writers decide how many names they have:
//! each takes about what it was written with.

use super::lookup::Rules;
use super::rules::PolicyRule;
use machinery_meta::{GroupResource, ObjectKey, TextSet, UserInfo};
use serde::Deserialize;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

const GROUP: &str = "rbac.authorization.k8s.io";
/// Groups of a user up to which the index does not look for repeated ones.
const FEW_GROUPS: usize = 16;
/// Missing roles that a refusal names.
const MAX_MISSING: usize = 64;
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The role a binding points at.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default)]
pub struct RoleRef {
    pub kind: String,
    pub name: String,
}

impl RoleRef {
    pub(super) fn not_found(&self) -> String {
        format!("{}.{GROUP} {:?} not found", self.kind.to_lowercase(), self.name)
    }
}

/// A binding, as all its grants have it.
#[derive(Debug)]
struct Binding {
    /// Empty for a `ClusterRoleBinding`.
    namespace: Box<str>,
    name: Box<str>,
    role: RoleRef,
}

/// A binding that grants a role to a user, as one of the subjects that the user is.
#[derive(Debug, Clone)]
pub(super) struct Grant<'u> {
    binding: Arc<Binding>,
    kind: SubjectKind,
    /// The user's name or that of a group.
    subject: &'u str,
}

/// The same for longer than its request. Prints as upstream explains a decision.
#[derive(Debug)]
pub struct OwnedGrant {
    binding: Arc<Binding>,
    kind: SubjectKind,
    subject: Box<str>,
}

impl Grant<'_> {
    pub(super) fn to_owned(&self) -> OwnedGrant {
        OwnedGrant {
            binding: Arc::clone(&self.binding),
            kind: self.kind,
            subject: self.subject.into(),
        }
    }
}

impl fmt::Display for OwnedGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding {
            namespace,
            name,
            role,
        } = &*self.binding;
        if namespace.is_empty() {
            write!(f, "ClusterRoleBinding {name:?}")?;
        } else {
            write!(f, "RoleBinding {:?}", format!("{name}/{namespace}"))?;
        }
        write!(f, " of {} {:?} to ", role.kind, role.name)?;
        let subject = &*self.subject;
        let account = subject.strip_prefix(SERVICE_ACCOUNT_PREFIX);
        match (self.kind, account.and_then(|account| account.split_once(':'))) {
            (SubjectKind::Group, _) => write!(f, "Group {subject:?}"),
            (SubjectKind::ServiceAccount, Some((namespace, name))) => {
                write!(f, "ServiceAccount {:?}", format!("{name}/{namespace}"))
            }
            (SubjectKind::User | SubjectKind::ServiceAccount, _) => write!(f, "User {subject:?}"),
        }
    }
}

/// Rules by role name, of one scope.
type Roles = HashMap<Box<str>, Rules>;

/// The type of a subject in a binding; a service account is a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubjectKind {
    User,
    ServiceAccount,
    Group,
}

/// A binding that names a subject; ordered by the binding's name.
#[derive(Debug, Clone)]
struct Named {
    binding: Arc<Binding>,
    kind: SubjectKind,
}

impl Borrow<str> for Named {
    fn borrow(&self) -> &str {
        &self.binding.name
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.binding.name == other.binding.name
    }
}

impl Eq for Named {}

impl Ord for Named {
    fn cmp(&self, other: &Self) -> Ordering {
        self.binding.name.cmp(&other.binding.name)
    }
}

impl PartialOrd for Named {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Bindings that name one subject, of which most have one. A binding that names a subject several times grants once.
#[derive(Debug)]
enum Grants {
    One(Named),
    Many(BTreeSet<Named>),
}

impl Grants {
    fn add(&mut self, named: Named) {
        match self {
            Self::One(own) if *own == named => {}
            Self::One(own) => *self = Self::Many(BTreeSet::from([own.clone(), named])),
            Self::Many(all) => {
                // The first stays.
                if !all.contains(&named) {
                    all.insert(named);
                }
            }
        }
    }

    /// Removes a binding; reports whether none is left.
    fn remove(&mut self, binding: &str) -> bool {
        match self {
            Self::One(own) => *own.binding.name == *binding,
            Self::Many(all) => {
                all.remove(binding);
                all.is_empty()
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Named> {
        let (one, many) = match self {
            Self::One(own) => (Some(own), None),
            Self::Many(all) => (None, Some(all)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

type GrantsByName = HashMap<Box<str>, Grants>;

/// Grants by user name and by group name, of one scope.
#[derive(Debug, Default)]
struct Bindings {
    users: GrantsByName,
    groups: GrantsByName,
    /// The users and groups that each binding names.
    subjects: HashMap<Box<str>, [TextSet; 2]>,
}

/// One of the four resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    ClusterRole,
    Role,
    ClusterBinding,
    Binding,
}

impl Kind {
    fn of(resource: &GroupResource) -> Option<Self> {
        if resource.group != GROUP {
            return None;
        }
        match resource.resource.as_str() {
            "clusterroles" => Some(Self::ClusterRole),
            "roles" => Some(Self::Role),
            "clusterrolebindings" => Some(Self::ClusterBinding),
            "rolebindings" => Some(Self::Binding),
            _ => None,
        }
    }
}

/// Everything compiled; each object is replaced on its own.
#[derive(Debug, Default)]
pub(super) struct Index {
    cluster_roles: Roles,
    roles: HashMap<Box<str>, Roles>,
    cluster_bindings: Bindings,
    bindings: HashMap<Box<str>, Bindings>,
}

impl Index {
    /// Forgets every object of a resource.
    pub(super) fn clear(&mut self, resource: &GroupResource) {
        match Kind::of(resource) {
            Some(Kind::ClusterRole) => self.cluster_roles.clear(),
            Some(Kind::Role) => self.roles.clear(),
            Some(Kind::ClusterBinding) => self.cluster_bindings = Bindings::default(),
            Some(Kind::Binding) => self.bindings.clear(),
            None => {}
        }
    }

    /// Takes an object as it is now; `None` after its deletion. An object that cannot be read grants nothing, and
    /// costs no other.
    pub(super) fn apply(&mut self, resource: &GroupResource, key: &ObjectKey, json: Option<&[u8]>) {
        let Some(kind) = Kind::of(resource) else {
            return;
        };
        let body = json.and_then(|json| read(resource, key, json));
        match kind {
            Kind::ClusterRole => put_role(&mut self.cluster_roles, &key.name, body),
            Kind::Role => {
                let roles = self.roles.entry(key.namespace.as_str().into()).or_default();
                put_role(roles, &key.name, body);
                if roles.is_empty() {
                    self.roles.remove(key.namespace.as_str());
                }
            }
            Kind::ClusterBinding => self.cluster_bindings.put(key, body),
            Kind::Binding => {
                let bindings = self.bindings.entry(key.namespace.as_str().into()).or_default();
                bindings.put(key, body);
                if bindings.subjects.is_empty() {
                    self.bindings.remove(key.namespace.as_str());
                }
            }
        }
    }

    /// Shows every grant of the user with its rules; returns roles that bindings name in vain.
    pub(super) fn visit<'u>(
        &self,
        user: &'u UserInfo,
        namespace: &str,
        mut each: impl FnMut(Grant<'u>, &Rules),
    ) -> Vec<RoleRef> {
        let mut missing = Vec::new();
        let scopes = [
            Some(&self.cluster_bindings),
            if namespace.is_empty() {
                None
            } else {
                self.bindings.get(namespace)
            },
        ];
        for grant in scopes
            .into_iter()
            .flatten()
            .flat_map(|bindings| bindings.of(user))
        {
            let Binding { role, namespace, .. } = &*grant.binding;
            match self.rules(role, namespace) {
                None if missing.len() < MAX_MISSING => missing.push(role.clone()),
                None => {}
                Some(rules) => each(grant, rules),
            }
        }
        missing
    }

    /// The rules of a role; `namespace` is the binding's.
    pub(super) fn rules(&self, role: &RoleRef, namespace: &str) -> Option<&Rules> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(role.name.as_str()),
            "Role" => self.roles.get(namespace)?.get(role.name.as_str()),
            _ => None,
        }
    }
}

fn read(resource: &GroupResource, key: &ObjectKey, json: &[u8]) -> Option<Body> {
    match serde_json::from_slice(json) {
        Ok(body) => Some(body),
        Err(error) => {
            tracing::warn!(%resource, %key, %error, "an unreadable role or binding grants nothing");
            None
        }
    }
}

fn put_role(roles: &mut Roles, name: &str, body: Option<Body>) {
    match body {
        Some(body) => {
            roles.insert(name.into(), Rules::from(body.rules.unwrap_or_default()));
        }
        None => {
            roles.remove(name);
        }
    }
}

/// The parts of the four kinds that decide.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Body {
    rules: Option<Vec<PolicyRule>>,
    subjects: Option<Vec<Subject>>,
    role_ref: RoleRef,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

impl Subject {
    /// The kind of the subject, and the name of the user or group; `namespace` is the binding's.
    fn named(&self, namespace: &str) -> Option<(SubjectKind, String)> {
        let name = &self.name;
        match self.kind.as_str() {
            "User" => Some((SubjectKind::User, name.clone())),
            "Group" => Some((SubjectKind::Group, name.clone())),
            "ServiceAccount" => {
                let own = self.namespace.as_str();
                let namespace = if own.is_empty() { namespace } else { own };
                let user = format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}");
                Some((SubjectKind::ServiceAccount, user))
            }
            _ => None,
        }
    }
}

impl Bindings {
    fn put(&mut self, key: &ObjectKey, body: Option<Body>) {
        self.remove(&key.name);
        let Some(body) = body else {
            return;
        };
        let binding = Arc::new(Binding {
            namespace: key.namespace.as_str().into(),
            name: key.name.as_str().into(),
            role: body.role_ref,
        });
        let (mut users, mut groups) = (Vec::new(), Vec::new());
        for subject in body.subjects.iter().flatten() {
            let Some((kind, name)) = subject.named(&key.namespace) else {
                continue;
            };
            let named = Named {
                binding: Arc::clone(&binding),
                kind,
            };
            let (map, names) = match kind {
                SubjectKind::Group => (&mut self.groups, &mut groups),
                SubjectKind::User | SubjectKind::ServiceAccount => (&mut self.users, &mut users),
            };
            match map.get_mut(name.as_str()) {
                Some(grants) => grants.add(named),
                None => drop(map.insert(name.as_str().into(), Grants::One(named))),
            }
            names.push(name);
        }
        if !users.is_empty() || !groups.is_empty() {
            let names = [users, groups].map(|own| own.into_iter().collect());
            self.subjects.insert(key.name.as_str().into(), names);
        }
    }

    fn remove(&mut self, binding: &str) {
        let Some([users, groups]) = self.subjects.remove(binding) else {
            return;
        };
        for (map, names) in [(&mut self.users, users), (&mut self.groups, groups)] {
            for name in names.iter() {
                if map.get_mut(name).is_some_and(|grants| grants.remove(binding)) {
                    map.remove(name);
                }
            }
        }
    }

    fn of<'u>(&self, user: &'u UserInfo) -> impl Iterator<Item = Grant<'u>> {
        // A review may ask about one group as often as it has room for.
        let (many, mut seen) = (user.groups.len() > FEW_GROUPS, HashSet::new());
        let groups = user.groups.iter().map(String::as_str);
        let once = groups.filter(move |group| !many || seen.insert(*group));
        let of_groups = once.filter_map(|group| Some((group, self.groups.get(group)?)));
        let of_user = self.users.get(user.name.as_str());
        let of_user = of_user.map(|grants| (user.name.as_str(), grants));
        let all = of_user.into_iter().chain(of_groups);
        all.flat_map(|(subject, grants)| {
            grants.iter().map(move |named| Grant {
                binding: Arc::clone(&named.binding),
                kind: named.kind,
                subject,
            })
        })
    }
}
