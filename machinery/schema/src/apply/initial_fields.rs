//! The fields of a new object as `FieldsV1`, written in one walk: what a create owns.

use super::compare::differ;
use super::fields_v1::name;
use super::rules::{ListForm, SchemaPosition};
use super::set::Element;
use crate::json::write_string;
use crate::table::Schema;
use crate::tree::{Kind, Ref, Tree};
use std::collections::BTreeMap;

/// Members that are nobody's: of the root, and of the metadata.
#[derive(Debug, Clone, Copy)]
pub struct UnownedMembers<'a> {
    pub root: &'a [&'a str],
    pub metadata: &'a [&'a str],
}

/// What an object has that `nothing`, one of its type that says nothing, has not; `None` where that is nothing.
pub(super) fn initial_fields(
    schema: &Schema,
    place: SchemaPosition<'_>,
    nothing: &Tree,
    object: &Tree,
    unowned: UnownedMembers<'_>,
) -> Option<String> {
    let walk = Walk { schema, unowned };
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

struct Walk<'s> {
    schema: &'s Schema,
    unowned: UnownedMembers<'s>,
}

impl<'s> Walk<'s> {
    /// Writes what of a value is there; says whether there is anything, and leaves no trace otherwise.
    fn value(
        &self,
        out: &mut Vec<u8>,
        before: Option<Ref<'_>>,
        after: Ref<'_>,
        place: SchemaPosition<'s>,
    ) -> bool {
        let form = match place.form(self.schema, after) {
            _ if after.is_empty() => ListForm::Leaf,
            form => form,
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
        &self,
        out: &mut Vec<u8>,
        before: Option<Ref<'_>>,
        after: Ref<'_>,
        place: SchemaPosition<'s>,
        level: Level,
    ) -> bool {
        let skipped: &[&str] = match level {
            Level::Root => self.unowned.root,
            Level::Metadata => self.unowned.metadata,
            Level::Below => &[],
        };
        let mut members: Vec<(&str, Ref<'_>)> = after
            .entries()
            .filter(|(name, _)| !skipped.contains(name))
            .collect();
        members.sort_unstable_by_key(|(name, _)| *name);
        let mut open = Open::new(out, before.is_none() && level == Level::Below);
        for (name, member) in members {
            let child = place.member(self.schema, name).0;
            let before = before.and_then(|before| before.get(name));
            open.member(
                |out| write_prefixed(out, name),
                |out| match level {
                    Level::Root if name == "metadata" && member.kind() == Kind::Map => {
                        self.members(out, before, member, child, Level::Metadata)
                    }
                    _ => self.value(out, before, member, child),
                },
            );
        }
        open.close()
    }

    fn items(
        &self,
        out: &mut Vec<u8>,
        before: Option<Ref<'_>>,
        after: Ref<'_>,
        place: SchemaPosition<'s>,
    ) -> bool {
        let mut items: BTreeMap<Element, Option<Ref<'_>>> = BTreeMap::new();
        for item in after.items() {
            if let Ok(element) = place.element(self.schema, item) {
                // Of items that cannot be told apart only the element is a field.
                items
                    .entry(element)
                    .and_modify(|own| *own = None)
                    .or_insert(Some(item));
            }
        }
        let mut open = Open::new(out, before.is_none());
        for (element, item) in items {
            open.member(
                |out| write_string(out, &name(&element)),
                |out| match item {
                    Some(item) => self.value(out, None, item, place.item(self.schema)),
                    None => {
                        out.extend_from_slice(b"{}");
                        true
                    }
                },
            );
        }
        open.close()
    }
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

/// `"f:name"`
pub(super) fn write_prefixed(out: &mut Vec<u8>, name: &str) {
    let start = out.len();
    write_string(out, name);
    // Between the quote and the name.
    out.splice(start + 1..start + 1, *b"f:");
}
