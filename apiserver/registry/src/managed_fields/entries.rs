//! The record of owners as `metadata.managedFields` has it.

use super::Writer;
use crate::row::ResourceRow;
use machinery_schema::apply::{FieldSet, Steps};
use machinery_schema::{Exceeded, Ref, Tree};
use std::collections::HashMap;

/// How a manager came to its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn text(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// A manager and its fields.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) time: String,
    pub(super) subresource: String,
    pub(super) fields: FieldSet,
}

/// More managers than these by updates are joined, the oldest first, as upstream does it.
const MAX_UPDATE_MANAGERS: usize = 10;
const JOINED_MANAGER: &str = "ancient-changes";

impl Entry {
    pub(super) fn new(row: &ResourceRow, writer: &Writer, operation: Operation, fields: FieldSet) -> Self {
        Self {
            manager: writer.manager.clone(),
            operation,
            api_version: row.gvk.api_version(),
            time: writer.now.clone(),
            subresource: writer.part.subresource().to_owned(),
            fields,
        }
    }

    /// Whether the entry is the writer's own; of appliers the version does not matter.
    pub(super) fn is(&self, row: &ResourceRow, writer: &Writer, operation: Operation) -> bool {
        self.manager == writer.manager
            && self.operation == operation
            && self.subresource == writer.part.subresource()
            && (operation == Operation::Apply || self.api_version == row.gvk.api_version())
    }

    /// Takes a new set; the time moves only when the set does.
    pub(super) fn settle(&mut self, fields: FieldSet, now: &str) {
        if self.fields != fields {
            now.clone_into(&mut self.time);
            self.fields = fields;
        }
    }

    /// Upstream's order of entries.
    fn order(&self) -> (Operation, &str, &str, &str, &str) {
        (
            self.operation,
            &self.time,
            &self.manager,
            &self.api_version,
            &self.subresource,
        )
    }

    /// The manager as messages name it.
    pub(super) fn shown(&self) -> String {
        let mut out = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            out.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            out.push_str(&format!(" using {}", self.api_version));
        }
        out
    }
}

/// The entries of an object; those nobody can read are left out.
pub(super) fn read(object: &Tree) -> Vec<Entry> {
    let list = object.at(&["metadata", "managedFields"]);
    list.into_iter().flat_map(Ref::items).filter_map(entry).collect()
}

fn entry(value: Ref<'_>) -> Option<Entry> {
    let fields = value.get("fieldsV1")?;
    let text = fields.as_raw().map_or_else(|| fields.to_json(), str::to_owned);
    Some(Entry {
        manager: value.str("manager").to_owned(),
        operation: match value.str("operation") {
            "Apply" => Operation::Apply,
            _ => Operation::Update,
        },
        api_version: value.str("apiVersion").to_owned(),
        time: value.str("time").to_owned(),
        subresource: value.str("subresource").to_owned(),
        fields: FieldSet::from_json(&text)?,
    })
}

/// Joins the oldest entries of updates when there are too many.
pub(super) fn limit_updates(steps: &Steps, owners: &mut Vec<Entry>) -> Result<(), Exceeded> {
    let is_update = |entry: &mut Entry| entry.operation == Operation::Update;
    let mut updates: Vec<Entry> = owners.extract_if(.., is_update).collect();
    if updates.len() > MAX_UPDATE_MANAGERS {
        updates.sort_by(|a, b| (&a.time, &a.manager).cmp(&(&b.time, &b.manager)));
        let many = updates.len() - MAX_UPDATE_MANAGERS + 1;
        let mut joined: Vec<Entry> = Vec::new();
        let mut by_version: HashMap<String, usize> = HashMap::new();
        for old in updates.drain(..many) {
            match by_version.get(&old.api_version) {
                Some(at) => steps.absorb(&mut joined[*at].fields, &old.fields)?,
                None => {
                    by_version.insert(old.api_version.clone(), joined.len());
                    joined.push(Entry {
                        manager: JOINED_MANAGER.to_owned(),
                        subresource: String::new(),
                        ..old
                    });
                }
            }
        }
        updates.extend(joined);
    }
    owners.append(&mut updates);
    Ok(())
}

/// The entries as a list, in upstream's order.
pub(super) fn write(mut owners: Vec<Entry>) -> Tree {
    owners.sort_by(|a, b| a.order().cmp(&b.order()));
    let mut list = Tree::from_json("[]").unwrap_or_else(|_| Tree::untyped());
    for entry in owners {
        let json = format!(
            r#"{{"manager":{},"operation":"{}","apiVersion":{},"time":{},"fieldsType":"FieldsV1","fieldsV1":{}{}}}"#,
            text(&entry.manager),
            entry.operation.text(),
            text(&entry.api_version),
            text(&entry.time),
            entry.fields.to_json(),
            if entry.subresource.is_empty() {
                String::new()
            } else {
                format!(r#","subresource":{}"#, text(&entry.subresource))
            }
        );
        if let Ok(own) = Tree::from_json(&json) {
            list.root_mut().push(own.root());
        }
    }
    list
}

/// A text as JSON.
fn text(own: &str) -> String {
    let mut tree = Tree::untyped();
    tree.set_str(&["t"], own);
    tree.get("t").map(Ref::to_json).unwrap_or_default()
}
