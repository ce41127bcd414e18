//! Makes namespaces, for the admission plugin NamespaceAutoProvision: past the plugins.

use apiserver_admission::plugins::NamespaceProvisioner;
use apiserver_registry::options::CreateOptions;
use apiserver_registry::{Door, Registry, RegistryError, RequestContext, Scope};
use async_trait::async_trait;
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use machinery_schema::{Strictness, decode_json};

/// See the module.
#[derive(Debug)]
pub(crate) struct ProvisionedNamespaces {
    registry: Registry,
    door: Door<'static>,
    runtime: Runtime,
}

impl ProvisionedNamespaces {
    pub(crate) fn new(registry: Registry, door: Door<'static>, runtime: Runtime) -> Self {
        Self {
            registry,
            door,
            runtime,
        }
    }
}

#[async_trait]
impl NamespaceProvisioner for ProvisionedNamespaces {
    async fn provision(&self, name: &str) -> Result<(), String> {
        let absent = || "namespaces are not served".to_owned();
        let store = self
            .registry
            .preferred_store("", "namespaces")
            .ok_or_else(absent)?;
        let (schema, ty) = machinery_api::schema_for("", "v1", "Namespace").ok_or_else(absent)?;
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let object = decode_json(schema, ty, object.to_string().as_bytes(), Strictness::Ignore);
        let object = object.map_err(|error| error.to_string())?.tree;
        let user = UserInfo::named("system:apiserver", [UserInfo::MASTERS, UserInfo::AUTHENTICATED]);
        let context = RequestContext::internal(user, self.runtime.clone());
        let options = CreateOptions::default();
        let made = store
            .create(&context, &Scope::Cluster, object, &options, self.door)
            .await;
        match made {
            Ok(_) | Err(RegistryError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(apiserver_endpoints::status::of(&error).message),
        }
    }
}
