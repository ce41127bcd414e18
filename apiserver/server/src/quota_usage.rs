//! Writes what is used of quotas, for the admission plugin: past the plugins, and only over the revision that was read.

use apiserver_admission::plugins::resource_quota::{UsageError, UsageWriter};
use apiserver_registry::options::UpdateOptions;
use apiserver_registry::store::Target;
use apiserver_registry::{Door, ObjectPart, Registry, RegistryError, RequestContext, Scope, UpdatedObject};
use async_trait::async_trait;
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use machinery_schema::Tree;
use machinery_semantics::ResourceList;

/// See the module.
#[derive(Debug)]
pub(crate) struct QuotaUsage {
    registry: Registry,
    door: Door<'static>,
    runtime: Runtime,
}

impl QuotaUsage {
    pub(crate) fn new(registry: Registry, door: Door<'static>, runtime: Runtime) -> Self {
        Self {
            registry,
            door,
            runtime,
        }
    }
}

/// The usage, on the quota that has this revision. Without it the update is refused as a conflict.
struct Used<'a> {
    resource_version: &'a str,
    used: &'a ResourceList,
}

#[async_trait]
impl UpdatedObject for Used<'_> {
    async fn apply(&self, _: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let live = live.ok_or(RegistryError::NoSuchResource)?;
        let mut object = live.clone();
        object.set_str(&["metadata", "resourceVersion"], self.resource_version);
        object.remove(&["status", "used"]);
        for (name, amount) in self.used.iter() {
            object.set_str(&["status", "used", name], &amount.to_string());
        }
        Ok(object)
    }
}

#[async_trait]
impl UsageWriter for QuotaUsage {
    async fn write(
        &self,
        namespace: &str,
        name: &str,
        resource_version: &str,
        used: &ResourceList,
    ) -> Result<(), UsageError> {
        let store = self.registry.preferred_store("", "resourcequotas");
        let store = store.ok_or_else(|| UsageError::Failed("resourcequotas are not served".to_owned()))?;
        let user = UserInfo::named("system:apiserver", [UserInfo::MASTERS, UserInfo::AUTHENTICATED]);
        let context = RequestContext::internal(user, self.runtime.clone());
        let scope = Scope::of(namespace);
        let target = Target {
            scope: &scope,
            name,
            part: ObjectPart::Status,
        };
        let change = Used {
            resource_version,
            used,
        };
        let options = UpdateOptions::default();
        let written = store.update(&context, target, &change, &options, self.door).await;
        written.map(drop).map_err(|error| match error {
            RegistryError::Conflict { .. } | RegistryError::NotFound { .. } => UsageError::Conflict,
            other => UsageError::Failed(other.to_string()),
        })
    }
}
