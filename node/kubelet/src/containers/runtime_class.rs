//! Runtime handler of a pod, by its runtime class.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Client;
use kube::api::Api;

use crate::pods::spec;

/// The handler's name, empty for the runtime's default; or why it is not known.
pub(crate) async fn handler(client: &Client, pod: &Pod) -> Result<String, String> {
    let Some(name) = spec(pod)
        .runtime_class_name
        .as_deref()
        .filter(|name| !name.is_empty())
    else {
        return Ok(String::new());
    };
    let classes: Api<RuntimeClass> = Api::all(client.clone());
    match classes.get_opt(name).await {
        Ok(Some(class)) => Ok(class.handler),
        Ok(None) => Err(format!("runtimeclass.node.k8s.io {name:?} not found")),
        Err(error) => Err(format!("failed to lookup RuntimeClass {name}: {error}")),
    }
}
