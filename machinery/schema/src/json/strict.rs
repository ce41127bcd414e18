//! Position of the decoder in the document, and the errors that it collects there.

use crate::table::{Schema, TypeId};
use std::fmt::Write;

/// Most unknown and duplicate fields that are listed, as upstream does.
const MAX_STRICT_ERRORS: usize = 100;
/// And no more once they have this many bytes: paths repeat the names of maps, which may be long.
const MAX_STRICT_BYTES: usize = 1 << 20;

/// One step from the root to here.
#[derive(Debug, Clone, Copy)]
pub(super) enum PathStep {
    Field {
        parent: TypeId,
        position: usize,
    },
    /// A map key: where in the tree's text it is.
    Key {
        start: u32,
        len: u32,
    },
    Index(usize),
}

/// The way from the root, and the strict errors found on it.
#[derive(Debug)]
pub(super) struct Strict {
    pub(super) path: Vec<PathStep>,
    pub(super) errors: Vec<String>,
    bytes: usize,
    pub(super) enabled: bool,
}

impl Strict {
    pub(super) fn new(enabled: bool) -> Self {
        Self {
            path: Vec::with_capacity(16),
            errors: Vec::new(),
            bytes: 0,
            enabled,
        }
    }

    #[cold]
    pub(super) fn unknown(&mut self, schema: &Schema, text: &str, name: &str) {
        self.record("unknown", schema, text, name);
    }

    #[cold]
    pub(super) fn duplicate(&mut self, schema: &Schema, text: &str, name: &str) {
        self.record("duplicate", schema, text, name);
    }

    fn record(&mut self, what: &str, schema: &Schema, text: &str, name: &str) {
        let full = self.errors.len() >= MAX_STRICT_ERRORS || self.bytes >= MAX_STRICT_BYTES;
        if !self.enabled || full {
            return;
        }
        let mut path = self.full(schema, text);
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
        let error = format!("{what} field {}", crate::leaf::go_quote(&path));
        self.bytes += error.len();
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    /// The path from the root to here.
    pub(super) fn full(&self, schema: &Schema, text: &str) -> String {
        let mut out = String::new();
        for step in &self.path {
            let name = match step {
                PathStep::Index(index) => {
                    let _ = write!(out, "[{index}]");
                    continue;
                }
                PathStep::Field { parent, position } => field_name(schema, *parent, *position),
                PathStep::Key { start, len } => text
                    .get(*start as usize..(*start + *len) as usize)
                    .unwrap_or_default(),
            };
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(name);
        }
        out
    }

    /// `into Go struct field PodSpec.spec.replicas of type int32`, or `into Go value of type v1.Pod`.
    pub(super) fn go_context(&self, schema: &Schema, go_type: &str) -> String {
        let mut names = Vec::new();
        let mut owner = None;
        for step in &self.path {
            if let PathStep::Field { parent, position } = step {
                inlined_names(schema, *parent, *position, &mut names);
                names.push(field_name(schema, *parent, *position));
                owner = Some(*parent);
            }
        }
        match owner {
            None => format!("into Go value of type {go_type}"),
            Some(owner) => {
                let (owner, path) = (schema.struct_name(owner), names.join("."));
                format!("into Go struct field {owner}.{path} of type {go_type}")
            }
        }
    }
}

fn field_name(schema: &Schema, parent: TypeId, position: usize) -> &str {
    schema
        .field_at(parent, position)
        .map_or("", |field| schema.text(field.name))
}

/// Go puts the names of the inlined structs on the way to a field into its path.
fn inlined_names<'s>(schema: &'s Schema, parent: TypeId, position: usize, names: &mut Vec<&'s str>) {
    let groups = schema.groups(schema.ty(parent));
    let mut own = Vec::new();
    let mut at = schema.field_at(parent, position).map_or(0, |field| field.group);
    while let Some(group) = usize::from(at).checked_sub(1).and_then(|index| groups.get(index)) {
        own.push(schema.text(group.name));
        // A parent comes before its children, so this ends.
        at = group.parent.min(at - 1);
    }
    names.extend(own.into_iter().rev());
}
