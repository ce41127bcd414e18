//! The fields of a new object as `FieldsV1`, written in one walk: what a create owns.

use super::compare::differ;
use super::fields_v1::write_name_of_item;
use super::rules::{Identity, ListForm, SchemaPosition};
use crate::json::write_prefixed_string;
use crate::table::{Field, Schema};
use crate::tree::{Kind, Node, Ref, Tree};

/// Members without an owner: of the root, and of the metadata.
#[derive(Debug, Clone, Copy)]
pub struct UnownedMembers<'a> {
    pub root: &'a [&'a str],
    pub metadata: &'a [&'a str],
}

/// Fields that an object has beyond `nothing`, which is an empty one of its type; `None` if there are none.
pub(super) fn initial_fields(
    schema: &Schema,
    place: SchemaPosition<'_>,
    nothing: &Tree,
    object: &Tree,
    unowned: UnownedMembers<'_>,
) -> Option<String> {
    let mut walk = Walk {
        schema,
        unowned,
        members: Vec::with_capacity(64),
    };
    let mut out = Vec::with_capacity(2048);
    let written = walk.members(&mut out, Some(nothing.root()), object.root(), place, Level::Root);
    let text = String::from_utf8(out).ok()?;
    written.then_some(text)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Metadata,
    Below,
}

struct Walk<'s, 't> {
    schema: &'s Schema,
    unowned: UnownedMembers<'s>,
    /// Members that are still to be written, of all levels above.
    members: Vec<(&'t str, Node, Option<&'s Field>)>,
}

impl<'s, 't> Walk<'s, 't> {
    /// Writes what of a value is there; says whether there is anything, and leaves no trace otherwise.
    fn value(
        &mut self,
        out: &mut Vec<u8>,
        before: Option<Ref<'_>>,
        after: Ref<'t>,
        place: SchemaPosition<'s>,
    ) -> bool {
        // What is empty is a field of its own.
        let form = match after.is_empty() {
            true => ListForm::Leaf,
            false => place.form(self.schema, after),
        };
        match form {
            ListForm::Map => self.members(out, before, after, place, Level::Below),
            ListForm::List => self.items(out, before, after, place),
            ListForm::Leaf => {
                let own = before.is_none_or(|before| differ(before, after));
                if own {
                    out.extend_from_slice(b"{}");
                }
                own
            }
        }
    }

    fn members(
        &mut self,
        out: &mut Vec<u8>,
        before: Option<Ref<'_>>,
        after: Ref<'t>,
        place: SchemaPosition<'s>,
        level: Level,
    ) -> bool {
        let skipped: &[&str] = match level {
            Level::Root => self.unowned.root,
            Level::Metadata => self.unowned.metadata,
            Level::Below => &[],
        };
        let start = self.members.len();
        self.put_aside(after, place, skipped);
        let end = self.members.len();
        let mut open = Open::new(out, before.is_none() && level == Level::Below);
        for at in start..end {
            let (name, node, field) = self.members[at];
            let (member, place) = match field {
                Some(field) => (
                    after.child_of(node, field),
                    SchemaPosition::of_field(self.schema, field),
                ),
                None => (after.child(node), place.member(self.schema, name).0),
            };
            let before = before.and_then(|before| before.get(name));
            open.member(
                |out| write_field(out, name, node),
                |out| match level {
                    Level::Root if name == "metadata" && member.kind() == Kind::Map => {
                        self.members(out, before, member, place, Level::Metadata)
                    }
                    _ => self.value(out, before, member, place),
                },
            );
        }
        self.members.truncate(start);
        open.close()
    }

    /// The members of a value that a field manager may own, in the order of their names, and what the schema says of fields.
    fn put_aside(&mut self, value: Ref<'t>, place: SchemaPosition<'s>, skipped: &[&str]) {
        let is_known = place.ty == value.ty && std::ptr::eq(self.schema, value.schema());
        let fields = if is_known {
            self.schema.fields(place.ty)
        } else {
            &[]
        };
        let start = self.members.len();
        for node in value.member_nodes() {
            let field = if node.is_named() {
                None
            } else {
                fields.get(node.position())
            };
            let name = match field {
                Some(field) => value.schema().text(field.name),
                None => value.tree.name_of(value.ty, *node),
            };
            if !skipped.contains(&name) {
                self.members.push((name, *node, field));
            }
        }
        self.members[start..].sort_unstable_by_key(|(name, ..)| *name);
    }

    fn items(
        &mut self,
        out: &mut Vec<u8>,
        before: Option<Ref<'_>>,
        after: Ref<'t>,
        place: SchemaPosition<'s>,
    ) -> bool {
        let known = |item| Some((place.identity(self.schema, item).ok()?, item));
        let mut items: Vec<(Identity<'_, '_>, Ref<'_>)> = after.items().filter_map(known).collect();
        items.sort_unstable_by(|(one, _), (next, _)| one.cmp(next));
        let mut open = Open::new(out, before.is_none());
        for same in items.chunk_by(|(one, _), (next, _)| one == next) {
            open.member(
                |out| write_name_of_item(out, &same[0].0),
                |out| match same {
                    [(_, item)] => self.value(out, None, *item, place.item(self.schema)),
                    // Of items that cannot be distinguished only the element is a field.
                    _ => {
                        out.extend_from_slice(b"{}");
                        true
                    }
                },
            );
        }
        open.close()
    }
}

fn write_field(out: &mut Vec<u8>, name: &str, node: Node) {
    if node.is_named() {
        return write_prefixed_string(out, b"f:", name);
    }
    // Names of fields need no escapes.
    out.reserve(name.len() + 4);
    out.extend_from_slice(b"\"f:");
    out.extend_from_slice(name.as_bytes());
    out.push(b'"');
}

/// An object of `FieldsV1` under way.
pub(super) struct Open<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    own: bool,
    any: bool,
}

impl<'o> Open<'o> {
    /// Begins one; `own` where the path itself is in the set.
    pub(super) fn new(out: &'o mut Vec<u8>, own: bool) -> Self {
        let start = out.len();
        out.push(b'{');
        if own {
            out.extend_from_slice(b"\".\":{},");
        }
        Self {
            out,
            start,
            own,
            any: false,
        }
    }

    /// Writes a member where its value says that there is one.
    pub(super) fn member(
        &mut self,
        name: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>) -> bool,
    ) {
        let mark = self.out.len();
        name(self.out);
        self.out.push(b':');
        if value(self.out) {
            self.out.push(b',');
            self.any = true;
        } else {
            self.out.truncate(mark);
        }
    }

    /// Writes members that are there already.
    pub(super) fn copy(&mut self, members: &[u8]) {
        self.out.extend_from_slice(members);
        self.out.push(b',');
        self.any = true;
    }

    /// Ends it; says whether anything is in the set, and leaves no trace otherwise.
    pub(super) fn close(self) -> bool {
        if self.any {
            self.out.pop();
            self.out.push(b'}');
        } else {
            self.out.truncate(self.start);
            if self.own {
                self.out.extend_from_slice(b"{}");
            }
        }
        self.any || self.own
    }
}
