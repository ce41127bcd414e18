//! Query parameters: the fields of the types of options, as upstream's `AddObjectParams` takes them.

use super::{Parameter, Place};
use crate::openapi::schemas::model_name;
use machinery_schema::{Schema, Shape};
use serde_json::{Map, Value};

/// Fields of these types become parameters, with the words about them.
#[derive(Debug, Clone, Copy)]
pub(in crate::openapi) struct Options<'w> {
    schema: &'static Schema,
    words: &'w Map<String, Value>,
}

/// Members that every kind has, and that are no options.
const TYPE_META: [&str; 2] = ["kind", "apiVersion"];

impl<'w> Options<'w> {
    pub(in crate::openapi) fn new(words: &'w Map<String, Value>) -> Self {
        Self {
            schema: crate::schema(),
            words,
        }
    }

    /// Parameters of a type, by its name in the facts, in the order of its fields.
    ///
    /// Fields that are objects have no form in a query and are left out.
    pub(super) fn of(self, name: &str) -> impl Iterator<Item = Parameter<'w>> {
        let words = self.words.get(&model_name(name)).and_then(|own| own.get(1));
        let fields = self.schema.type_named(name).map(|id| self.schema.fields(id));
        fields.unwrap_or_default().iter().filter_map(move |field| {
            let name = self.schema.text(field.name);
            let ty = self.schema.ty(field.ty);
            let shape = match ty.shape {
                Shape::List => self.schema.ty(ty.item).shape,
                own => own,
            };
            let words = words.and_then(|words| words.get(name)).and_then(Value::as_str);
            (!TYPE_META.contains(&name)).then_some(())?;
            Some(Parameter {
                name,
                place: Place::Query,
                ty: type_name(shape)?,
                words: words.unwrap_or_default().into(),
            })
        })
    }
}

fn type_name(shape: Shape) -> Option<&'static str> {
    match shape {
        Shape::Bool => Some("boolean"),
        Shape::Int32 | Shape::Int64 | Shape::Uint32 | Shape::Uint64 => Some("integer"),
        Shape::Str => Some("string"),
        _ => None,
    }
}
