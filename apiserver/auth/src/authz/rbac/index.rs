//! Roles and bindings, compiled: from a subject to the rules it was granted.

use super::lookup::Rules;
use super::rules::PolicyRule;
use machinery_meta::{GroupResource, ObjectKey, UserInfo};
use serde::Deserialize;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

const GROUP: &str = "rbac.authorization.k8s.io";
/// Among so many groups of a user nobody looks for the same one.
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

/// A subject's role, and the binding that grants it. Prints as upstream explains a decision.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Empty for a `ClusterRoleBinding`.
    pub namespace: Arc<str>,
    pub binding: Arc<str>,
    pub role: Arc<RoleRef>,
    subject: Box<str>,
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            binding,
            role,
            subject,
        } = self;
        if namespace.is_empty() {
            write!(f, "ClusterRoleBinding {binding:?}")?;
        } else {
            write!(f, "RoleBinding {:?}", format!("{binding}/{namespace}"))?;
        }
        write!(f, " of {} {:?} to {subject}", role.kind, role.name)
    }
}

/// Rules by role name, of one scope.
type Roles = HashMap<Box<str>, Rules>;

/// Grants of one subject, by the binding's name. A binding that names a subject several times grants once.
type Grants = BTreeMap<Arc<str>, Arc<Grant>>;

/// The type of a subject in a binding; a service account is a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubjectRef {
    User,
    Group,
}

/// Grants by user name and by group name, of one scope.
#[derive(Debug, Default)]
struct Bindings {
    users: HashMap<Box<str>, Grants>,
    groups: HashMap<Box<str>, Grants>,
    /// The subjects of each binding.
    subjects: HashMap<Box<str>, Vec<(SubjectRef, Box<str>)>>,
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
    pub(super) fn visit(
        &self,
        user: &UserInfo,
        namespace: &str,
        mut each: impl FnMut(&Arc<Grant>, &Rules),
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
            match self.rules(&grant.role, &grant.namespace) {
                None if missing.len() < MAX_MISSING => missing.push(RoleRef::clone(&grant.role)),
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
            roles.insert(name.into(), Rules::new(body.rules.unwrap_or_default()));
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
    /// The subject with its name, and its name in decisions; `namespace` is the binding's.
    fn subject_ref(&self, namespace: &str) -> Option<(SubjectRef, String, String)> {
        let name = &self.name;
        match self.kind.as_str() {
            "User" => Some((SubjectRef::User, name.clone(), format!("User {name:?}"))),
            "Group" => Some((SubjectRef::Group, name.clone(), format!("Group {name:?}"))),
            "ServiceAccount" => {
                let own = self.namespace.as_str();
                let namespace = if own.is_empty() { namespace } else { own };
                let user = format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}");
                let shown = format!("ServiceAccount {:?}", format!("{name}/{namespace}"));
                Some((SubjectRef::User, user, shown))
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
        let (namespace, binding): (Arc<str>, Arc<str>) =
            (key.namespace.as_str().into(), key.name.as_str().into());
        let role = Arc::new(body.role_ref);
        let mut subject_refs = Vec::new();
        for subject in body.subjects.iter().flatten() {
            let Some((subject_ref, name, shown)) = subject.subject_ref(&key.namespace) else {
                continue;
            };
            let grants = self.map(subject_ref).entry(name.as_str().into()).or_default();
            let Entry::Vacant(place) = grants.entry(Arc::clone(&binding)) else {
                continue;
            };
            place.insert(Arc::new(Grant {
                namespace: Arc::clone(&namespace),
                binding: Arc::clone(&binding),
                role: Arc::clone(&role),
                subject: shown.into(),
            }));
            subject_refs.push((subject_ref, name.into()));
        }
        if !subject_refs.is_empty() {
            self.subjects.insert(key.name.as_str().into(), subject_refs);
        }
    }

    fn remove(&mut self, binding: &str) {
        for (subject_ref, name) in self.subjects.remove(binding).unwrap_or_default() {
            let map = self.map(subject_ref);
            if let Some(grants) = map.get_mut(&name) {
                grants.remove(binding);
                if grants.is_empty() {
                    map.remove(&name);
                }
            }
        }
    }

    fn map(&mut self, subject_ref: SubjectRef) -> &mut HashMap<Box<str>, Grants> {
        match subject_ref {
            SubjectRef::User => &mut self.users,
            SubjectRef::Group => &mut self.groups,
        }
    }

    fn of<'a>(&'a self, user: &'a UserInfo) -> impl Iterator<Item = &'a Arc<Grant>> {
        // A review may ask about one group as often as it has room for.
        let (many, mut seen) = (user.groups.len() > FEW_GROUPS, HashSet::new());
        let groups = user.groups.iter().map(String::as_str);
        let once = groups.filter(move |group| !many || seen.insert(*group));
        let groups = once.filter_map(|group| self.groups.get(group));
        self.users
            .get(user.name.as_str())
            .into_iter()
            .chain(groups)
            .flat_map(BTreeMap::values)
    }
}
