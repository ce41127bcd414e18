//! The definition of a custom resource, as far as a migration writes it: a condition while its objects are migrated, and
//! the versions that are stored.

use super::view::GroupResource;
use crate::views::seconds;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use machinery_client::{ApiResource, Client, ClientError, Patch};
use machinery_meta::ObjectKey;
use serde_json::{Value, json};

/// Upstream's field manager of these fields.
const MANAGER: &str = "storage-version-migrator-runner-controller";
const CONDITION: &str = "StorageMigrating";

/// The definition of a resource as the server has it; none for resources that are built in.
pub(super) async fn of(client: &Client, resource: &GroupResource) -> Result<Option<Value>, ClientError> {
    let key = ObjectKey::cluster(format!("{}.{}", resource.resource, resource.group));
    let definitions = ApiResource::of::<CustomResourceDefinition>();
    match client.get_as(&definitions, &key).await {
        Ok(definition) => Ok(Some(definition)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The status of a definition whose migration begins.
pub(super) fn begun(definition: &Value, migration: &str, now: Timestamp) -> Value {
    let message = format!("Migration {migration} is running");
    json!({"conditions": [condition(definition, "True", "MigrationRunning", &message, now)]})
}

/// The status of a definition whose migration is over. Where nothing of the definition changed meanwhile, its objects are
/// stored in one version.
pub(super) fn finished(definition: &Value, succeeded: bool, now: Timestamp) -> Value {
    let conditions = definition["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let begun = conditions.find(|own| own["type"] == CONDITION);
    let is_same = begun.is_some_and(|own| own["observedGeneration"] == definition["metadata"]["generation"]);
    let (reason, message) = match (succeeded, is_same) {
        (true, true) => (
            "MigrationSucceeded",
            "The migration has succeeded and the stored versions have been updated",
        ),
        (true, false) => (
            "MigrationSucceeded",
            "The migration has succeeded but the stored versions have not been updated due to a generation mismatch",
        ),
        (false, _) => ("MigrationFailed", "The migration has failed"),
    };
    let mut status = json!({"conditions": [condition(definition, "False", reason, message, now)]});
    let versions = definition["spec"]["versions"].as_array();
    let stored = versions.into_iter().flatten().find(|own| own["storage"] == true);
    if let Some(stored) = stored.filter(|_| succeeded && is_same) {
        status["storedVersions"] = json!([stored["name"]]);
    }
    status
}

fn condition(definition: &Value, status: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    json!({"type": CONDITION, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": seconds(now), "observedGeneration": definition["metadata"]["generation"]})
}

/// Applies a status to the definition as it was read.
pub(super) async fn write(client: &Client, definition: &Value, status: Value) -> Result<(), ClientError> {
    let resource = ApiResource::of::<CustomResourceDefinition>();
    let meta = &definition["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    let body = json!({"apiVersion": resource.api_version(), "kind": &*resource.kind,
        "metadata": {"name": name, "resourceVersion": meta["resourceVersion"]}, "status": status});
    let patch = Patch::Apply {
        manager: MANAGER.to_owned(),
        force: true,
    };
    let written = client.patch(&resource, &ObjectKey::cluster(name), "status", &patch, &body);
    written.await.map(drop)
}
