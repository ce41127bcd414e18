//! Types of expressions and values.

use std::fmt;
use std::sync::Arc;

/// A type; its text is the one in problems of the checker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// Any value, checked while it is evaluated.
    Dyn,
    Any,
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    /// The type of a type; of which one is known to the checker alone.
    Type(Option<Arc<Type>>),
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    /// Objects with fields, by the name of their type.
    Object(Arc<str>),
    Opaque(Arc<str>, Arc<[Type]>),
    /// A parameter in the declaration of a function.
    Param(Arc<str>),
    /// A parameter of one call, which the checker finds a type for.
    Var(usize),
}

const OPTIONAL: &str = "optional_type";

impl Type {
    pub fn list(item: Self) -> Self {
        Self::List(Arc::new(item))
    }

    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    pub fn object(name: &str) -> Self {
        Self::Object(name.into())
    }

    pub fn optional(item: Self) -> Self {
        Self::Opaque(OPTIONAL.into(), Arc::new([item]))
    }

    pub fn type_of(own: Self) -> Self {
        Self::Type(Some(Arc::new(own)))
    }

    /// The type inside an optional.
    pub fn unwrapped(&self) -> Option<&Self> {
        match self {
            Self::Opaque(name, params) if &**name == OPTIONAL => params.first(),
            _ => None,
        }
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        self.is_dyn() || *self == Self::Error
    }

    /// The types that this one is made of.
    pub(crate) fn params(&self) -> Vec<&Self> {
        match self {
            Self::Type(Some(own)) | Self::List(own) => vec![own],
            Self::Map(own) => vec![&own.0, &own.1],
            Self::Opaque(_, own) => own.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// The same type with other parts.
    pub(crate) fn with_params(&self, each: &mut dyn FnMut(&Self) -> Self) -> Self {
        match self {
            Self::Type(Some(own)) => Self::type_of(each(own)),
            Self::List(own) => Self::list(each(own)),
            Self::Map(own) => Self::map(each(&own.0), each(&own.1)),
            Self::Opaque(name, own) => Self::Opaque(name.clone(), own.iter().map(each).collect()),
            _ => self.clone(),
        }
    }

    /// Reports whether the type has more parts than `limit`.
    pub(crate) fn exceeds(&self, limit: usize) -> bool {
        fn count(own: &Type, left: &mut usize) -> bool {
            if *left == 0 {
                return true;
            }
            *left -= 1;
            own.params().into_iter().any(|part| count(part, left))
        }
        count(self, &mut { limit })
    }

    /// The type as the types of values are written, which is not how problems of the checker have it.
    pub fn value_text(&self) -> String {
        let params: Vec<_> = self.params().into_iter().map(Self::value_text).collect();
        match params.is_empty() {
            true => self.name().to_owned(),
            false => format!("{}({})", self.name(), params.join(", ")),
        }
    }

    /// Name of the type of a value.
    pub fn name(&self) -> &str {
        match self {
            Self::Dyn | Self::Var(_) => "dyn",
            Self::Any => "google.protobuf.Any",
            Self::Error => "error",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Duration => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Object(name) | Self::Opaque(name, _) | Self::Param(name) => name,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::Var(own) => write!(f, "_var{own}"),
            _ => {
                f.write_str(self.name())?;
                let params: Vec<_> = self.params().iter().map(ToString::to_string).collect();
                if params.is_empty() {
                    return Ok(());
                }
                write!(f, "({})", params.join(", "))
            }
        }
    }
}

/// The text is no type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownType(pub String);

impl std::str::FromStr for Type {
    type Err = UnknownType;

    /// Reads a type as declarations have it: `list(string)`, `map(K, V)`, `optional_type(T)`; one capital letter
    /// is a parameter, a name with dots an object, and with a `~` before it an opaque type.
    fn from_str(text: &str) -> Result<Self, UnknownType> {
        let unknown = || UnknownType(text.to_owned());
        let text = text.trim();
        if let Some((name, inner)) = text.split_once('(') {
            let inner = inner.strip_suffix(')').ok_or_else(unknown)?;
            let params = split(inner)
                .into_iter()
                .map(str::parse)
                .collect::<Result<Vec<Self>, _>>()?;
            return match (name, &params[..]) {
                ("list", [item]) => Ok(Self::list(item.clone())),
                ("map", [key, value]) => Ok(Self::map(key.clone(), value.clone())),
                ("type", [own]) => Ok(Self::type_of(own.clone())),
                _ => Ok(Self::Opaque(name.into(), params.into())),
            };
        }
        Ok(match text {
            "dyn" => Self::Dyn,
            "any" => Self::Any,
            "null" => Self::Null,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "uint" => Self::Uint,
            "double" => Self::Double,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "timestamp" => Self::Timestamp,
            "duration" => Self::Duration,
            "type" => Self::Type(None),
            _ if text.len() == 1 => Self::Param(text.into()),
            _ => match text.strip_prefix('~') {
                Some(name) => Self::Opaque(name.into(), Arc::new([])),
                None if text.contains('.') => Self::object(text),
                None => return Err(unknown()),
            },
        })
    }
}

/// The parts between commas that are in no brackets.
pub(crate) fn split(text: &str) -> Vec<&str> {
    let (mut out, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, own) in text.char_indices() {
        match own {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                out.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        out.push(text[start..].trim());
    }
    out
}
