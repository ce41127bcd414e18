//! Roles and bindings, compiled: from a subject to the rules it was granted.

use super::rules::PolicyRule;
use machinery_meta::reader::{ObjectReader, ReadError};
use machinery_meta::{GroupResource, UserInfo};
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

const GROUP: &str = "rbac.authorization.k8s.io";
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

/// That a subject holds a role, and by which binding. Prints as upstream explains a decision.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Empty for a `ClusterRoleBinding`.
    pub namespace: Box<str>,
    pub binding: Box<str>,
    pub role: RoleRef,
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

type Rules = Arc<[PolicyRule]>;

/// Rules by role name, of one scope.
type Roles = HashMap<Box<str>, Rules>;

/// Grants by user name and by group name, of one scope.
#[derive(Debug, Default)]
struct Bindings {
    users: HashMap<Box<str>, Vec<Arc<Grant>>>,
    groups: HashMap<Box<str>, Vec<Arc<Grant>>>,
}

/// One resource as it was at a generation.
#[derive(Debug)]
struct Compiled<T> {
    generation: u64,
    value: T,
}

/// Everything compiled, each part with the generation it was read at.
#[derive(Debug)]
pub struct Index {
    cluster_roles: Arc<Compiled<Roles>>,
    roles: Arc<Compiled<HashMap<Box<str>, Roles>>>,
    cluster_bindings: Arc<Compiled<Bindings>>,
    bindings: Arc<Compiled<HashMap<Box<str>, Bindings>>>,
}

/// The names of the four resources, made once.
#[derive(Debug)]
pub(super) struct Resources {
    cluster_roles: GroupResource,
    roles: GroupResource,
    cluster_bindings: GroupResource,
    bindings: GroupResource,
}

impl Resources {
    pub(super) fn new() -> Self {
        let named = |name: &str| GroupResource::new(GROUP, name);
        Self {
            cluster_roles: named("clusterroles"),
            roles: named("roles"),
            cluster_bindings: named("clusterrolebindings"),
            bindings: named("rolebindings"),
        }
    }
}

impl Index {
    pub(super) fn is_current(&self, reader: &dyn ObjectReader, names: &Resources) -> bool {
        reader.generation(&names.cluster_roles) == self.cluster_roles.generation
            && reader.generation(&names.roles) == self.roles.generation
            && reader.generation(&names.cluster_bindings) == self.cluster_bindings.generation
            && reader.generation(&names.bindings) == self.bindings.generation
    }

    /// Reads what moved since `earlier`, keeps the rest.
    pub(super) async fn read(
        reader: &dyn ObjectReader,
        names: &Resources,
        earlier: Option<&Self>,
    ) -> Result<Self, ReadError> {
        Ok(Self {
            cluster_roles: refresh(
                reader,
                &names.cluster_roles,
                earlier.map(|e| &e.cluster_roles),
                |all| {
                    all.into_iter()
                        .map(|role: RoleObject| (role.name.into(), role.rules.into()))
                        .collect()
                },
            )
            .await?,
            roles: refresh(reader, &names.roles, earlier.map(|e| &e.roles), |all| {
                let mut by_namespace: HashMap<Box<str>, Roles> = HashMap::new();
                for RoleObject {
                    namespace,
                    name,
                    rules,
                } in all
                {
                    by_namespace
                        .entry(namespace.into())
                        .or_default()
                        .insert(name.into(), rules.into());
                }
                by_namespace
            })
            .await?,
            cluster_bindings: refresh(
                reader,
                &names.cluster_bindings,
                earlier.map(|e| &e.cluster_bindings),
                |all| {
                    let mut bindings = Bindings::default();
                    all.into_iter().for_each(|one: BindingObject| bindings.add(one));
                    bindings
                },
            )
            .await?,
            bindings: refresh(reader, &names.bindings, earlier.map(|e| &e.bindings), |all| {
                let mut by_namespace: HashMap<Box<str>, Bindings> = HashMap::new();
                for one in all {
                    let one: BindingObject = one;
                    by_namespace
                        .entry(one.namespace.as_str().into())
                        .or_default()
                        .add(one);
                }
                by_namespace
            })
            .await?,
        })
    }

    /// Shows every grant of the user with its rules until `more` says no; returns roles that bindings name in vain.
    pub fn visit(
        &self,
        user: &UserInfo,
        namespace: &str,
        mut more: impl FnMut(&Arc<Grant>, &[PolicyRule]) -> bool,
    ) -> Vec<RoleRef> {
        let mut missing = Vec::new();
        let scopes = [
            Some(&self.cluster_bindings.value),
            if namespace.is_empty() {
                None
            } else {
                self.bindings.value.get(namespace)
            },
        ];
        for grant in scopes
            .into_iter()
            .flatten()
            .flat_map(|bindings| bindings.of(user))
        {
            match self.rules(&grant.role, &grant.namespace) {
                None => missing.push(grant.role.clone()),
                Some(rules) => {
                    if !more(grant, rules) {
                        return Vec::new();
                    }
                }
            }
        }
        missing
    }

    /// The rules of a role; `namespace` is the binding's.
    pub fn rules(&self, role: &RoleRef, namespace: &str) -> Option<&Rules> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.value.get(role.name.as_str()),
            "Role" => self.roles.value.get(namespace)?.get(role.name.as_str()),
            _ => None,
        }
    }
}

async fn refresh<O, T>(
    reader: &dyn ObjectReader,
    resource: &GroupResource,
    earlier: Option<&Arc<Compiled<T>>>,
    compile: impl FnOnce(Vec<O>) -> T,
) -> Result<Arc<Compiled<T>>, ReadError>
where
    O: From<ParsedObject>,
{
    // The number is taken before the objects: what moves in between is read again next time.
    let generation = reader.generation(resource);
    if let Some(kept) = earlier.filter(|kept| kept.generation == generation) {
        return Ok(Arc::clone(kept));
    }
    let objects = reader.list(resource, "").await?;
    let mut parsed = Vec::with_capacity(objects.len());
    for object in objects {
        let body = serde_json::from_slice(&object.json).map_err(|error| ReadError {
            resource: resource.to_string(),
            key: object.header.key.to_string(),
            cause: error.to_string(),
        })?;
        let key = object.header.key.clone();
        parsed.push(O::from(ParsedObject {
            namespace: key.namespace,
            name: key.name,
            body,
        }));
    }
    Ok(Arc::new(Compiled {
        generation,
        value: compile(parsed),
    }))
}

struct ParsedObject {
    namespace: String,
    name: String,
    body: Body,
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

struct RoleObject {
    namespace: String,
    name: String,
    rules: Vec<PolicyRule>,
}

impl From<ParsedObject> for RoleObject {
    fn from(object: ParsedObject) -> Self {
        Self {
            namespace: object.namespace,
            name: object.name,
            rules: object.body.rules.unwrap_or_default(),
        }
    }
}

struct BindingObject {
    namespace: String,
    name: String,
    subjects: Vec<Subject>,
    role: RoleRef,
}

impl From<ParsedObject> for BindingObject {
    fn from(object: ParsedObject) -> Self {
        Self {
            namespace: object.namespace,
            name: object.name,
            subjects: object.body.subjects.unwrap_or_default(),
            role: object.body.role_ref,
        }
    }
}

impl Bindings {
    fn add(&mut self, binding: BindingObject) {
        for subject in binding.subjects {
            let (map, who, shown) = match subject.kind.as_str() {
                "User" => (
                    &mut self.users,
                    subject.name.clone(),
                    format!("User {:?}", subject.name),
                ),
                "Group" => (
                    &mut self.groups,
                    subject.name.clone(),
                    format!("Group {:?}", subject.name),
                ),
                "ServiceAccount" => {
                    let namespace = if subject.namespace.is_empty() {
                        &binding.namespace
                    } else {
                        &subject.namespace
                    };
                    let user = format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{}", subject.name);
                    let shown = format!("ServiceAccount {:?}", format!("{}/{namespace}", subject.name));
                    (&mut self.users, user, shown)
                }
                _ => continue,
            };
            map.entry(who.into()).or_default().push(Arc::new(Grant {
                namespace: binding.namespace.as_str().into(),
                binding: binding.name.as_str().into(),
                role: binding.role.clone(),
                subject: shown.into(),
            }));
        }
    }

    fn of<'a>(&'a self, user: &'a UserInfo) -> impl Iterator<Item = &'a Arc<Grant>> {
        let groups = user
            .groups
            .iter()
            .filter_map(|group| self.groups.get(group.as_str()));
        self.users
            .get(user.name.as_str())
            .into_iter()
            .chain(groups)
            .flatten()
    }
}
