//! Validation of CSINodes.

use crate::shared::validation::{Errors, Path, csi_driver_name, non_negative, present, qualified};
use machinery_meta::FieldError;
use machinery_schema::Ref;
use std::collections::HashSet;

const MAX_NODE_ID: usize = 256;

/// Every problem of a node's drivers, new or changed.
pub(super) fn validate(node: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(spec) = node.get("spec") else {
        return Vec::new();
    };
    let path = Path::of("spec.drivers");
    let mut seen = HashSet::new();
    for (index, driver) in spec.list("drivers").enumerate() {
        let at = path.index(index);
        let (name, name_path) = (driver.str("name"), at.child("name"));
        csi_driver_name(&mut errors, &name_path, name);
        node_id(&mut errors, &at.child("nodeID"), driver.str("nodeID"));
        if let Some(room) = present(driver, "allocatable") {
            non_negative(&mut errors, &at.child("allocatable"), room, "count");
        }
        if !seen.insert(name) {
            errors.duplicate(&name_path, name);
        }
        topology_keys(&mut errors, &at, driver);
    }
    errors.into_list()
}

fn node_id(errors: &mut Errors, path: &Path<'_>, id: &str) {
    if id.is_empty() {
        errors.required(path, "");
    }
    if id.len() > MAX_NODE_ID {
        errors.invalid(path, id, format!("must be {MAX_NODE_ID} characters or less"));
    }
}

/// Upstream's problems of keys are those of the whole driver.
fn topology_keys(errors: &mut Errors, path: &Path<'_>, driver: Ref<'_>) {
    let mut seen = HashSet::new();
    for key in driver.list("topologyKeys") {
        let key = key.as_str().unwrap_or_default();
        if key.is_empty() {
            errors.required(path, "");
        }
        if !seen.insert(key) {
            errors.duplicate(path, key);
        }
        qualified(errors, path, key);
    }
}
