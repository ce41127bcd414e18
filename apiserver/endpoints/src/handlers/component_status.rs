//! `componentstatuses`: how the parts of the control plane fare, made when requested and stored nowhere
//! (upstream's `registry/core/componentstatus/rest.go`).

use super::{Call, read};
use crate::body::Body;
use crate::error::ApiError;
use crate::hooks::{Component, Hooks};
use crate::{params, respond};
use apiserver_registry::{Entry, ListPage, RegistryError, Store};
use http::{Response, StatusCode};
use machinery_schema::{Strictness, decode_json};
use serde_json::json;
use std::sync::Arc;

/// get and list; nothing else is there.
pub(super) async fn answer(call: &Call, hooks: &dyn Hooks) -> Result<Response<Body>, ApiError> {
    let showing = call.response_options()?;
    let components = hooks.components().await;
    let mut entries = Vec::with_capacity(components.len());
    for component in &components {
        entries.push(Arc::new(entry(&call.store, component).await?));
    }
    if call.info.verb == "get" {
        let name = &call.info.name;
        let found = components.iter().position(|component| component.name == *name);
        let found = found.ok_or_else(|| RegistryError::not_found(&call.row().group_resource(), name))?;
        return respond::entry_answer(&call.store, showing, StatusCode::OK, &entries[found]);
    }
    let options = params::list(&call.query, "")?;
    read::check_fields(call.row(), &options.predicate.fields)?;
    entries.retain(|entry| options.predicate.matches(&entry.record.header));
    let page = ListPage {
        revision: entries.first().map(|entry| entry.revision).unwrap_or_default(),
        entries,
        ..ListPage::default()
    };
    respond::list(&call.store, showing, page)
}

async fn entry(store: &Store, component: &Component) -> Result<Entry, RegistryError> {
    let mut condition = json!({"type": "Healthy", "status": "True", "message": "ok"});
    if let Err(error) = &component.health {
        condition = json!({"type": "Healthy", "status": "False", "error": error});
    }
    let object = json!({"kind": "ComponentStatus", "apiVersion": "v1",
        "metadata": {"name": component.name}, "conditions": [condition]});
    let (stored, text) = (&store.row.stored, object.to_string());
    let decoded = decode_json(&stored.schema, stored.ty, text.as_bytes(), Strictness::Ignore);
    let decoded = decoded.map_err(|error| RegistryError::Internal(error.to_string()))?;
    store.made(component.name, &decoded.tree).await
}
