//! Checks of a configuration against its schema, with upstream's messages.

use super::Typed;
use super::rules::{ListForm, SchemaPosition};
use super::set::Element;
use crate::leaf::go_quote;
use crate::table::{Schema, Shape};
use crate::tree::{Kind, Ref};
use std::collections::BTreeSet;

/// Most problems that are listed.
const MAX_PROBLEMS: usize = 100;

pub(super) fn problems(typed: Typed<'_>) -> Vec<String> {
    let mut check = Check {
        schema: typed.schema,
        path: String::new(),
        problems: Vec::new(),
    };
    check.value(typed.document.root(), SchemaPosition::root(typed.ty));
    check.problems
}

struct Check<'s> {
    schema: &'s Schema,
    path: String,
    problems: Vec<String>,
}

impl<'s> Check<'s> {
    fn problem(&mut self, words: &str) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(format!("{}: {words}", self.path));
        }
    }

    fn below(&mut self, element: &Element, check: impl FnOnce(&mut Self)) {
        let before = self.path.len();
        self.path.push_str(&element.to_string());
        check(self);
        self.path.truncate(before);
    }

    fn value(&mut self, value: Ref<'_>, place: SchemaPosition<'s>) {
        if value.is_null() {
            return;
        }
        let ty = self.schema.ty(place.ty);
        if let Some(words) = mismatch(ty.shape, value) {
            return self.problem(&words);
        }
        match value.kind() {
            Kind::Map => self.members(value, place),
            Kind::List => self.items(value, place),
            _ => {}
        }
    }

    fn members(&mut self, value: Ref<'_>, place: SchemaPosition<'s>) {
        let ty = self.schema.ty(place.ty);
        let closed = ty.shape == Shape::Struct && !ty.preserve_unknown;
        for (name, member) in value.entries() {
            let (child, named) = place.member(self.schema, name);
            self.below(&Element::Field(name.to_owned()), |check| {
                if closed && !named {
                    check.problem("field not declared in schema");
                } else {
                    check.value(member, child);
                }
            });
        }
    }

    fn items(&mut self, value: Ref<'_>, place: SchemaPosition<'s>) {
        let keyed = place.form(self.schema, value) == ListForm::List;
        let mut seen = BTreeSet::new();
        for (index, item) in value.items().enumerate() {
            let element = if keyed {
                match place.element(self.schema, item) {
                    Ok(element) => element,
                    Err(words) => {
                        self.problem(&format!("element {index}: {words}"));
                        continue;
                    }
                }
            } else {
                Element::Index(index)
            };
            if keyed && !seen.insert(element.clone()) {
                self.problem(&format!("duplicate entries for key {element}"));
                continue;
            }
            self.below(&element, |check| check.value(item, place.item(check.schema)));
        }
    }
}

/// Returns the message for a value of the wrong kind; `None` if the kind fits.
fn mismatch(shape: Shape, value: Ref<'_>) -> Option<String> {
    let expected = match (shape, value.kind()) {
        (Shape::Struct | Shape::Map, Kind::Map) | (Shape::List, Kind::List) => return None,
        (Shape::Struct | Shape::Map, _) => "map",
        (Shape::List, _) => "list",
        (Shape::Str | Shape::Bytes | Shape::Time | Shape::MicroTime, kind) if kind != Kind::String => {
            "string"
        }
        (Shape::Bool, kind) if kind != Kind::Bool => "boolean",
        (Shape::Int32 | Shape::Int64 | Shape::Uint32 | Shape::Uint64 | Shape::Float, kind)
            if !matches!(kind, Kind::Int | Kind::Float) =>
        {
            "numeric (int or float)"
        }
        _ => return None,
    };
    Some(format!(
        "expected {expected}, got &value.valueUnstructured{{Value:{}}}",
        shown(value)
    ))
}

/// A value as Go's `%#v` shows it.
fn shown(value: Ref<'_>) -> String {
    match value.kind() {
        Kind::String => go_quote(value.as_str().unwrap_or_default()),
        Kind::Map => {
            let members: Vec<String> = value
                .entries()
                .map(|(name, member)| format!("{}:{}", go_quote(name), shown(member)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
        Kind::List => {
            let items: Vec<String> = value.items().map(shown).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Kind::Null => "interface {}(nil)".to_owned(),
        _ => value.to_json(),
    }
}
