//! Definitions of custom kinds that the server brings with it: written where they are missing, and brought up to date where
//! the label says that they are the server's.

use super::{ObjectAddress, ObjectPart, Startup};
use apiserver_registry::RegistryError;
use futures::future::BoxFuture;
use machinery_schema::yaml::yaml_to_json;
use serde_json::{Value, json};

/// Label of definitions that are kept up to date; without it a definition stays as it is.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "knarr");

pub(super) fn write(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        for text in &facts.core.config.bundled_definitions {
            let wrong = |problem: String| RegistryError::Internal(format!("a bundled definition: {problem}"));
            let json = yaml_to_json(text.as_bytes()).map_err(|error| wrong(error.to_string()))?;
            let definition = serde_json::from_str(&json).map_err(|error| wrong(error.to_string()))?;
            write_one(facts, &definition).await?;
        }
        Ok(())
    })
}

async fn write_one(facts: &Startup, definition: &Value) -> Result<(), RegistryError> {
    let address = ObjectAddress {
        group: "apiextensions.k8s.io",
        plural: "customresourcedefinitions",
        namespace: "",
        name: definition["metadata"]["name"].as_str().unwrap_or_default(),
    };
    if facts.create(address, &definition.to_string()).await? {
        return Ok(());
    }
    let Some(live) = facts.read(address).await? else {
        return Ok(());
    };
    let (label, own) = MANAGED_BY;
    if live.str_at(&["metadata", "labels", label]) != own {
        tracing::info!(
            name = address.name,
            "the definition has another owner and stays as it is"
        );
        return Ok(());
    }
    let patch = json!({"spec": definition["spec"]}).to_string();
    facts.patch(address, ObjectPart::Main, &patch).await
}
