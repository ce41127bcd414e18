//! get and list.

use super::Call;
use crate::body::Body;
use crate::list_memory::ListMemory;
use crate::{params, respond};
use apiserver_registry::{RegistryError, ResourceRow};
use http::{Response, StatusCode};
use machinery_meta::field_selector::FieldSelector;

pub(crate) async fn get(call: &Call) -> Result<Response<Body>, RegistryError> {
    let showing = call.showing()?;
    let revision = params::get(&call.query)?;
    let entry = call
        .store
        .get(&call.info.scope, &call.info.name, revision)
        .await?;
    respond::entry_answer(&call.store, showing, StatusCode::OK, &entry)
}

pub(crate) async fn list(call: &Call, memory: &ListMemory) -> Result<Response<Body>, RegistryError> {
    let showing = call.showing()?;
    let options = params::list(&call.query, "")?;
    check_fields(call.row(), &options.predicate.fields)?;
    let page = call.store.list(&call.info.scope, &options).await?;
    let copied = !respond::is_shared(call.row(), showing.form, &page);
    let room = memory.admit(&call.ctx, &page, copied)?;
    Ok(room.with(respond::list(&call.store, showing, page)?))
}

/// Kinds whose first version named the problem differently.
const OLD_WORDS: [&str; 10] = [
    "pods",
    "nodes",
    "events",
    "secrets",
    "namespaces",
    "services",
    "replicationcontrollers",
    "replicasets",
    "jobs",
    "certificatesigningrequests",
];

/// Only declared fields can be selected by.
pub(crate) fn check_fields(row: &ResourceRow, fields: &FieldSelector) -> Result<(), RegistryError> {
    for term in fields.terms() {
        let field = term.field.as_str();
        let known = matches!(field, "metadata.name" | "metadata.namespace")
            || row.selectable.iter().any(|own| own.label == field);
        if !known {
            return Err(RegistryError::BadRequest(
                if row.custom || OLD_WORDS.contains(&row.plural.as_str()) {
                    format!("field label not supported: {field}")
                } else {
                    format!(
                        "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    )
                },
            ));
        }
    }
    Ok(())
}
