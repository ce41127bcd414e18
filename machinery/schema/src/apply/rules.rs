//! Merge rules of a value, by the schema.

use super::literal::{KeyValue, Literal};
use super::set::{Element, FieldSet};
use crate::leaf::go_quote;
use crate::table::{Extra, Field, ListType, MapType, Schema, Shape, TypeId};
use crate::tree::{Kind, Ref};

/// Way in which a value is divided into fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListForm {
    /// As a whole: scalars, atomic lists and maps.
    Leaf,
    /// Item by item, found by key or by value.
    List,
    /// Member by member.
    Map,
}

/// A place in a document: its type, and what the field it stands in says.
#[derive(Debug, Clone, Copy)]
pub(super) struct SchemaPosition<'s> {
    pub(super) ty: TypeId,
    extra: Option<&'s Extra>,
}

impl<'s> SchemaPosition<'s> {
    pub(super) fn root(ty: TypeId) -> Self {
        Self { ty, extra: None }
    }

    pub(super) fn form(self, schema: &Schema, value: Ref<'_>) -> ListForm {
        match value.kind() {
            Kind::Map if self.is_atomic_map(schema) => ListForm::Leaf,
            Kind::Map => ListForm::Map,
            Kind::List if matches!(self.list_type(schema), ListType::Set | ListType::Map) => ListForm::List,
            _ => ListForm::Leaf,
        }
    }

    /// Reports whether a list, map or struct merges as a whole.
    pub(super) fn is_atomic(self, schema: &Schema, value: Ref<'_>) -> bool {
        matches!(value.kind(), Kind::Map | Kind::List) && self.form(schema, value) == ListForm::Leaf
    }

    fn is_atomic_map(self, schema: &Schema) -> bool {
        let ty = schema.ty(self.ty);
        let leaf = !matches!(
            ty.shape,
            Shape::Struct
                | Shape::Map
                | Shape::Any
                | Shape::SchemaOrBool
                | Shape::SchemaOrArray
                | Shape::SchemaOrStrings
        );
        // What a field says of its map counts before what the type says.
        let own = match self.extra.map_or(MapType::Unset, |extra| extra.map_type) {
            MapType::Unset => ty.map_type,
            own => own,
        };
        leaf || own == MapType::Atomic
    }

    fn list_type(self, schema: &Schema) -> ListType {
        match self.extra.map(|extra| extra.list_type) {
            Some(own) if own != ListType::Unset => own,
            _ => schema
                .constraints(self.ty)
                .map_or(ListType::Unset, |own| own.list_type),
        }
    }

    /// The names of the fields that distinguish items.
    fn keys(self, schema: &'s Schema) -> impl ExactSizeIterator<Item = &'s str> {
        let own = self.extra.map_or(&[][..], |extra| &extra.map_keys);
        let of_type = match (own, schema.constraints(self.ty)) {
            ([], Some(constraints)) => &constraints.list_map_keys[..],
            _ => &[],
        };
        // One of them is empty.
        let key = |at: usize| {
            own.get(at)
                .map_or_else(|| of_type[at].as_str(), |key| schema.text(*key))
        };
        (0..own.len() + of_type.len()).map(key)
    }

    /// Position of a list's items in the schema.
    pub(super) fn item(self, schema: &Schema) -> SchemaPosition<'s> {
        SchemaPosition::root(schema.ty(self.ty).item)
    }

    /// Position of a member in the schema, and true if the schema has a field of that name.
    pub(super) fn member(self, schema: &'s Schema, name: &str) -> (SchemaPosition<'s>, bool) {
        let ty = schema.ty(self.ty);
        match ty.shape {
            Shape::Struct => match schema.field(self.ty, name) {
                Some((_, field)) => (SchemaPosition::of_field(schema, field), true),
                None => (SchemaPosition::root(TypeId::ANY), false),
            },
            Shape::Map => (SchemaPosition::root(ty.item), false),
            Shape::SchemaOrBool | Shape::SchemaOrArray | Shape::SchemaOrStrings => {
                SchemaPosition::root(ty.item).member(schema, name)
            }
            _ => (SchemaPosition::root(TypeId::ANY), false),
        }
    }

    /// Position of the value of a struct's field.
    pub(super) fn of_field(schema: &'s Schema, field: &Field) -> SchemaPosition<'s> {
        SchemaPosition {
            ty: field.ty,
            extra: schema.extra(field),
        }
    }

    /// Key that finds an item of this list; an error in upstream's words when the item lacks part of it.
    pub(super) fn element(self, schema: &'s Schema, item: Ref<'_>) -> Result<Element, String> {
        Ok(self.identity(schema, item)?.element())
    }

    /// The same as [`element`](Self::element), for one look at it.
    pub(super) fn identity<'v>(self, schema: &'s Schema, item: Ref<'v>) -> Result<Identity<'s, 'v>, String> {
        if self.list_type(schema) == ListType::Set {
            return Ok(Identity::Value(KeyValue::of(item)));
        }
        if item.kind() != Kind::Map {
            return Err("associative list with keys may not have non-map elements".to_owned());
        }
        let names = self.keys(schema);
        let mut keys = Vec::with_capacity(names.len());
        for name in self.keys(schema) {
            let default = || {
                let (_, field) = schema.field(schema.ty(self.ty).item, name)?;
                let default = schema.default_of(field)?.to_owned();
                Some(KeyValue::Other(Literal::new(default)))
            };
            let own = item.get(name).filter(|own| !own.is_null()).map(KeyValue::of);
            // An item without one of the keys is another one than any that has it.
            if let Some(value) = own.or_else(default) {
                keys.push((name, value));
            }
        }
        if keys.is_empty() && names.len() > 0 {
            let names: Vec<String> = names.map(go_quote).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                names.join(" ")
            ));
        }
        keys.sort_unstable();
        Ok(Identity::Key(keys))
    }
}

/// Key that finds an item of a list, like [`Element`] and in its order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Identity<'s, 'v> {
    Key(Vec<(&'s str, KeyValue<'v>)>),
    Value(KeyValue<'v>),
}

impl Identity<'_, '_> {
    fn element(self) -> Element {
        match self {
            Self::Key(keys) => {
                let keys = keys.into_iter();
                Element::Key(
                    keys.map(|(name, value)| (name.to_owned(), value.literal()))
                        .collect(),
                )
            }
            Self::Value(value) => Element::Value(value.literal()),
        }
    }
}

/// See [`super::Typed::with_named_parents`].
pub(super) fn with_named_parents(schema: &Schema, place: SchemaPosition<'_>, fields: &FieldSet) -> FieldSet {
    let mut out = FieldSet::default();
    for (element, member) in &fields.0 {
        let (child, named) = match element {
            Element::Field(name) => place.member(schema, name),
            _ => (place.item(schema), false),
        };
        let below = with_named_parents(schema, child, &member.below);
        let own = member.own || (named && !below.is_empty());
        out.put(element.clone(), own, below);
    }
    out
}
