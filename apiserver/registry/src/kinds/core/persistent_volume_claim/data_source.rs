//! Validation of where a claim's data come from.

use crate::shared::validation::{Errors, Path, dns_label, dns_subdomain, present};
use machinery_meta::field::Shown;
use machinery_schema::Ref;

/// Validates either spelling of the source, and that both say the same.
pub(super) fn validate(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let (source, reference) = (present(spec, "dataSource"), present(spec, "dataSourceRef"));
    if let Some(source) = source {
        one(errors, &path.child("dataSource"), source);
    }
    let Some(reference) = reference else { return };
    let at = path.child("dataSourceRef");
    one(errors, &at, reference);
    let namespace = reference.str("namespace");
    if !namespace.is_empty() {
        dns_label(errors, &at.child("namespace"), namespace);
    }
    let Some(source) = source else { return };
    // Upstream shows a path, which has nothing to show.
    let shown = Shown("{}".into());
    if !namespace.is_empty() {
        let detail = "may not be specified when dataSourceRef.namespace is specified";
        errors.invalid(path, shown, detail);
    } else if said(source) != said(reference) {
        errors.invalid(path, shown, "must match dataSourceRef");
    }
}

/// Group, kind and name; a group that is empty is another than none.
fn said(source: Ref<'_>) -> (Option<&str>, &str, &str) {
    let group = present(source, "apiGroup").and_then(Ref::as_str);
    (group, source.str("kind"), source.str("name"))
}

fn one(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    for name in ["name", "kind"] {
        if source.str(name).is_empty() {
            errors.required(&path.child(name), "");
        }
    }
    let (group, kind) = (source.str("apiGroup"), source.str("kind"));
    if !group.is_empty() {
        dns_subdomain(errors, &path.child("apiGroup"), group);
    } else if kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.invalid(path, kind, detail);
    }
}
