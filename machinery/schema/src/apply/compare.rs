//! Differences between two documents of one type.

use super::Typed;
use super::members::{each_changed, each_member};
use super::rules::{ListForm, SchemaPosition};
use super::set::{Element, FieldSet};
use crate::table::Schema;
use crate::tree::{Kind, Ref, Tree};
use std::collections::BTreeMap;

/// Values less deep than this are first looked at for being equal as a whole, which costs a walk over them each time.
const MAX_EQUAL_DEPTH: usize = 8;

/// Fields that differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

impl Comparison {
    /// Keeps what `keep` makes of each set.
    #[must_use]
    pub fn map(self, keep: impl Fn(FieldSet) -> FieldSet) -> Self {
        Self {
            added: keep(self.added),
            modified: keep(self.modified),
            removed: keep(self.removed),
        }
    }
}

pub(super) fn compare(before: Typed<'_>, after: &Tree, without: &[&str]) -> Comparison {
    let walk = Walk {
        schema: before.schema,
    };
    let place = SchemaPosition::root(before.ty);
    let (old, new) = (before.document.root(), after.root());
    let mut found = Found::default();
    each_member(Some(old), Some(new), |name, old, new| {
        if without.contains(&name) {
            return;
        }
        let child = place.member(walk.schema, name).0;
        let below = match name {
            "metadata" => walk.metadata(old, new, child),
            _ => walk.value(old, new, child, 1),
        };
        found.put(|| Element::Field(name.to_owned()), below);
    });
    found.below
}

struct Walk<'s> {
    schema: &'s Schema,
}

/// Differences at and below one place; sets are put together on the way back, so that no path is written twice.
#[derive(Default)]
struct Found {
    added: bool,
    modified: bool,
    removed: bool,
    below: Comparison,
}

impl Found {
    fn is_nothing(&self) -> bool {
        let Comparison {
            added,
            modified,
            removed,
        } = &self.below;
        !(self.added || self.modified || self.removed)
            && [added, modified, removed].iter().all(|set| set.is_empty())
    }

    fn put(&mut self, element: impl FnOnce() -> Element, found: Found) {
        if found.is_nothing() {
            return;
        }
        let (element, below) = (element(), found.below);
        let sets = [
            (&mut self.below.added, found.added, below.added),
            (&mut self.below.modified, found.modified, below.modified),
            (&mut self.below.removed, found.removed, below.removed),
        ];
        for (set, own, below) in sets {
            if own || !below.is_empty() {
                set.put(element.clone(), own, below);
            }
        }
    }
}

/// Reports whether leaves differ; opaque JSON is compared by its value, not by its text.
pub(super) fn differ(before: Ref<'_>, after: Ref<'_>) -> bool {
    match (before.kind(), after.kind()) {
        (Kind::Raw, _) | (_, Kind::Raw) => before.opened() != after.opened(),
        _ => before != after,
    }
}

impl<'s> Walk<'s> {
    /// The metadata of an object; the record of owners has no owner.
    fn metadata(&self, before: Option<Ref<'_>>, after: Option<Ref<'_>>, place: SchemaPosition<'s>) -> Found {
        let is_map = |side: Option<Ref<'_>>| side.is_none_or(|side| side.kind() == Kind::Map);
        if !is_map(before) || !is_map(after) {
            return self.value(before, after, place, 1);
        }
        let mut found = Found {
            added: before.is_none(),
            removed: after.is_none(),
            ..Found::default()
        };
        each_changed(before, after, |name, old, new| {
            if name != "managedFields" {
                let child = place.member(self.schema, name).0;
                found.put(
                    || Element::Field(name.to_owned()),
                    self.changed(old, new, child, 2),
                );
            }
        });
        found
    }

    fn value(
        &self,
        before: Option<Ref<'_>>,
        after: Option<Ref<'_>>,
        place: SchemaPosition<'s>,
        depth: usize,
    ) -> Found {
        if let (Some(before), Some(after)) = (before, after)
            && depth < MAX_EQUAL_DEPTH
            && before == after
        {
            return Found::default();
        }
        self.changed(before, after, place, depth)
    }

    /// The same as [`value`](Self::value), where both sides are not equal as a whole or too deep for a look at that.
    fn changed(
        &self,
        before: Option<Ref<'_>>,
        after: Option<Ref<'_>>,
        place: SchemaPosition<'s>,
        depth: usize,
    ) -> Found {
        let alone = |before, after| self.alone(before, after, place, depth);
        match (before, after) {
            (Some(before), Some(after)) => self.both(before, after, place, depth),
            (None, Some(only)) => Found {
                added: true,
                ..alone(None, Some(only))
            },
            (Some(only), None) => Found {
                removed: true,
                ..alone(Some(only), None)
            },
            (None, None) => Found::default(),
        }
    }

    fn form(&self, value: Ref<'_>, place: SchemaPosition<'s>) -> ListForm {
        match place.form(self.schema, value) {
            // What is empty is a field of its own.
            _ if value.is_empty() => ListForm::Leaf,
            form => form,
        }
    }

    fn both(&self, before: Ref<'_>, after: Ref<'_>, place: SchemaPosition<'s>, depth: usize) -> Found {
        match (self.form(before, place), self.form(after, place)) {
            (ListForm::Map, ListForm::Map) => self.members(Some(before), Some(after), place, depth),
            (ListForm::List, ListForm::List) => self.items(Some(before), Some(after), place, depth),
            (ListForm::Leaf, ListForm::Leaf) => Found {
                modified: differ(before, after),
                ..Found::default()
            },
            // All below came or went. Null and an empty value of the same kind are no values of their own beside it; a
            // value of another kind is: upstream compares by the form of each side (typed/compare.go `compare`).
            _ => Found {
                modified: !(before.is_null() || after.is_null() || before.kind() == after.kind()),
                below: Comparison {
                    removed: self.alone(Some(before), None, place, depth).below.removed,
                    added: self.alone(None, Some(after), place, depth).below.added,
                    modified: FieldSet::default(),
                },
                ..Found::default()
            },
        }
    }

    /// All below a value that is on one side only.
    fn alone(
        &self,
        before: Option<Ref<'_>>,
        after: Option<Ref<'_>>,
        place: SchemaPosition<'s>,
        depth: usize,
    ) -> Found {
        match before.or(after).map(|only| self.form(only, place)) {
            Some(ListForm::Map) => self.members(before, after, place, depth),
            Some(ListForm::List) => self.items(before, after, place, depth),
            Some(ListForm::Leaf) | None => Found::default(),
        }
    }

    fn members(
        &self,
        before: Option<Ref<'_>>,
        after: Option<Ref<'_>>,
        place: SchemaPosition<'s>,
        depth: usize,
    ) -> Found {
        let mut found = Found::default();
        let visit = |name: &str, old: Option<Ref<'_>>, new: Option<Ref<'_>>| {
            let child = place.member(self.schema, name).0;
            found.put(
                || Element::Field(name.to_owned()),
                self.changed(old, new, child, depth + 1),
            );
        };
        match depth + 1 < MAX_EQUAL_DEPTH {
            true => each_changed(before, after, visit),
            false => each_member(before, after, visit),
        }
        found
    }

    fn items(
        &self,
        before: Option<Ref<'_>>,
        after: Option<Ref<'_>>,
        place: SchemaPosition<'s>,
        depth: usize,
    ) -> Found {
        let mut all: BTreeMap<Element, [Vec<Ref<'_>>; 2]> = BTreeMap::new();
        for (side, list) in [before, after].into_iter().enumerate() {
            for item in list.into_iter().flat_map(Ref::items) {
                if let Ok(element) = place.element(self.schema, item) {
                    all.entry(element).or_default()[side].push(item);
                }
            }
        }
        let mut found = Found::default();
        for (element, [old, new]) in all {
            let below = self.item(&old, &new, place.item(self.schema), depth + 1);
            found.put(|| element, below);
        }
        found
    }

    /// Items with one element; those that cannot be distinguished are compared as a whole.
    fn item(&self, old: &[Ref<'_>], new: &[Ref<'_>], place: SchemaPosition<'s>, depth: usize) -> Found {
        match (old.len(), new.len()) {
            (..=1, ..=1) => self.value(old.first().copied(), new.first().copied(), place, depth),
            (2.., 2..) => Found {
                modified: old != new,
                ..Found::default()
            },
            (2.., _) => Found {
                removed: true,
                ..new
                    .first()
                    .map_or_else(Found::default, |new| self.value(None, Some(*new), place, depth))
            },
            (_, _) => Found {
                added: true,
                ..old
                    .first()
                    .map_or_else(Found::default, |old| self.value(Some(*old), None, place, depth))
            },
        }
    }
}
