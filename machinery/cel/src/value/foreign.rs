//! Values of objects, read in place: Knarr's trees, JSON values, and JSON of which no schema is known.

use super::{Entries, EvalError, Evaluated, List, Map, Text, Value};
use crate::declared::{Declared, Form};
use crate::eval::Meter;
use machinery_schema::tree::{Kind, Ref};
use serde_json::Value as Json;

/// A value of an object.
#[derive(Debug, Clone, Copy)]
pub enum Data<'a> {
    Tree(Ref<'a>),
    Json(&'a Json),
    /// JSON as Go decodes it without a type, such as the claims of a token: numbers are doubles, and names of members may be
    /// written escaped.
    Untyped(&'a Json),
}

/// A list or map of an object, with what a schema declares of it.
#[derive(Debug, Clone, Copy)]
pub struct Foreign<'a> {
    pub(crate) data: Data<'a>,
    pub(crate) declared: Option<&'a Declared>,
}

impl<'a> From<Ref<'a>> for Data<'a> {
    fn from(own: Ref<'a>) -> Self {
        Self::Tree(own)
    }
}

impl<'a> From<&'a Json> for Data<'a> {
    fn from(own: &'a Json) -> Self {
        Self::Json(own)
    }
}

impl<'a> Data<'a> {
    /// The value, without a schema.
    pub fn value(self) -> Value<'a> {
        let foreign = Foreign {
            data: self,
            declared: None,
        };
        match self {
            Self::Tree(own) => match own.kind() {
                Kind::Null => Value::Null,
                Kind::Bool => Value::Bool(own.as_bool().unwrap_or_default()),
                Kind::Int => Value::Int(own.as_i64().unwrap_or_default()),
                Kind::Float => Value::Double(own.as_f64().unwrap_or_default()),
                Kind::String => Value::string(own.as_str().unwrap_or_default()),
                Kind::List => Value::List(List::Foreign(foreign)),
                Kind::Map => Value::Map(Map::Foreign(foreign)),
                Kind::Raw => match serde_json::from_str(own.as_raw().unwrap_or("null")) {
                    Ok(json) => owned(&json),
                    Err(_) => Value::Null,
                },
            },
            Self::Json(own) => match own {
                Json::Null => Value::Null,
                Json::Bool(own) => Value::Bool(*own),
                Json::Number(own) => number(own),
                Json::String(own) => Value::string(own),
                Json::Array(_) => Value::List(List::Foreign(foreign)),
                Json::Object(_) => Value::Map(Map::Foreign(foreign)),
            },
            Self::Untyped(Json::Number(own)) => Value::Double(own.as_f64().unwrap_or_default()),
            Self::Untyped(own @ (Json::Null | Json::Bool(_) | Json::String(_))) => Self::Json(own).value(),
            Self::Untyped(Json::Array(_)) => Value::List(List::Foreign(foreign)),
            Self::Untyped(Json::Object(_)) => Value::Map(Map::Foreign(foreign)),
        }
    }

    pub(crate) fn is_null(self) -> bool {
        match self {
            Self::Tree(own) => own.is_null(),
            Self::Json(own) | Self::Untyped(own) => own.is_null(),
        }
    }

    pub(crate) fn as_str(self) -> Option<&'a str> {
        match self {
            Self::Tree(own) => own.as_str(),
            Self::Json(own) | Self::Untyped(own) => own.as_str(),
        }
    }

    pub(crate) fn as_bool(self) -> Option<bool> {
        match self {
            Self::Tree(own) => own.as_bool(),
            Self::Json(own) | Self::Untyped(own) => own.as_bool(),
        }
    }

    pub(crate) fn as_i64(self) -> Option<i64> {
        match self {
            Self::Tree(own) => own.as_i64(),
            Self::Json(own) | Self::Untyped(own) => own.as_i64(),
        }
    }

    pub(crate) fn len(self) -> usize {
        match self {
            Self::Tree(own) => own.len(),
            Self::Json(Json::Array(own)) | Self::Untyped(Json::Array(own)) => own.len(),
            Self::Json(Json::Object(own)) | Self::Untyped(Json::Object(own)) => own.len(),
            Self::Json(_) | Self::Untyped(_) => 0,
        }
    }

    pub(crate) fn item(self, at: usize) -> Option<Self> {
        match self {
            Self::Tree(own) => own.item(at).map(Self::Tree),
            Self::Json(own) => own.get(at).map(Self::Json),
            Self::Untyped(own) => own.get(at).map(Self::Untyped),
        }
    }

    pub(crate) fn member(self, name: &str) -> Option<Self> {
        match self {
            Self::Tree(own) => own.get(name).map(Self::Tree),
            Self::Json(own) => own.get(name).map(Self::Json),
            Self::Untyped(own) => {
                let plain = crate::escaping::unescape(name);
                own.get(plain.as_deref().unwrap_or(name)).map(Self::Untyped)
            }
        }
    }

    pub(crate) fn names(self) -> Vec<&'a str> {
        match self {
            Self::Tree(own) => own.entries().map(|(name, _)| name).collect(),
            Self::Json(Json::Object(own)) | Self::Untyped(Json::Object(own)) => {
                own.keys().map(String::as_str).collect()
            }
            Self::Json(_) | Self::Untyped(_) => Vec::new(),
        }
    }

    pub(crate) fn is_list(self) -> bool {
        match self {
            Self::Tree(own) => own.kind() == Kind::List,
            Self::Json(own) | Self::Untyped(own) => own.is_array(),
        }
    }

    pub(crate) fn is_map(self) -> bool {
        match self {
            Self::Tree(own) => own.kind() == Kind::Map,
            Self::Json(own) | Self::Untyped(own) => own.is_object(),
        }
    }
}

fn number(own: &serde_json::Number) -> Value<'static> {
    match own.as_i64() {
        Some(own) => Value::Int(own),
        None => Value::Double(own.as_f64().unwrap_or_default()),
    }
}

/// A copy of a JSON value, for opaque text of an object.
pub(crate) fn owned(json: &Json) -> Value<'static> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(own) => Value::Bool(*own),
        Json::Number(own) => number(own),
        Json::String(own) => Value::owned(own.as_str()),
        Json::Array(own) => Value::List(List::new(own.iter().map(owned).collect())),
        Json::Object(own) => {
            let mut entries = Entries::default();
            for (name, value) in own {
                // Names are keys that can be had.
                let _ = entries.set(Value::owned(name.as_str()), owned(value));
            }
            Value::Map(Map::new(entries))
        }
    }
}

impl<'a> Foreign<'a> {
    pub(crate) fn len(&self) -> usize {
        self.data.len()
    }

    pub(crate) fn item(&self, at: usize) -> Option<Evaluated<'a>> {
        let item = self.data.item(at)?;
        Some(match self.declared.map(|own| &own.form) {
            Some(Form::List { item: declared, .. }) => declared.value(item),
            _ => Ok(item.value()),
        })
    }

    /// A member; of an object with declared fields, by its escaped name.
    pub(crate) fn member(&self, name: &str) -> Option<Evaluated<'a>> {
        match self.declared.map(|own| &own.form) {
            Some(Form::Object { fields, .. }) => {
                let name = crate::escaping::unescape(name)?;
                let value = self.data.member(&name).filter(|own| !own.is_null())?;
                Some(fields.get(&*name)?.value(value))
            }
            Some(Form::Map { item, .. }) => Some(item.value(self.data.member(name)?)),
            Some(Form::Opaque) => None,
            _ => Some(Ok(self.data.member(name)?.value())),
        }
    }

    /// Reports whether members that are not declared are equal where both have them.
    pub(crate) fn undeclared_equal(&self, other: &Self, meter: &mut Meter) -> Result<bool, EvalError> {
        let declared = match self.declared.map(|own| &own.form) {
            Some(Form::Object { fields, .. }) => Some(fields),
            Some(Form::Opaque) => None,
            _ => return Ok(true),
        };
        for name in self.data.names() {
            meter.work(1)?;
            if declared.is_some_and(|fields| fields.contains_key(name)) {
                continue;
            }
            if let (Some(own), Some(other)) = (self.data.member(name), other.data.member(name))
                && !own.value().equals(&other.value(), meter)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The answer to a key that is no string.
    pub(crate) fn no_such_key(&self) -> Option<Evaluated<'a>> {
        self.declared.map(|_| Err(EvalError::no_overload()))
    }

    /// Names of members, as expressions have them.
    pub(crate) fn names(&self) -> Vec<Value<'a>> {
        let names = self.data.names().into_iter();
        match self.declared.map(|own| &own.form) {
            Some(Form::Object { fields, .. }) => names
                .filter(|name| fields.contains_key(*name))
                .map(|name| match crate::escaping::escape(name) {
                    Some(escaped) if escaped != name => Value::owned(escaped.into_owned()),
                    _ => Value::string(name),
                })
                .collect(),
            Some(Form::Opaque) => Vec::new(),
            _ => names.map(|name| Value::String(Text::Borrowed(name))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Env, Limits, Type, Variables};

    #[test]
    fn untyped_json_has_doubles_and_names_that_may_be_escaped() {
        let claims = serde_json::json!({"n": 3, "a.b": [{"c-d": 1}], "namespace": "x", "in": {"if": true}});
        let env = Env::new().variable("claims", Type::map(Type::String, Type::Any));
        for text in [
            "type(claims.n) == double && claims.n == 3",
            "claims.a__dot__b[0].c__dash__d == 1.0",
            "claims['a.b'][0]['c-d'] == 1",
            "claims.__namespace__ == 'x'",
            "claims.__in__.__if__",
            "!has(claims.x__dot__y)",
            "claims.size() == 4",
        ] {
            let program = env.compile(text).unwrap().program().unwrap();
            let variables = Variables::new().with("claims", Data::Untyped(&claims).value());
            let value = program.evaluate(&variables, &Limits::default()).value;
            assert_eq!(value.unwrap().as_bool(), Some(true), "{text}");
        }
    }
}
