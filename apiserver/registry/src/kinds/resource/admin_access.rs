//! Devices may be looked at past their owners, in namespaces that a cluster's administrator has labelled for it.

use crate::engine::allocation::AllocationChange;
use crate::engine::error::RegistryError;
use crate::engine::metadata;
use crate::engine::options::RevisionMatch;
use crate::engine::registry::Registry;
use crate::engine::scope::Scope;
use machinery_meta::{FieldError, FieldPath, GroupKind};
use machinery_schema::{Ref, Tree};

const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Refuses a claim, a template or a result that requests it elsewhere.
///
/// # Errors
/// [`RegistryError::Invalid`] where the namespace lacks the label.
pub(crate) async fn check(
    registry: &Registry,
    plural: &str,
    change: AllocationChange<'_>,
    object: &Tree,
) -> Result<(), RegistryError> {
    let found = match change {
        AllocationChange::Create => requested_by(object.root(), plural == "resourceclaimtemplates"),
        // What was requested stays; what is given may be new.
        AllocationChange::Update { old } if granted(old).is_none() => granted(object.root()),
        AllocationChange::Update { .. } | AllocationChange::Delete => None,
    };
    let Some(path) = found else { return Ok(()) };
    let namespace = metadata::namespace(object);
    let store = registry
        .store("", "v1", "namespaces")
        .ok_or_else(|| RegistryError::Internal("namespaces are not served".into()))?;
    let entry = store
        .get(&Scope::Cluster, namespace, RevisionMatch::MostRecent)
        .await?;
    if entry.record.header.label(LABEL) == Some("true") {
        return Ok(());
    }
    let detail =
        format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
    let kind = if plural == "resourceclaims" {
        "ResourceClaim"
    } else {
        "ResourceClaimTemplate"
    };
    Err(RegistryError::Invalid {
        kind: GroupKind {
            group: "resource.k8s.io".into(),
            kind: kind.into(),
        },
        name: metadata::name(object).to_owned(),
        errors: vec![FieldError::forbidden(&path, detail)],
    })
}

/// The first request with it. Upstream names requests of templates by the path of claims.
fn requested_by(object: Ref<'_>, in_template: bool) -> Option<FieldPath> {
    let inner: &[&str] = if in_template {
        &["spec", "spec", "devices", "requests"]
    } else {
        &["spec", "devices", "requests"]
    };
    let requests = object.at(inner)?;
    let index = requests
        .items()
        .position(|own| own.at(&["exactly", "adminAccess"]).and_then(Ref::as_bool) == Some(true))?;
    let path = FieldPath::new("spec").child("devices").child("requests");
    Some(path.index(index).child("adminAccess"))
}

/// The first result with it.
fn granted(object: Ref<'_>) -> Option<FieldPath> {
    let results = object.at(&["status", "allocation", "devices", "results"])?;
    let index = results
        .items()
        .position(|own| own.get("adminAccess").and_then(Ref::as_bool) == Some(true))?;
    let path = FieldPath::new("status")
        .child("allocation")
        .child("devices")
        .child("results");
    Some(path.index(index).child("adminAccess"))
}
