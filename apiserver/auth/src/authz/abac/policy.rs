//! One policy: the versions `v0` and `v1beta1` of a line, and the requests that it matches.

use crate::authz::attributes::ResourceTarget;
use crate::authz::rbac::PolicyRule;
use crate::authz::{Attributes, AttributesTarget};
use crate::configuration::or_default;
use machinery_meta::UserInfo;
use machinery_schema::yaml_to_json;
use serde::Deserialize;
use serde_json::Value;

const ALL: &str = "*";
const KIND: &str = "Policy";
const V0: &str = "abac.authorization.kubernetes.io/v0";
const V1BETA1: &str = "abac.authorization.kubernetes.io/v1beta1";
const READING: [&str; 3] = ["get", "list", "watch"];

/// The `spec` of a policy, `*` for all. An empty field matches what is empty in the request, but for user and group, of which one
/// is there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Policy {
    #[serde(deserialize_with = "or_default")]
    user: String,
    #[serde(deserialize_with = "or_default")]
    group: String,
    #[serde(deserialize_with = "or_default")]
    readonly: bool,
    #[serde(deserialize_with = "or_default")]
    api_group: String,
    #[serde(deserialize_with = "or_default")]
    resource: String,
    #[serde(deserialize_with = "or_default")]
    namespace: String,
    #[serde(deserialize_with = "or_default")]
    non_resource_path: String,
}

/// A policy of version `v0`: fields without a `spec`, where an empty one stands for all.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FlatPolicy {
    #[serde(deserialize_with = "or_default")]
    user: String,
    #[serde(deserialize_with = "or_default")]
    group: String,
    #[serde(deserialize_with = "or_default")]
    readonly: bool,
    #[serde(deserialize_with = "or_default")]
    resource: String,
    #[serde(deserialize_with = "or_default")]
    namespace: String,
}

pub(super) struct Decoded {
    pub(super) policy: Policy,
    pub(super) has_version: bool,
}

/// Reads a line: JSON, or YAML where it does not begin with a brace. A line that names neither version nor kind is of `v0`;
/// unknown fields are passed over.
pub(super) fn decode(line: &str) -> Result<Decoded, String> {
    let value = value_of(line)?;
    let (version, kind) = (text(&value, "apiVersion")?, text(&value, "kind")?);
    if version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {version}"));
    }
    let has_version = !version.is_empty() && !kind.is_empty();
    let policy = match (version, kind) {
        (V1BETA1, KIND) => spec(&value)?.of_authenticated(),
        ("" | V0, "" | KIND) => Policy::from(fields::<FlatPolicy>(&value)?),
        (V1BETA1, "") => return Err(format!("a policy of {V1BETA1} must have the kind {KIND:?}")),
        (version, kind) => {
            let version = if version.is_empty() { V0 } else { version };
            let kind = if kind.is_empty() { KIND } else { kind };
            return Err(format!("no kind {kind:?} is registered for version {version:?}"));
        }
    };
    Ok(Decoded { policy, has_version })
}

/// The object of a line. A line of nothing (`---`, `null`) is none: as one of `v0` without fields, which upstream takes it for, it would
/// allow everything to all authenticated users.
fn value_of(line: &str) -> Result<Value, String> {
    let failed = |why: String| format!("couldn't get version/kind; json parse error: {why}");
    let json = match line.trim_start().starts_with('{') {
        true => line.to_owned(),
        false => yaml_to_json(line.as_bytes()).map_err(|error| failed(error.to_string()))?,
    };
    match serde_json::from_str(&json).map_err(|error| failed(error.to_string()))? {
        value @ Value::Object(_) => Ok(value),
        _ => Err(failed("the line is no object".to_owned())),
    }
}

fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str, String> {
    match value.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!(
            "couldn't get version/kind; json parse error: {name} is no text"
        )),
    }
}

fn spec(value: &Value) -> Result<Policy, String> {
    value
        .get("spec")
        .map_or_else(|| Ok(Policy::default()), fields::<Policy>)
}

/// The fields of an object, or defaults in the place of null.
fn fields<'a, T: Deserialize<'a> + Default>(value: &'a Value) -> Result<T, String> {
    match value {
        Value::Null => Ok(T::default()),
        // A list would be read as fields in their order.
        Value::Object(_) => T::deserialize(value).map_err(|error| error.to_string()),
        _ => Err("spec is no object".to_owned()),
    }
}

fn or_all(text: String) -> String {
    match text.is_empty() {
        true => ALL.to_owned(),
        false => text,
    }
}

impl From<FlatPolicy> for Policy {
    fn from(own: FlatPolicy) -> Self {
        let is_for_paths = own.namespace.is_empty() && own.resource.is_empty();
        let is_for_any = own.user.is_empty() && own.group.is_empty();
        Self {
            group: match is_for_any {
                true => UserInfo::AUTHENTICATED.to_owned(),
                false => own.group,
            },
            user: own.user,
            readonly: own.readonly,
            api_group: ALL.to_owned(),
            resource: or_all(own.resource),
            namespace: or_all(own.namespace),
            non_resource_path: if is_for_paths {
                ALL.to_owned()
            } else {
                String::new()
            },
        }
        .of_authenticated()
    }
}

impl Policy {
    /// All users and all groups are those that were authenticated.
    fn of_authenticated(mut self) -> Self {
        if self.user == ALL || self.group == ALL {
            self.user.clear();
            UserInfo::AUTHENTICATED.clone_into(&mut self.group);
        }
        self
    }

    pub(super) fn allows(&self, attributes: &Attributes<'_>) -> bool {
        self.is_for(attributes.user)
            && (!self.readonly || READING.contains(&attributes.verb))
            && match &attributes.target {
                AttributesTarget::Resource(target) => self.has_resource(target),
                AttributesTarget::Path(path) => self.has_path(path),
            }
    }

    /// Reports whether user and group are those of the policy, as far as it names them; one that names neither matches no user.
    pub(super) fn is_for(&self, user: &UserInfo) -> bool {
        let is_named = !self.user.is_empty() || !self.group.is_empty();
        is_named
            && (self.user.is_empty() || self.user == user.name)
            && (self.group.is_empty() || user.in_group(&self.group))
    }

    fn has_resource(&self, target: &ResourceTarget<'_>) -> bool {
        let is = |own: &str, requested: &str| own == ALL || own == requested;
        is(&self.namespace, target.namespace)
            && is(&self.resource, target.resource)
            && is(&self.api_group, target.group)
    }

    fn has_path(&self, path: &str) -> bool {
        let own = self.non_resource_path.as_str();
        own == path || (own.ends_with('*') && path.starts_with(own.trim_end_matches('*')))
    }

    /// Reports whether a review of a user's rules in a namespace lists the policy; upstream compares the namespace of paths, too.
    pub(super) fn is_listed(&self, user: &UserInfo, namespace: &str) -> bool {
        self.is_for(user) && (self.namespace == ALL || self.namespace == namespace)
    }

    /// The rules of RBAC's form that say the same.
    pub(super) fn rules(&self) -> Vec<PolicyRule> {
        let verbs: Vec<String> = match self.readonly {
            true => READING.iter().map(|&verb| verb.to_owned()).collect(),
            false => vec![ALL.to_owned()],
        };
        let resources = (!self.resource.is_empty()).then(|| PolicyRule {
            verbs: verbs.clone(),
            api_groups: vec![self.api_group.clone()],
            resources: vec![self.resource.clone()],
            ..PolicyRule::default()
        });
        let paths = (!self.non_resource_path.is_empty()).then(|| PolicyRule {
            verbs: verbs.clone(),
            non_resource_urls: vec![self.non_resource_path.clone()],
            ..PolicyRule::default()
        });
        resources.into_iter().chain(paths).collect()
    }
}
