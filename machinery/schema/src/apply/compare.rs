//! What differs between two documents of one type.

use super::Typed;
use super::rules::{Form, Place};
use super::set::{Element, FieldSet};
use crate::table::Schema;
use crate::tree::{Ref, Tree};
use std::collections::BTreeMap;

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

pub(super) fn compare(before: Typed<'_>, after: &Tree) -> Comparison {
    let walk = Walk {
        schema: before.schema,
    };
    let place = Place::root(before.ty);
    walk.value(Some(before.document.root()), Some(after.root()), place)
        .below
}

struct Walk<'s> {
    schema: &'s Schema,
}

/// What was found at and below one place; sets are put together on the way back, so that no path is written twice.
#[derive(Default)]
struct Found {
    added: bool,
    modified: bool,
    removed: bool,
    below: Comparison,
}

impl Found {
    fn put(&mut self, element: Element, found: Found) {
        let below = found.below;
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

impl<'s> Walk<'s> {
    fn value(&self, before: Option<Ref<'_>>, after: Option<Ref<'_>>, place: Place<'s>) -> Found {
        let form = |value: Ref<'_>| match place.form(self.schema, value) {
            // What is empty is a field of its own.
            _ if value.is_empty() => Form::Leaf,
            form => form,
        };
        let alone = |value: Ref<'_>| match form(value) {
            Form::Map => self.members(before, after, place),
            Form::List => self.items(before, after, place),
            Form::Leaf => Found::default(),
        };
        match (before, after) {
            (Some(before), Some(after)) => match (form(before), form(after)) {
                (Form::Map, Form::Map) => self.members(Some(before), Some(after), place),
                (Form::List, Form::List) => self.items(Some(before), Some(after), place),
                // One side is empty and the other one is taken apart: all of it came or went.
                (Form::Leaf, Form::Map) if before.is_empty() => self.members(None, Some(after), place),
                (Form::Leaf, Form::List) if before.is_empty() => self.items(None, Some(after), place),
                (Form::Map, Form::Leaf) if after.is_empty() => self.members(Some(before), None, place),
                (Form::List, Form::Leaf) if after.is_empty() => self.items(Some(before), None, place),
                _ => Found {
                    modified: before != after,
                    ..Found::default()
                },
            },
            (None, Some(only)) => Found {
                added: true,
                ..alone(only)
            },
            (Some(only), None) => Found {
                removed: true,
                ..alone(only)
            },
            (None, None) => Found::default(),
        }
    }

    fn members(&self, before: Option<Ref<'_>>, after: Option<Ref<'_>>, place: Place<'s>) -> Found {
        let old = before.into_iter().flat_map(Ref::entries);
        let new = after.into_iter().flat_map(Ref::entries);
        let new = new.filter(|(name, _)| before.is_none_or(|before| before.get(name).is_none()));
        let mut found = Found::default();
        for (name, _) in old.chain(new) {
            let child = place.member(self.schema, name).0;
            let (old, new) = (
                before.and_then(|value| value.get(name)),
                after.and_then(|value| value.get(name)),
            );
            found.put(Element::Field(name.to_owned()), self.value(old, new, child));
        }
        found
    }

    fn items(&self, before: Option<Ref<'_>>, after: Option<Ref<'_>>, place: Place<'s>) -> Found {
        let mut all: BTreeMap<Element, (Option<usize>, Option<usize>)> = BTreeMap::new();
        for (at, item) in before.into_iter().flat_map(Ref::items).enumerate() {
            if let Ok(element) = place.element(self.schema, item) {
                all.entry(element).or_default().0.get_or_insert(at);
            }
        }
        for (at, item) in after.into_iter().flat_map(Ref::items).enumerate() {
            if let Ok(element) = place.element(self.schema, item) {
                all.entry(element).or_default().1.get_or_insert(at);
            }
        }
        let mut found = Found::default();
        for (element, (old, new)) in all {
            let old = old.and_then(|at| before?.item(at));
            let new = new.and_then(|at| after?.item(at));
            found.put(element, self.value(old, new, place.item(self.schema)));
        }
        found
    }
}
