//! get and list.

use super::{Call, Inner};
use crate::body::Body;
use crate::error::ApiError;
use crate::{params, respond};
use apiserver_registry::context::LARGE_BODY_BYTES;
use apiserver_registry::{RegistryError, ResourceRow};
use http::{Response, StatusCode};
use machinery_meta::field_selector::FieldSelector;

pub(crate) async fn get(call: &Call, endpoints: &Inner) -> Result<Response<Body>, ApiError> {
    let showing = call.response_options()?;
    let revision = params::get(&call.query)?;
    let entry = call
        .store
        .get(&call.info.scope, &call.info.name, revision)
        .await?;
    let (bytes, answer) = (entry.record.len(), || {
        respond::entry_answer(&call.store, showing, StatusCode::OK, &entry)
    });
    if bytes < LARGE_BODY_BYTES || respond::is_sent_as_stored(call.row(), showing.form, &entry) {
        let room = endpoints.unread_memory.admit(&call.ctx, bytes)?;
        return Ok(room.with(answer()?));
    }
    let room = endpoints.list_memory.admit_object(&call.ctx, bytes)?;
    call.ctx.heavy_from(bytes, LARGE_BODY_BYTES).await?;
    Ok(room.with(answer()?))
}

pub(crate) async fn list(call: &Call, endpoints: &Inner) -> Result<Response<Body>, ApiError> {
    let showing = call.response_options()?;
    let options = params::list(&call.query, "")?;
    check_fields(call.row(), &options.predicate.fields)?;
    let page = call.store.list(&call.info.scope, &options).await?;
    endpoints
        .hooks
        .listed(call.row(), page.fetched, page.entries.len());
    let copied = !respond::is_shared(call.row(), showing.form, &page);
    let room = endpoints.list_memory.admit(&call.ctx, &page, copied)?;
    let referred = if copied { 0 } else { page.record_bytes() };
    let unread = endpoints.unread_memory.admit(&call.ctx, referred)?;
    if copied {
        call.ctx.heavy_from(page.record_bytes(), LARGE_BODY_BYTES).await?;
    }
    Ok(unread.with(room.with(respond::list(&call.store, showing, page)?)))
}

/// Cluster-wide kinds whose own list of fields leaves the namespace out.
fn selects_by_namespace(row: &ResourceRow) -> bool {
    let (group, plural) = (row.gvk.group.as_str(), row.plural.as_str());
    !matches!(
        (group, plural),
        ("", "nodes" | "namespaces")
            | (
                "certificates.k8s.io",
                "certificatesigningrequests" | "clustertrustbundles" | "podcertificaterequests"
            )
            | ("resource.k8s.io", "resourceslices")
    )
}

/// Upstream's words about a field that nothing is selected by; kinds with a list of their own have others.
fn unknown_field(row: &ResourceRow, field: &str) -> String {
    match (row.gvk.group.as_str(), row.plural.as_str()) {
        _ if row.custom => format!("field label not supported: {field}"),
        (
            "",
            "events" | "namespaces" | "nodes" | "pods" | "replicationcontrollers" | "secrets" | "services",
        )
        | ("events.k8s.io", "events")
        | (
            "certificates.k8s.io",
            "certificatesigningrequests" | "clustertrustbundles" | "podcertificaterequests",
        ) => format!("field label not supported: {field}"),
        ("batch", "jobs") => format!("field label {field:?} not supported for Job"),
        ("resource.k8s.io", "resourceslices") => {
            format!("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {field}")
        }
        _ => {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
    }
}

/// Checks that only declared fields are selected by.
pub(crate) fn check_fields(row: &ResourceRow, fields: &FieldSelector) -> Result<(), RegistryError> {
    for term in fields.terms() {
        let field = term.field.as_str();
        let known = field == "metadata.name"
            || (field == "metadata.namespace" && selects_by_namespace(row))
            || row.selectable.iter().any(|own| own.label == field);
        if !known {
            return Err(RegistryError::BadRequest(unknown_field(row, field)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver_registry::kinds;

    /// Every kind, by its namespace and by a field that there is not, as the real server answers.
    #[test]
    fn field_selectors_are_known_and_refused_as_upstreams() {
        let rows = kinds::built_in_rows();
        let mut compared = 0;
        for line in include_str!("../../testdata/field_selectors.tsv").lines() {
            let [version, plural, namespace, bogus] = line.split('\t').collect::<Vec<_>>()[..] else {
                continue;
            };
            let row = rows
                .iter()
                .find(|row| row.gvk.api_version() == version && row.plural == plural);
            let Some(row) = row else {
                continue;
            };
            for (field, expected) in [("metadata.namespace", namespace), ("bogus", bogus)] {
                let found = match check_fields(row, &FieldSelector::equals(field, "x")) {
                    Ok(()) => String::new(),
                    Err(error) => error.to_string(),
                };
                assert_eq!(found, expected, "{version} {plural} {field}");
                compared += 1;
            }
        }
        assert!(compared > 100, "{compared}");
    }
}
