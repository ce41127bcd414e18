//! The fields of a new object as `FieldsV1`, written in one walk: what a create owns.

use super::compare::differ;
use super::fields_v1::name_of_item;
use super::rules::{Identity, ListForm, SchemaPosition};
use crate::json::{write_prefixed_string, write_string};
use crate::table::Schema;
use crate::tree::{Kind, Ref, Tree};

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
    members: Vec<(&'t str, Ref<'t>)>,
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
        let own = after.entries().filter(|(name, _)| !skipped.contains(name));
        self.members.extend(own);
        let end = self.members.len();
        self.members[start..].sort_unstable_by_key(|(name, _)| *name);
        let mut open = Open::new(out, before.is_none() && level == Level::Below);
        for at in start..end {
            let (name, member) = self.members[at];
            let child = place.member(self.schema, name).0;
            let before = before.and_then(|before| before.get(name));
            open.member(
                |out| write_prefixed_string(out, b"f:", name),
                |out| match level {
                    Level::Root if name == "metadata" && member.kind() == Kind::Map => {
                        self.members(out, before, member, child, Level::Metadata)
                    }
                    _ => self.value(out, before, member, child),
                },
            );
        }
        self.members.truncate(start);
        open.close()
    }

    fn items(
        &mut self,
        out: &mut Vec<u8>,
        before: Option<Ref<'_>>,
        after: Ref<'t>,
        place: SchemaPosition<'s>,
    ) -> bool {
        let known = |item| Some((place.identity(self.schema, item).ok()?, item));
        let mut items: Vec<(Identity<'_>, Ref<'_>)> = after.items().filter_map(known).collect();
        items.sort_unstable_by(|(one, _), (next, _)| one.cmp(next));
        let mut open = Open::new(out, before.is_none());
        for same in items.chunk_by(|(one, _), (next, _)| one == next) {
            open.member(
                |out| write_string(out, &name_of_item(&same[0].0)),
                |out| match same {
                    [(_, item)] => self.value(out, None, *item, place.item(self.schema)),
                    // Of items that cannot be told apart only the element is a field.
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
