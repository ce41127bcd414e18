//! The objects of priority and fairness: those of every cluster are kept as they should be, all of them are put in service,
//! and each FlowSchema's condition `Dangling` says whether its priority level is there.

use super::{ObjectAddress, Startup};
use crate::flow_control::bootstrap::{self, AUTO_UPDATE, BootstrapObject, LEVELS, Revision, SCHEMAS};
use crate::flow_control::objects::{FlowSchema, Metadata, PriorityLevelConfiguration};
use apiserver_registry::conditions::Condition;
use apiserver_registry::options::DeleteOptions;
use apiserver_registry::{ObjectPart, RegistryError, RequestContext, UpdatedObject};
use async_trait::async_trait;
use futures::future::{BoxFuture, try_join_all};
use machinery_schema::{Strictness, Tree, apply_defaults, decode_json};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// Keeps the objects, now and after every change.
pub(super) fn keep(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    let resources = [(GROUP, SCHEMAS), (GROUP, LEVELS)];
    Box::pin(facts.keep("flow control objects", resources, reconcile))
}

fn address<'a>(plural: &'a str, name: &'a str) -> ObjectAddress<'a> {
    ObjectAddress {
        group: GROUP,
        plural,
        namespace: "",
        name,
    }
}

fn reconcile(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        let objects = bootstrap::objects();
        let ensured = ensure_all(facts, &objects).await;
        let (levels, schemas) = (stored(facts, LEVELS).await?, stored(facts, SCHEMAS).await?);
        let read_levels = parsed::<PriorityLevelConfiguration>(&levels);
        let read_schemas = parsed::<FlowSchema>(&schemas);
        // First of all: an object that cannot be written keeps no change of the others from its effect.
        if let Some(control) = &facts.core.flow_control {
            control.configure(read_levels.clone(), read_schemas.clone());
        }
        ensured?;
        for (plural, stored) in [(SCHEMAS, &schemas), (LEVELS, &levels)] {
            remove_unwanted(facts, &objects, plural, stored).await?;
        }
        let said = read_schemas
            .iter()
            .map(|schema| set_dangling_condition(facts, schema, &read_levels));
        try_join_all(said).await?;
        Ok(())
    })
}

async fn ensure_all(facts: &Startup, objects: &[BootstrapObject]) -> Result<(), RegistryError> {
    for plural in [LEVELS, SCHEMAS] {
        let own = objects.iter().filter(|object| object.plural == plural);
        try_join_all(own.map(|object| ensure(facts, object))).await?;
    }
    Ok(())
}

async fn stored(facts: &Startup, plural: &'static str) -> Result<Vec<Value>, RegistryError> {
    let objects = facts.objects((GROUP, plural)).await?;
    let value = |object: &Tree| serde_json::from_str(&object.root().to_json());
    let values: Result<_, _> = objects.iter().map(value).collect();
    values.map_err(|error| RegistryError::Internal(error.to_string()))
}

/// Objects that can be read; stored ones passed validation.
fn parsed<T: DeserializeOwned>(objects: &[Value]) -> Vec<T> {
    let parse = |object: &Value| match T::deserialize(object) {
        Ok(parsed) => Some(parsed),
        Err(error) => {
            tracing::warn!(%error, name = %object["metadata"]["name"], "a flow control object cannot be used");
            None
        }
    };
    objects.iter().filter_map(parse).collect()
}

/// The object as the table has it, with all defaults.
fn with_defaults(facts: &Startup, object: &BootstrapObject) -> Result<Value, RegistryError> {
    let failed = |error: &dyn std::fmt::Display| RegistryError::Internal(error.to_string());
    let row = facts.store(address(object.plural, &object.name))?.row;
    let decoded = decode_json(&row.schema, row.ty, object.json.as_bytes(), Strictness::Ignore);
    let mut tree = decoded.map_err(|error| failed(&error))?.tree;
    apply_defaults(&mut tree);
    row.strategy.defaults(&mut tree);
    serde_json::from_str(&tree.root().to_json()).map_err(|error| failed(&error))
}

async fn ensure(facts: &Startup, object: &BootstrapObject) -> Result<(), RegistryError> {
    let address = address(object.plural, &object.name);
    let Some(current) = facts.read(address).await? else {
        return facts.create(address, object.json).await.map(drop);
    };
    let unreadable = |error: serde_json::Error| RegistryError::Internal(error.to_string());
    let current: Value = serde_json::from_str(&current.root().to_json()).map_err(unreadable)?;
    let wanted = with_defaults(facts, object)?;
    let metadata = Metadata::deserialize(&current["metadata"]).map_err(unreadable)?;
    let revision = bootstrap::revision(object, &metadata, current["spec"] == wanted["spec"]);
    if revision == Revision::default() {
        return Ok(());
    }
    let revise = Revise {
        spec: revision.spec.then(|| wanted["spec"].clone()),
        annotation: revision.annotation,
    };
    match facts.change(address, ObjectPart::Main, &revise).await {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

async fn remove_unwanted(
    facts: &Startup,
    objects: &[BootstrapObject],
    plural: &str,
    stored: &[Value],
) -> Result<(), RegistryError> {
    for object in stored {
        let Ok(metadata) = Metadata::deserialize(&object["metadata"]) else {
            continue;
        };
        if !bootstrap::is_unwanted(objects, plural, &metadata) {
            continue;
        }
        let address = address(plural, &metadata.name);
        let (store, options) = (facts.store(address)?, DeleteOptions::default());
        let (context, scope) = (facts.context(), address.scope());
        let deleted = store.delete(&context, &scope, address.name, &options, facts.door());
        match deleted.await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

async fn set_dangling_condition(
    facts: &Startup,
    schema: &FlowSchema,
    levels: &[PriorityLevelConfiguration],
) -> Result<(), RegistryError> {
    let level = &schema.spec.priority_level_configuration.name;
    let found = levels.iter().any(|own| own.metadata.name == *level);
    let subject = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?}");
    let (status, reason, message) = if found {
        ("False", "Found", format!("{subject} and it exists"))
    } else {
        (
            "True",
            "NotFound",
            format!("{subject} but there is no such object"),
        )
    };
    let dangling = Condition {
        kind: "Dangling",
        status,
        reason,
        message: &message,
    };
    facts
        .set_condition(address(SCHEMAS, &schema.metadata.name), dangling)
        .await
}

/// Brings an object to what it should be.
struct Revise {
    spec: Option<Value>,
    annotation: Option<bool>,
}

#[async_trait]
impl UpdatedObject for Revise {
    async fn apply(&self, _: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let Some(live) = live else {
            return Err(RegistryError::NoSuchResource);
        };
        let failed = |error: &dyn std::fmt::Display| RegistryError::Internal(error.to_string());
        let text = live.root().to_json();
        let mut document: Value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
        if let Some(spec) = &self.spec {
            document["spec"] = spec.clone();
        }
        if let Some(annotation) = self.annotation {
            document["metadata"]["annotations"][AUTO_UPDATE] = annotation.to_string().into();
        }
        let text = document.to_string();
        let decoded = decode_json(live.schema(), live.ty(), text.as_bytes(), Strictness::Ignore);
        let mut object = decoded.map_err(|error| failed(&error))?.tree;
        apply_defaults(&mut object);
        Ok(object)
    }
}
