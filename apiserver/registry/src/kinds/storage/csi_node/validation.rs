//! Validation of CSINodes.

use crate::shared::validation::{Errors, Path, csi_driver_name, non_negative, present, qualified};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::Ref;
use machinery_schema::leaf::go_quote;
use std::collections::{HashMap, HashSet};

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

/// Every problem of a changed CSINode: a driver that stays is as it was, but for the number of its volumes.
pub(super) fn validate_update(node: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    errors.extend(validate(node));
    let mut new: HashMap<&str, Vec<Ref<'_>>> = HashMap::new();
    for own in drivers(node) {
        new.entry(own.str("name")).or_default().push(own);
    }
    for was in drivers(old) {
        for own in new.get(was.str("name")).into_iter().flatten() {
            if internal(*own) != internal(was) {
                let shown = Shown(internal(*own));
                errors.invalid(&Path::of("spec.drivers"), shown, "field is immutable");
            }
        }
    }
    errors.into_list()
}

fn drivers(node: Ref<'_>) -> Vec<Ref<'_>> {
    let spec = node.get("spec").into_iter();
    spec.flat_map(|spec| spec.list("drivers")).collect()
}

/// A driver by Go's names of its members, without the number of its volumes.
fn internal(driver: Ref<'_>) -> String {
    let [name, id] = ["name", "nodeID"].map(|member| go_quote(driver.str(member)));
    let keys = present(driver, "topologyKeys").map_or_else(|| "null".to_owned(), Ref::to_json);
    format!(r#"{{"Name":{name},"NodeID":{id},"TopologyKeys":{keys},"Allocatable":null}}"#)
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
