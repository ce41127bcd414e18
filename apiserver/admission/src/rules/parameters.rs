//! Rights on the parameters of admission policies: a policy reads them with the server's rights, so that its author needs
//! the right to read them (upstream's `authz.go` of these kinds).

use apiserver_auth::authz::attributes::ResourceTarget;
use apiserver_auth::authz::{Attributes as AuthzAttributes, AttributesTarget, AuthorizerChain, Busy};
use apiserver_registry::{Attributes, Operation, Registry, RegistryError, RequestContext};
use machinery_meta::reader::ObjectReader;
use machinery_meta::{FieldError, FieldPath, GroupResource, ObjectKey, UserInfo};
use machinery_schema::{Ref, Tree};
use serde::Deserialize;
use std::sync::Arc;

const GROUP: &str = "admissionregistration.k8s.io";
const PARAM_KIND: [&str; 2] = ["spec", "paramKind"];
const PARAM_REF: [&str; 2] = ["spec", "paramRef"];
const POLICY_NAME: [&str; 2] = ["spec", "policyName"];
/// Any group, version, resource, namespace or name.
const ANY: &str = "*";

/// Checks rights on parameters.
pub(super) struct Parameters {
    pub(super) authorizers: AuthorizerChain,
    pub(super) reader: Arc<dyn ObjectReader>,
    pub(super) registry: Registry,
}

/// The kind of a policy's parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ParamKind {
    api_version: String,
    kind: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Policy {
    spec: PolicySpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PolicySpec {
    param_kind: Option<ParamKind>,
}

/// The resource whose right is checked.
#[derive(Debug, PartialEq, Eq)]
struct Resource {
    group: String,
    version: String,
    resource: String,
}

impl Parameters {
    /// Refuses a policy or binding whose author may not read its parameters.
    ///
    /// # Errors
    /// [`RegistryError::Invalid`], as upstream's validation has it; too busy to decide.
    pub(super) async fn check(
        &self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: &Tree,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        let is_own = attributes.resource.group == GROUP && attributes.subresource.is_empty();
        if !writes || !is_own || ctx.user.in_group(UserInfo::MASTERS) {
            return Ok(());
        }
        let (member, refused) = match attributes.resource.resource.as_str() {
            "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
                ("paramKind", self.of_policy(&ctx.user, object, old).await?)
            }
            "validatingadmissionpolicybindings" => {
                let policies = "validatingadmissionpolicies";
                ("paramRef", self.of_binding(ctx, policies, object, old).await?)
            }
            "mutatingadmissionpolicybindings" => {
                let policies = "mutatingadmissionpolicies";
                ("paramRef", self.of_binding(ctx, policies, object, old).await?)
            }
            _ => return Ok(()),
        };
        let Some(why) = refused else { return Ok(()) };
        let path = FieldPath::new("spec").child(member);
        Err(RegistryError::Invalid {
            kind: attributes.kind.group_kind(),
            name: object.str_at(&["metadata", "name"]).to_owned(),
            errors: vec![FieldError::forbidden(&path, why)],
        })
    }

    /// A policy may be bound to any object of its kind, so that its author needs to read all of them.
    async fn of_policy(
        &self,
        user: &UserInfo,
        policy: &Tree,
        old: Option<&Tree>,
    ) -> Result<Option<String>, RegistryError> {
        let Some(kind) = set(policy, &PARAM_KIND) else {
            return Ok(None);
        };
        if old.and_then(|old| set(old, &PARAM_KIND)) == Some(kind) {
            return Ok(None);
        }
        let (version, kind) = (kind.str("apiVersion"), kind.str("kind"));
        let (resource, _) = self.resource(version, kind);
        if self.may(user, "get", &resource, ANY, ANY).await? {
            return Ok(None);
        }
        Ok(Some(format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={kind}, apiVersion={version})",
            shown(user)
        )))
    }

    async fn of_binding(
        &self,
        ctx: &RequestContext,
        policies: &str,
        binding: &Tree,
        old: Option<&Tree>,
    ) -> Result<Option<String>, RegistryError> {
        let Some(reference) = set(binding, &PARAM_REF) else {
            return Ok(None);
        };
        let name = binding.str_at(&POLICY_NAME);
        let is_same =
            |old: &Tree| set(old, &PARAM_REF) == Some(reference) && old.str_at(&POLICY_NAME) == name;
        if old.is_some_and(is_same) {
            return Ok(None);
        }
        let policy = self.policy(policies, name).await?;
        let kind = policy.as_ref().and_then(|policy| policy.spec.param_kind.as_ref());
        let (resource, is_known) = kind.map_or_else(
            || (Resource::any(), true),
            |kind| self.resource(&kind.api_version, &kind.kind),
        );
        let verb = if reference.str("name").is_empty() {
            "list"
        } else {
            "get"
        };
        let (namespace, object) = (reference.str("namespace"), reference.str("name"));
        if self.may(&ctx.user, verb, &resource, namespace, object).await? {
            return Ok(None);
        }
        let user = shown(&ctx.user);
        let unknown = match kind {
            _ if policy.is_none() => Some(format!("get policy {name}")),
            Some(kind) if !is_known => {
                let ParamKind { api_version, kind } = kind;
                Some(format!("resolve paramKind &{{{api_version} {kind}}}"))
            }
            _ => None,
        };
        Ok(Some(match unknown {
            Some(what) => format!(
                "unable to {what} to determine minimum required permissions and user {user} does not have {verb:?} permission for all groups, versions and resources"
            ),
            None => {
                format!("user {user} does not have {verb:?} permission on the object referenced by paramRef")
            }
        }))
    }

    async fn policy(&self, policies: &str, name: &str) -> Result<Option<Policy>, RegistryError> {
        let internal = |error: &dyn std::fmt::Display| RegistryError::Internal(error.to_string());
        let resource = GroupResource::new(GROUP, policies);
        let key = ObjectKey::new("", name);
        let found = self.reader.get(&resource, &key).await;
        let Some(found) = found.map_err(|error| internal(&error))? else {
            return Ok(None);
        };
        let policy = serde_json::from_slice(&found.json).map_err(|error| internal(&error))?;
        Ok(Some(policy))
    }

    /// The resource of a kind, and whether there is such a kind; a right on an unknown one is a right on all there are.
    fn resource(&self, api_version: &str, kind: &str) -> (Resource, bool) {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if version.contains('/') {
            return (Resource::any(), false);
        }
        let rows = self.registry.rows();
        let row = rows
            .all()
            .find(|row| (&*row.gvk.group, &*row.gvk.version, &*row.gvk.kind) == (group, version, kind));
        let resource = Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: row.map_or_else(|| ANY.to_owned(), |row| row.plural.to_string()),
        };
        (resource, row.is_some())
    }

    async fn may(
        &self,
        user: &UserInfo,
        verb: &str,
        on: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<bool, RegistryError> {
        let target = AttributesTarget::Resource(ResourceTarget {
            group: &on.group,
            version: &on.version,
            resource: &on.resource,
            namespace,
            name,
            ..ResourceTarget::default()
        });
        let question = AuthzAttributes {
            asker: None,
            user,
            verb,
            target,
        };
        let allowed = self.authorizers.allows(&question).await;
        allowed.map_err(|Busy| RegistryError::busy())
    }
}

impl Resource {
    fn any() -> Self {
        let any = || ANY.to_owned();
        Self {
            group: any(),
            version: any(),
            resource: any(),
        }
    }
}

fn set<'a>(object: &'a Tree, path: &[&str]) -> Option<Ref<'a>> {
    object.at(path).filter(|value| !value.is_null())
}

/// A user as Go prints one.
fn shown(user: &UserInfo) -> String {
    let extra: Vec<String> = user
        .extra
        .iter()
        .map(|(key, values)| format!("{key}:[{}]", values.join(" ")))
        .collect();
    format!(
        "&{{{} {} [{}] map[{}]}}",
        user.name,
        user.uid,
        user.groups.join(" "),
        extra.join(" ")
    )
}
