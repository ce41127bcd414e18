//! Types that a structural schema declares, how large their values can be, and how values of objects are read by them.

use crate::env::Provider;
use crate::escaping::escape;
use crate::library::times;
use crate::types::Type;
use crate::value::{Data, EvalError, Evaluated, Foreign, List, Map, Text, Timestamp, Value};
use base64::Engine as _;
use std::collections::BTreeMap;

/// Bytes of the largest request; no value is larger.
pub const MAX_REQUEST: i64 = 3 * 1024 * 1024;
/// Schemas inside each other.
const MAX_DEPTH: usize = 64;

/// The declared type of a value.
#[derive(Debug, Clone)]
pub struct Declared {
    pub(crate) form: Form,
    nullable: bool,
    /// Elements, entries or characters, at most.
    max_elements: i64,
    /// Bytes of the smallest value as JSON.
    min_size: i64,
}

#[derive(Debug, Clone)]
pub(crate) enum Form {
    /// Values of any type that expressions cannot look into.
    Unknown,
    /// Objects whose members are not declared.
    Opaque,
    Object {
        name: String,
        fields: BTreeMap<String, Declared>,
    },
    Map {
        item: Box<Declared>,
    },
    List {
        item: Box<Declared>,
        kind: ListKind,
    },
    IntOrString,
    Text,
    Bytes,
    Duration,
    Date,
    DateTime,
    Bool,
    Int,
    Double,
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListKind {
    Atomic,
    Set,
    /// By these keys.
    Map(Vec<String>),
}

/// Schema of `kind`, `apiVersion` and `metadata` of a whole object.
fn object_meta() -> BTreeMap<String, Declared> {
    let text = || Declared {
        form: Form::Text,
        nullable: false,
        max_elements: MAX_REQUEST - 2,
        min_size: 2,
    };
    let names = ["name", "generateName"].map(|name| (name.to_owned(), text()));
    let metadata = Declared::object(names.into(), 2);
    let mut fields = BTreeMap::from(["kind", "apiVersion"].map(|name| (name.to_owned(), text())));
    fields.insert("metadata".to_owned(), metadata);
    fields
}

/// Reports whether a schema says itself what every object has.
fn has_object_meta(fields: &BTreeMap<String, Declared>) -> bool {
    let is_text = |own: Option<&Declared>| own.is_some_and(|own| matches!(own.form, Form::Text));
    let metadata = fields.get("metadata");
    let named = |name: &str| is_text(metadata.and_then(|own| own.field(name)));
    is_text(fields.get("kind")) && is_text(fields.get("apiVersion")) && named("name") && named("generateName")
}

fn flag(schema: Data<'_>, name: &str) -> bool {
    schema.member(name).and_then(Data::as_bool) == Some(true)
}

fn text<'s>(schema: Data<'s>, name: &str) -> &'s str {
    schema.member(name).and_then(Data::as_str).unwrap_or_default()
}

fn limit(schema: Data<'_>, name: &str) -> Option<i64> {
    Some(schema.member(name)?.as_i64()?.max(0))
}

fn texts<'s>(schema: Data<'s>, name: &str) -> Vec<&'s str> {
    let list = schema.member(name);
    let items = list
        .into_iter()
        .flat_map(|own| (0..own.len()).filter_map(move |at| own.item(at)));
    items.filter_map(Data::as_str).collect()
}

impl Declared {
    /// The declared type of a structural schema; none when expressions can do nothing with its values. `root` says that the
    /// values are whole objects.
    pub fn from_schema(schema: Data<'_>, root: bool) -> Option<Self> {
        Self::named_from_schema(schema, root, "selfType")
    }

    /// The same with this name for the type of the whole value.
    pub fn named_from_schema(schema: Data<'_>, root: bool, name: &str) -> Option<Self> {
        let mut declared = Self::read(schema, root, 0)?;
        declared.assign_name(name);
        Some(declared).filter(|own| own.ty().is_some())
    }

    fn read(schema: Data<'_>, whole: bool, depth: usize) -> Option<Self> {
        if depth > MAX_DEPTH {
            return None;
        }
        let simple = |form, max_elements, min_size| Self {
            form,
            nullable: flag(schema, "nullable"),
            max_elements,
            min_size,
        };
        let longest = limit(schema, "maxLength");
        if flag(schema, "x-kubernetes-int-or-string") {
            let longest = longest.map_or(MAX_REQUEST - 2, |own| own.saturating_mul(4));
            return Some(simple(Form::IntOrString, longest, 1));
        }
        let whole = whole || flag(schema, "x-kubernetes-embedded-resource");
        Some(match text(schema, "type") {
            "object" => Self::read_object(schema, whole, depth)?,
            "array" => Self::read_array(schema, depth)?,
            "string" => Self::read_text(schema),
            "boolean" => simple(Form::Bool, 0, 4),
            "number" => simple(Form::Double, 0, 1),
            "integer" => simple(Form::Int, 0, 1),
            _ if flag(schema, "x-kubernetes-preserve-unknown-fields") => simple(Form::Unknown, 0, 1),
            _ => return None,
        })
    }

    fn object(fields: BTreeMap<String, Self>, min_size: i64) -> Self {
        Self {
            form: Form::Object {
                name: String::new(),
                fields,
            },
            nullable: false,
            max_elements: 0,
            min_size,
        }
    }

    fn read_object(schema: Data<'_>, whole: bool, depth: usize) -> Option<Self> {
        let nullable = flag(schema, "nullable");
        let items = schema.member("additionalProperties").filter(|own| own.is_map());
        if let Some(items) = items {
            let item = Self::read(items, false, depth + 1)?;
            let estimate = (MAX_REQUEST - 2) / (item.min_size + 6);
            return Some(Self {
                max_elements: limit(schema, "maxProperties").unwrap_or(estimate),
                form: Form::Map { item: Box::new(item) },
                nullable,
                min_size: 2,
            });
        }
        let required = texts(schema, "required");
        let (mut fields, mut min_size) = (BTreeMap::new(), 2);
        let properties = schema.member("properties");
        for name in properties.map(Data::names).unwrap_or_default() {
            let property = properties.and_then(|own| own.member(name))?;
            let Some(field) = Self::read(property, false, depth + 1) else {
                continue;
            };
            let has_default = property.member("default").is_some_and(|own| !own.is_null());
            if required.contains(&name) && !has_default && field.ty().is_some() {
                let length = i64::try_from(name.len()).unwrap_or(i64::MAX);
                min_size += length + field.min_size + 4;
            }
            fields.insert(name.to_owned(), field);
        }
        if whole && !has_object_meta(&fields) {
            fields.extend(object_meta());
        }
        if fields.is_empty() && properties.is_none_or(|own| own.len() == 0) {
            return Some(Self {
                form: Form::Opaque,
                nullable,
                max_elements: 0,
                min_size: 2,
            });
        }
        let mut declared = Self::object(fields, min_size);
        declared.nullable = nullable;
        Some(declared)
    }

    fn read_array(schema: Data<'_>, depth: usize) -> Option<Self> {
        let item = Self::read(schema.member("items")?, false, depth + 1)?;
        let keys = || {
            texts(schema, "x-kubernetes-list-map-keys")
                .into_iter()
                .map(str::to_owned)
        };
        let kind = match text(schema, "x-kubernetes-list-type") {
            "set" => ListKind::Set,
            "map" => ListKind::Map(keys().collect()),
            _ => ListKind::Atomic,
        };
        let estimate = (MAX_REQUEST - 2) / (item.min_size + 1);
        Some(Self {
            max_elements: limit(schema, "maxItems").unwrap_or(estimate),
            form: Form::List {
                item: Box::new(item),
                kind,
            },
            nullable: flag(schema, "nullable"),
            min_size: 2,
        })
    }

    fn read_text(schema: Data<'_>) -> Self {
        let longest = limit(schema, "maxLength");
        let (form, max_elements, min_size) = match text(schema, "format") {
            "byte" => (Form::Bytes, longest.unwrap_or(MAX_REQUEST - 2), 2),
            "duration" => (Form::Duration, 32, 3),
            "date" => (Form::Date, 12, 12),
            "date-time" => (Form::DateTime, 32, 21),
            _ => {
                let values = texts(schema, "enum");
                let all = schema.member("enum").is_some_and(|own| own.len() > 0);
                let longest_value = values.iter().map(|own| own.len()).max().unwrap_or_default();
                let unlimited = if all {
                    i64::try_from(longest_value).unwrap_or(i64::MAX)
                } else {
                    MAX_REQUEST - 2
                };
                (
                    Form::Text,
                    longest.map_or(unlimited, |own| own.saturating_mul(4)),
                    2,
                )
            }
        };
        Self {
            form,
            nullable: flag(schema, "nullable"),
            max_elements,
            min_size,
        }
    }

    fn assign_name(&mut self, own: &str) {
        match &mut self.form {
            Form::Object { name, fields } => {
                *name = own.to_owned();
                for (field, declared) in fields {
                    let field = escape(field).unwrap_or_default();
                    declared.assign_name(&format!("{own}.{field}"));
                }
            }
            Form::Map { item } => item.assign_name(&format!("{own}.@elem")),
            Form::List { item, .. } => item.assign_name(&format!("{own}.@idx")),
            _ => {}
        }
    }

    /// The type in expressions; none of values that they cannot look into.
    pub fn ty(&self) -> Option<Type> {
        Some(match &self.form {
            Form::Unknown => return None,
            Form::Opaque => Type::object("object"),
            Form::Object { name, .. } => Type::object(name),
            Form::Map { item } => Type::map(Type::String, item.ty()?),
            Form::List { item, .. } => Type::list(item.ty()?),
            Form::IntOrString => Type::Dyn,
            Form::Text => Type::String,
            Form::Bytes => Type::Bytes,
            Form::Duration => Type::Duration,
            Form::Date | Form::DateTime => Type::Timestamp,
            Form::Bool => Type::Bool,
            Form::Int => Type::Int,
            Form::Double => Type::Double,
        })
    }

    /// The type of a property, items or values.
    pub fn field(&self, name: &str) -> Option<&Self> {
        match &self.form {
            Form::Object { fields, .. } => fields.get(name),
            _ => None,
        }
    }

    /// The type of the elements of a list or the values of a map.
    pub fn item(&self) -> Option<&Self> {
        match &self.form {
            Form::Map { item } | Form::List { item, .. } => Some(item),
            _ => None,
        }
    }

    /// Number of these values that fit in a request.
    pub fn max_cardinality(&self) -> u64 {
        u64::try_from(MAX_REQUEST / (self.min_size + 1)).unwrap_or_default()
    }

    /// Elements, entries or characters, at most, of what a path leads to.
    pub(crate) fn max_size(&self, path: &[&str]) -> Option<u64> {
        // Names of members have no bound of their own; upstream takes none for them.
        if let [path @ .., "@keys"] = path {
            return matches!(self.at(path)?.form, Form::Map { .. }).then_some(0);
        }
        u64::try_from(self.at(path)?.max_elements).ok()
    }

    /// Steps to look through what a path leads to.
    pub(crate) fn max_steps(&self, path: &[&str]) -> Option<u64> {
        self.at(path).map(Self::steps)
    }

    fn steps(&self) -> u64 {
        let most = MAX_REQUEST.cast_unsigned();
        let size = u64::try_from(self.max_elements).unwrap_or(most);
        let own = match &self.form {
            Form::Unknown | Form::Opaque => most,
            Form::Map { item } | Form::List { item, .. } => size.saturating_mul(item.steps()),
            Form::Object { fields, .. } => fields.values().map(Self::steps).fold(0, u64::saturating_add),
            Form::Text | Form::Bytes | Form::IntOrString => size / crate::eval::BYTES_OF_A_STEP,
            _ => 0,
        };
        own.saturating_add(1).min(most)
    }

    fn at(&self, path: &[&str]) -> Option<&Self> {
        let mut own = self;
        for step in path {
            own = match *step {
                "@items" | "@values" => own.item()?,
                name => {
                    // Words that the grammar keeps have no size by their own name, to upstream.
                    let own_name = crate::escaping::unescape(name)?;
                    let written = escape(&own_name)? == name;
                    own.field(&own_name).filter(|_| written)?
                }
            };
        }
        Some(own)
    }

    /// A value of an object, read by its declared type.
    pub fn value<'a>(&'a self, data: Data<'a>) -> Evaluated<'a> {
        if data.is_null() {
            if self.nullable {
                return Ok(Value::Null);
            }
            return Err(EvalError::new(
                "invalid data, got null for schema with nullable=false",
            ));
        }
        let foreign = Foreign {
            data,
            declared: Some(self),
        };
        let invalid = |wanted: &str| EvalError::new(format!("invalid data, expected {wanted}"));
        match &self.form {
            Form::Unknown => Ok(data.value()),
            Form::Object { .. } | Form::Map { .. } | Form::Opaque if data.is_map() => {
                Ok(Value::Map(Map::Foreign(foreign)))
            }
            Form::List { .. } if data.is_list() => Ok(Value::List(List::Foreign(foreign))),
            Form::Object { .. } | Form::Map { .. } | Form::Opaque => {
                Err(invalid("a map for the provided schema with type=object"))
            }
            Form::List { .. } => Err(invalid("an array for the provided schema with type=array")),
            Form::Double => match data.value() {
                Value::Int(own) => Ok(Value::Double(crate::value::float(own))),
                own @ Value::Double(_) => Ok(own),
                _ => Err(invalid("float")),
            },
            form => match (form, data.value()) {
                (Form::IntOrString, own @ (Value::Int(_) | Value::String(_)))
                | (Form::Bool, own @ Value::Bool(_))
                | (Form::Int, own @ Value::Int(_))
                | (Form::Text, own @ Value::String(_)) => Ok(own),
                (Form::IntOrString, _) => Err(invalid("XIntOrString value to be either a string or integer")),
                (Form::Bool, _) => Err(invalid("bool")),
                (Form::Int, _) => Err(invalid("int")),
                (_, Value::String(own)) => formatted(form, &own),
                _ => Err(invalid("string")),
            },
        }
    }
}

/// Bytes of a time or a duration; longer texts are none, so that they are not read at each mention.
const MAX_TIME_BYTES: usize = 1024;

/// The value of a string with a format.
fn formatted<'a>(form: &Form, own: &Text<'a>) -> Evaluated<'a> {
    let text = own.as_str();
    let time = Some(text).filter(|own| own.len() <= MAX_TIME_BYTES);
    match form {
        Form::Bytes => base64::engine::general_purpose::STANDARD
            .decode(text)
            .map(|own| Value::Bytes(own.into()))
            .map_err(|error| EvalError::new(format!("Invalid byte formatted string {text}: {error}"))),
        Form::Duration => time
            .and_then(times::parse_long_duration)
            .map(Value::Duration)
            .ok_or_else(|| {
                EvalError::new(format!(
                    "Invalid duration {text}: unable to parse {text} as duration"
                ))
            }),
        Form::Date => time
            .filter(|own| own.len() == 10)
            .and_then(|own| times::parse_timestamp(&format!("{own}T00:00:00Z")))
            .map(Value::Timestamp)
            .ok_or_else(|| EvalError::new(format!("Invalid date formatted string {text}: cannot be parsed"))),
        Form::DateTime => time.and_then(date_time).map(Value::Timestamp).ok_or_else(|| {
            EvalError::new(format!(
                "Invalid date-time formatted string {text}: cannot be parsed"
            ))
        }),
        _ => Ok(Value::String(own.clone())),
    }
}

/// A time as the OpenAPI format has it; none at all is 1970.
fn date_time(text: &str) -> Option<Timestamp> {
    if text.is_empty() {
        return Some(Timestamp::utc(0, 0));
    }
    times::parse_timestamp(&text.to_ascii_uppercase())
}

impl Provider for Declared {
    fn has_type(&self, name: &str) -> bool {
        self.named(name).is_some() || name == "object" && self.has_opaque()
    }

    fn field(&self, type_name: &str, field: &str) -> Option<Type> {
        let Form::Object { fields, .. } = &self.named(type_name)?.form else {
            return None;
        };
        let name = crate::escaping::unescape(field)?;
        // Words that the grammar keeps can be written as they are after a dot.
        fields.get(&*name)?.ty()
    }
}

impl Declared {
    fn named(&self, wanted: &str) -> Option<&Self> {
        match &self.form {
            Form::Object { name, fields } => {
                if name == wanted {
                    return Some(self);
                }
                if !wanted.starts_with(name.as_str()) {
                    return None;
                }
                fields.values().find_map(|own| own.named(wanted))
            }
            Form::Map { item } | Form::List { item, .. } => item.named(wanted),
            _ => None,
        }
    }

    fn has_opaque(&self) -> bool {
        match &self.form {
            Form::Opaque => true,
            Form::Object { fields, .. } => fields.values().any(Self::has_opaque),
            Form::Map { item } | Form::List { item, .. } => item.has_opaque(),
            _ => false,
        }
    }
}
