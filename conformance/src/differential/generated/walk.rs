//! Fields of an object's types, those that the object has and those that it could have.

use std::collections::HashSet;

use serde_json::Value;

use super::{Edit, values};
use crate::facts::{Facts, Field};

/// The longest path below the root in an update: what is deeper is validated as it is in a create.
const UPDATE_DEPTH: usize = 4;

/// Members of the metadata that are changed once a kind; the others are changed once.
const METADATA_OF_EACH_KIND: [&str; 5] = ["name", "labels", "annotations", "finalizers", "ownerReferences"];

/// Fields whose changes are generated already.
#[derive(Debug, Default)]
pub(super) struct Walked {
    created: HashSet<String>,
    updated: HashSet<String>,
}

/// One change and its name (`spec.replicas=negative`).
pub(super) type Change = (String, Edit);

/// A walk through one object.
struct Walk<'a> {
    facts: &'a Facts,
    kind: &'a str,
    seen: &'a mut HashSet<String>,
    is_update: bool,
    changes: Vec<Change>,
}

/// Changes for creates of an object, but for its status.
pub(super) fn creates(facts: &Facts, walked: &mut Walked, kind: (&str, &str), object: &Value) -> Vec<Change> {
    changes(facts, &mut walked.created, kind, object, false)
}

/// Changes for updates of an object, but for its status.
pub(super) fn updates(facts: &Facts, walked: &mut Walked, kind: (&str, &str), object: &Value) -> Vec<Change> {
    changes(facts, &mut walked.updated, kind, object, true)
}

fn changes(
    facts: &Facts,
    seen: &mut HashSet<String>,
    (api_version, kind): (&str, &str),
    object: &Value,
    is_update: bool,
) -> Vec<Change> {
    let mut walk = Walk {
        facts,
        kind,
        seen,
        is_update,
        changes: Vec::new(),
    };
    let Some(name) = facts.kind_name(api_version, kind) else {
        return Vec::new();
    };
    for field in facts.fields(name) {
        if matches!(field.name.as_str(), "status" | "apiVersion" | "kind") {
            continue;
        }
        walk.field(name, field, object.get(&field.name), &[]);
    }
    walk.changes
}

/// Changes of a status that is empty.
pub(super) fn statuses(facts: &Facts, walked: &mut Walked, (api_version, kind): (&str, &str)) -> Vec<Change> {
    let status = facts.kind_name(api_version, kind).and_then(|name| {
        facts
            .fields(name)
            .into_iter()
            .find(|field| field.name == "status")
    });
    let Some(status) = status else {
        return Vec::new();
    };
    let mut walk = Walk {
        facts,
        kind,
        seen: &mut walked.created,
        is_update: false,
        changes: Vec::new(),
    };
    let type_ = status.type_.trim_start_matches('*');
    for field in facts.fields(type_) {
        walk.field(type_, field, None, &["status".to_owned()]);
    }
    walk.changes
}

impl Walk<'_> {
    /// The changes of one field, then those of what is below it. `parent` is the type that has the field, or the field
    /// that has this type: the same type at another place may be validated otherwise.
    fn field(&mut self, parent: &str, field: &Field, present: Option<&Value>, above: &[String]) {
        if field.name == "managedFields" {
            return;
        }
        let mut path = above.to_vec();
        path.push(field.name.clone());
        let values = match (self.is_update, present) {
            (false, present) => values::malformed(self.facts, field, present),
            (true, Some(present)) if path.len() <= UPDATE_DEPTH => {
                values::changed(self.facts, field, present)
            }
            (true, _) => Vec::new(),
        };
        let is_of_kind = above.len() == 1
            && above[0] == "metadata"
            && METADATA_OF_EACH_KIND.contains(&field.name.as_str());
        for (name, value) in values {
            let scope = if is_of_kind { self.kind } else { "" };
            if self
                .seen
                .insert(format!("{scope} {parent} {} {name}", field.name))
            {
                let edit = Edit {
                    path: path.clone(),
                    value,
                };
                self.changes.push((format!("{}={name}", path.join(".")), edit));
            }
        }
        if let Some(present) = present {
            let owner = field_owner(parent, field);
            self.below(&owner, &field.type_, present, &path);
        }
    }

    fn below(&mut self, owner: &str, type_: &str, value: &Value, path: &[String]) {
        let type_ = type_.trim_start_matches('*');
        let with = |step: String| {
            let mut path = path.to_vec();
            path.push(step);
            path
        };
        if let (Some(element), Value::Array(items)) = (type_.strip_prefix("[]"), value) {
            for (index, item) in items.iter().enumerate() {
                self.below(owner, element, item, &with(index.to_string()));
            }
        } else if let (Some(element), Value::Object(members)) = (type_.strip_prefix("map[string]"), value) {
            for (name, member) in members {
                self.below(owner, element, member, &with(name.clone()));
            }
        } else if value.is_object()
            && self
                .facts
                .type_named(type_)
                .is_some_and(|type_| type_.marker.is_none())
        {
            for field in self.facts.fields(type_) {
                self.field(&format!("{owner} {type_}"), field, value.get(&field.name), path);
            }
        }
    }
}

/// Type and field that a value stands in, without what is above the type.
fn field_owner(parent: &str, field: &Field) -> String {
    let type_ = parent.rsplit(' ').next().unwrap_or(parent);
    if field.name == "metadata" {
        return String::new();
    }
    format!("{type_}.{}", field.name)
}
