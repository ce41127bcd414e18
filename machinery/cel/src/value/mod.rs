//! Values of expressions: owned, or borrowed from objects that are not copied.

pub(crate) mod compare;
mod convert;
mod foreign;
mod json;
mod list;
mod map;
mod numbers;
mod opaque;
mod show;
mod text;
pub(crate) mod timestamp;

pub(crate) use convert::{To, float};
pub use foreign::{Data, Foreign};
pub use json::NoJson;
pub use list::List;
pub(crate) use map::Key;
pub use map::{Entries, Fields, Map};
pub(crate) use numbers::{as_int, as_uint};
pub use opaque::{Authorizer, Check, Decision, Opaque, Subject};
pub use text::Text;
pub use timestamp::Timestamp;

use crate::types::Type;
use std::sync::Arc;

/// A value.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    Timestamp(Timestamp),
    /// In nanoseconds.
    Duration(i64),
    Type(Arc<Type>),
    List(List<'a>),
    Map(Map<'a>),
    Object(Arc<Object<'a>>),
    Optional(Option<Arc<Value<'a>>>),
    Opaque(Arc<Opaque<'a>>),
}

/// An object that an expression made: `Object{}` or `JSONPatch{}`.
#[derive(Debug)]
pub struct Object<'a> {
    pub type_name: Arc<str>,
    /// Fields that are set, in the order in which they are written.
    pub fields: Vec<(Arc<str>, Value<'a>)>,
}

impl<'a> Object<'a> {
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.fields.iter().find(|own| &*own.0 == name).map(|own| &own.1)
    }
}

/// A value, or the reason why there is none.
pub type Evaluated<'a> = Result<Value<'a>, EvalError>;

/// The reason why an expression has no value; its text is upstream's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvalError {
    pub kind: ErrorKind,
    message: Arc<str>,
}

/// Kind of an [`EvalError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The expression itself failed; `||` and `&&` can do without the value.
    Failed,
    /// The call, or the whole evaluation, costs more than is allowed.
    CostLimit,
    /// The evaluation takes more memory or work than is allowed.
    ResourceLimit,
    /// The caller ended the evaluation.
    Interrupted,
}

impl EvalError {
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self {
            kind: ErrorKind::Failed,
            message: message.into(),
        }
    }

    pub(crate) fn of_kind(kind: ErrorKind, message: &str) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    pub(crate) fn interrupted() -> Self {
        Self::of_kind(ErrorKind::Interrupted, "operation interrupted")
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn no_overload() -> Self {
        Self::new("no such overload")
    }

    /// Ends the evaluation, whatever is around it.
    pub(crate) fn is_final(&self) -> bool {
        self.kind != ErrorKind::Failed
    }
}

impl std::fmt::Display for EvalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for EvalError {}

impl<'a> Value<'a> {
    pub fn string(text: &'a str) -> Self {
        Self::String(Text::Borrowed(text))
    }

    pub(crate) fn owned(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Shared(text.into()))
    }

    pub(crate) fn size_of(count: usize) -> Self {
        Self::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub(crate) fn opaque(own: Opaque<'a>) -> Self {
        Self::Opaque(Arc::new(own))
    }

    pub(crate) fn some(value: Value<'a>) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// A copy that borrows nothing; values of libraries that a constant cannot be become null.
    pub(crate) fn into_static(self) -> Value<'static> {
        match self {
            Self::Null | Self::Opaque(_) => Value::Null,
            Self::Bool(own) => Value::Bool(own),
            Self::Int(own) => Value::Int(own),
            Self::Uint(own) => Value::Uint(own),
            Self::Double(own) => Value::Double(own),
            Self::String(own) => Value::owned(own.as_str()),
            Self::Bytes(own) => Value::Bytes(own),
            Self::Timestamp(own) => Value::Timestamp(own),
            Self::Duration(own) => Value::Duration(own),
            Self::Type(own) => Value::Type(own),
            Self::List(own) => {
                let values = own.iter().map(|own| own.map_or(Value::Null, Value::into_static));
                Value::List(List::new(values.collect()))
            }
            Self::Map(own) => {
                let mut entries = Entries::default();
                for key in own.keys() {
                    let value = own
                        .find(&key)
                        .and_then(Result::ok)
                        .map_or(Value::Null, Value::into_static);
                    // The key is one already.
                    let _ = entries.set(key.into_static(), value);
                }
                Value::Map(Map::new(entries))
            }
            Self::Object(own) => {
                let fields = own.fields.iter();
                let fields = fields.map(|(name, value)| (name.clone(), value.clone().into_static()));
                Value::Object(Arc::new(Object {
                    type_name: own.type_name.clone(),
                    fields: fields.collect(),
                }))
            }
            Self::Optional(own) => Value::Optional(own.map(|own| Arc::new((*own).clone().into_static()))),
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(own) => Some(*own),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(own) => Some(own.as_str()),
            _ => None,
        }
    }

    /// Type of a value; parts of lists and maps are not known to it.
    pub fn ty(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::Timestamp(_) => Type::Timestamp,
            Self::Duration(_) => Type::Duration,
            Self::Type(_) => Type::Type(None),
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Self::Object(own) => Type::Object(own.type_name.clone()),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Opaque(own) => own.ty(),
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(own) => !own,
            Self::Int(own) => *own == 0,
            Self::Uint(own) => *own == 0,
            Self::Double(own) => *own == 0.0,
            Self::String(own) => own.as_str().is_empty(),
            Self::Bytes(own) => own.is_empty(),
            Self::Duration(own) => *own == 0,
            Self::Timestamp(own) => own.is_zero(),
            Self::List(own) => own.is_empty(),
            Self::Map(own) => own.is_empty(),
            Self::Object(own) => own.fields.is_empty(),
            Self::Optional(_) | Self::Type(_) | Self::Opaque(_) => false,
        }
    }
}
