//! Named formats: rules of names and other texts, with upstream's sentences.

use super::{Function, list, text};
use crate::value::{Evaluated, Opaque, Value};
use machinery_meta::syntax;
use machinery_schema::structural::is_valid_format;

/// A format with a name.
#[derive(Debug)]
pub struct NamedFormat {
    pub name: &'static str,
    validate: fn(&str) -> Vec<String>,
    /// Length of the pattern behind it, for costs.
    pub(crate) max_regex_size: u64,
}

/// Names in expressions, in the order of [`FORMATS`].
pub(crate) const NAMES: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

const fn named(name: &'static str, max_regex_size: u64, validate: fn(&str) -> Vec<String>) -> NamedFormat {
    NamedFormat {
        name,
        validate,
        max_regex_size,
    }
}

static FORMATS: [NamedFormat; 13] = [
    named("DNS1123Label", 30, syntax::dns1123_label),
    named("DNS1123Subdomain", 60, syntax::dns1123_subdomain),
    named("DNS1035Label", 30, syntax::dns1035_label),
    named("QualifiedName", 60, syntax::qualified_name),
    named("DNS1123LabelPrefix", 30, |own| {
        syntax::dns1123_label(&masked(own))
    }),
    named("DNS1123SubdomainPrefix", 60, |own| {
        syntax::dns1123_subdomain(&masked(own))
    }),
    named("DNS1035LabelPrefix", 30, |own| {
        syntax::dns1035_label(&masked(own))
    }),
    named("LabelValue", 40, syntax::label_value),
    named("URI", 1103, |own| {
        super::urls::Url::parse_request(own).err().into_iter().collect()
    }),
    named("uuid", 72, |own| {
        problem(own, "uuid", "does not match the UUID format")
    }),
    named("byte", 84, |own| problem(own, "byte", "invalid base64")),
    named("date", 72, |own| problem(own, "date", "invalid date")),
    named("datetime", 72, |own| {
        problem(own, "date-time", "invalid datetime")
    }),
];

fn problem(own: &str, format: &str, message: &str) -> Vec<String> {
    if is_valid_format(format, own) {
        return Vec::new();
    }
    vec![message.to_owned()]
}

/// A name that is the beginning of others may end with a dash.
fn masked(own: &str) -> String {
    match own.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => format!("{rest}a"),
        _ => own.to_owned(),
    }
}

fn find(name: &str) -> Option<&'static NamedFormat> {
    NAMES.iter().position(|own| *own == name).map(|at| &FORMATS[at])
}

pub(super) fn function(name: &str) -> Option<Function> {
    match name {
        "format.named" => Some(|_, args| match args {
            [Value::String(own)] => Some(Ok(match find(own.as_str()) {
                Some(own) => Value::some(Value::opaque(Opaque::Format(own))),
                None => Value::Optional(None),
            })),
            _ => None,
        }),
        "validate" => Some(|meter, args| {
            let [Value::Opaque(format), Value::String(own)] = args else {
                return None;
            };
            let Opaque::Format(format) = **format else {
                return None;
            };
            let problems = (format.validate)(own.as_str());
            if problems.is_empty() {
                return Some(Ok(Value::Optional(None)));
            }
            let texts: Result<Vec<_>, _> = problems.into_iter().map(|own| text(own, meter)).collect();
            Some(texts.and_then(|own| list(own, meter)).map(Value::some))
        }),
        _ => {
            let at = NAMES
                .iter()
                .position(|own| Some(*own) == name.strip_prefix("format."))?;
            Some(CONSTANTS[at])
        }
    }
}

fn constant<'a, const AT: usize>(_: &mut crate::eval::Meter, _: &[Value<'a>]) -> Option<Evaluated<'a>> {
    Some(Ok(Value::opaque(Opaque::Format(&FORMATS[AT]))))
}

const CONSTANTS: [Function; 13] = [
    constant::<0>,
    constant::<1>,
    constant::<2>,
    constant::<3>,
    constant::<4>,
    constant::<5>,
    constant::<6>,
    constant::<7>,
    constant::<8>,
    constant::<9>,
    constant::<10>,
    constant::<11>,
    constant::<12>,
];
