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
    let mut walk = Walk {
        schema: before.schema,
        path: Vec::new(),
        found: Comparison::default(),
    };
    let place = Place::root(before.ty);
    walk.value(Some(before.document.root()), Some(after.root()), place);
    walk.found
}

struct Walk<'s> {
    schema: &'s Schema,
    path: Vec<Element>,
    found: Comparison,
}

impl<'s> Walk<'s> {
    fn value(&mut self, before: Option<Ref<'_>>, after: Option<Ref<'_>>, place: Place<'s>) {
        let form = |value: Ref<'_>| match place.form(self.schema, value) {
            // What is empty is a field of its own.
            _ if value.is_empty() => Form::Leaf,
            form => form,
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
                _ if before != after => self.found.modified.insert(&self.path),
                _ => {}
            },
            (None, Some(only)) => {
                match form(only) {
                    Form::Map => self.members(None, after, place),
                    Form::List => self.items(None, after, place),
                    Form::Leaf => {}
                }
                self.found.added.insert(&self.path);
            }
            (Some(only), None) => {
                match form(only) {
                    Form::Map => self.members(before, None, place),
                    Form::List => self.items(before, None, place),
                    Form::Leaf => {}
                }
                self.found.removed.insert(&self.path);
            }
            (None, None) => {}
        }
    }

    fn below(&mut self, element: Element, before: Option<Ref<'_>>, after: Option<Ref<'_>>, place: Place<'s>) {
        self.path.push(element);
        self.value(before, after, place);
        self.path.pop();
    }

    fn members(&mut self, before: Option<Ref<'_>>, after: Option<Ref<'_>>, place: Place<'s>) {
        let old = before.into_iter().flat_map(Ref::entries);
        let new = after.into_iter().flat_map(Ref::entries);
        let new = new.filter(|(name, _)| before.is_none_or(|before| before.get(name).is_none()));
        for (name, _) in old.chain(new) {
            let child = place.member(self.schema, name).0;
            let (old, new) = (
                before.and_then(|value| value.get(name)),
                after.and_then(|value| value.get(name)),
            );
            self.below(Element::Field(name.to_owned()), old, new, child);
        }
    }

    fn items(&mut self, before: Option<Ref<'_>>, after: Option<Ref<'_>>, place: Place<'s>) {
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
        for (element, (old, new)) in all {
            let old = old.and_then(|at| before?.item(at));
            let new = new.and_then(|at| after?.item(at));
            self.below(element, old, new, place.item(self.schema));
        }
    }
}
