//! A v2 document as gnostic's protobuf message `openapi.v2.Document`.
//!
//! The messages are a table: where a member of the JSON form goes, and how. Members that start with `x-`
//! are extensions, whose values travel as text.

use machinery_schema::protobuf::{ReverseBuffer, write_bytes};
use serde_json::{Map, Value};

/// Encoding of a member.
enum Kind {
    Text,
    Flag,
    Integer,
    Double,
    Texts,
    /// Any value, as text.
    Any,
    Anys,
    Message(&'static Message),
    Messages(&'static Message),
    /// A message within messages that only choose or wrap: their field numbers, outermost first.
    Wrapped(&'static [u16], &'static Message),
    /// One schema, or whether there may be more.
    SchemaOrFlag,
    /// One text in a list of its own.
    Type,
    /// Parameters, or references to such.
    Parameters,
    /// One parameter.
    Parameter,
}

/// Field numbers of a message.
struct Message {
    members: &'static [(&'static str, u16, Kind)],
    /// Members of any other name, as name and value.
    named: Option<(u16, Kind)>,
    /// Members that start with `x-`.
    extensions: Option<u16>,
}

static DOCUMENT: Message = Message {
    members: &[
        ("swagger", 1, Kind::Text),
        ("info", 2, Kind::Message(&INFO)),
        ("security", 12, Kind::Messages(&SECURITY_REQUIREMENT)),
        ("securityDefinitions", 13, Kind::Message(&SECURITY_DEFINITIONS)),
    ],
    named: None,
    extensions: None,
};

static INFO: Message = Message {
    members: &[("title", 1, Kind::Text), ("version", 2, Kind::Text)],
    named: None,
    extensions: None,
};

static SECURITY_REQUIREMENT: Message = Message {
    members: &[],
    named: Some((1, Kind::Texts)),
    extensions: None,
};

static SECURITY_DEFINITIONS: Message = Message {
    members: &[],
    named: Some((1, Kind::Wrapped(&[2], &API_KEY))),
    extensions: None,
};

static API_KEY: Message = Message {
    members: &[
        ("type", 1, Kind::Text),
        ("name", 2, Kind::Text),
        ("in", 3, Kind::Text),
        ("description", 4, Kind::Text),
    ],
    named: None,
    extensions: Some(5),
};

static PATHS: Message = Message {
    members: &[],
    named: Some((2, Kind::Message(&PATH))),
    extensions: None,
};

static PATH: Message = Message {
    members: &[
        ("get", 2, Kind::Message(&OPERATION)),
        ("put", 3, Kind::Message(&OPERATION)),
        ("post", 4, Kind::Message(&OPERATION)),
        ("delete", 5, Kind::Message(&OPERATION)),
        ("options", 6, Kind::Message(&OPERATION)),
        ("head", 7, Kind::Message(&OPERATION)),
        ("patch", 8, Kind::Message(&OPERATION)),
        ("parameters", 9, Kind::Parameters),
    ],
    named: None,
    extensions: Some(10),
};

static OPERATION: Message = Message {
    members: &[
        ("tags", 1, Kind::Texts),
        ("description", 3, Kind::Text),
        ("operationId", 5, Kind::Text),
        ("produces", 6, Kind::Texts),
        ("consumes", 7, Kind::Texts),
        ("parameters", 8, Kind::Parameters),
        ("responses", 9, Kind::Message(&RESPONSES)),
        ("schemes", 10, Kind::Texts),
    ],
    named: None,
    extensions: Some(13),
};

static BODY_PARAMETER: Message = Message {
    members: &[
        ("description", 1, Kind::Text),
        ("name", 2, Kind::Text),
        ("in", 3, Kind::Text),
        ("required", 4, Kind::Flag),
        ("schema", 5, Kind::Message(&SCHEMA)),
    ],
    named: None,
    extensions: Some(6),
};

static QUERY_PARAMETER: Message = Message {
    members: &[
        ("required", 1, Kind::Flag),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("name", 4, Kind::Text),
        ("type", 6, Kind::Text),
        ("format", 7, Kind::Text),
        ("uniqueItems", 20, Kind::Flag),
    ],
    named: None,
    extensions: Some(23),
};

static PATH_PARAMETER: Message = Message {
    members: &[
        ("required", 1, Kind::Flag),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("name", 4, Kind::Text),
        ("type", 5, Kind::Text),
        ("format", 6, Kind::Text),
        ("uniqueItems", 19, Kind::Flag),
    ],
    named: None,
    extensions: Some(22),
};

static RESPONSES: Message = Message {
    members: &[],
    named: Some((1, Kind::Wrapped(&[1], &RESPONSE))),
    extensions: Some(2),
};

static RESPONSE: Message = Message {
    members: &[
        ("description", 1, Kind::Text),
        ("schema", 2, Kind::Wrapped(&[1], &SCHEMA)),
    ],
    named: None,
    extensions: Some(5),
};

/// Parameters that operations refer to.
static PARAMETERS: Message = Message {
    members: &[],
    named: Some((1, Kind::Parameter)),
    extensions: None,
};

static REFERENCE: Message = Message {
    members: &[("$ref", 1, Kind::Text)],
    named: None,
    extensions: None,
};

static DEFINITIONS: Message = Message {
    members: &[],
    named: Some((1, Kind::Message(&SCHEMA))),
    extensions: None,
};

static SCHEMA: Message = Message {
    members: &[
        ("$ref", 1, Kind::Text),
        ("format", 2, Kind::Text),
        ("title", 3, Kind::Text),
        ("description", 4, Kind::Text),
        ("default", 5, Kind::Any),
        ("multipleOf", 6, Kind::Double),
        ("maximum", 7, Kind::Double),
        ("exclusiveMaximum", 8, Kind::Flag),
        ("minimum", 9, Kind::Double),
        ("exclusiveMinimum", 10, Kind::Flag),
        ("maxLength", 11, Kind::Integer),
        ("minLength", 12, Kind::Integer),
        ("pattern", 13, Kind::Text),
        ("maxItems", 14, Kind::Integer),
        ("minItems", 15, Kind::Integer),
        ("uniqueItems", 16, Kind::Flag),
        ("maxProperties", 17, Kind::Integer),
        ("minProperties", 18, Kind::Integer),
        ("required", 19, Kind::Texts),
        ("enum", 20, Kind::Anys),
        ("additionalProperties", 21, Kind::SchemaOrFlag),
        ("type", 22, Kind::Type),
        ("items", 23, Kind::Wrapped(&[1], &SCHEMA)),
        ("properties", 25, Kind::Message(&DEFINITIONS)),
    ],
    named: None,
    extensions: Some(31),
};

/// The number of the value within a name and a value.
const NAMED_VALUE: u16 = 2;

/// A section of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Paths,
    Definitions,
    Parameters,
}

/// Leaves of a member of a section what these messages can say: known members, of the type that they have.
pub(super) fn clean(section: Section, value: &mut Value) {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let own = match section {
        Section::Paths => &PATH,
        Section::Definitions => &SCHEMA,
        Section::Parameters => parameter_message(value).1,
    };
    clean_message(own, value);
}

fn clean_message(own: &Message, value: &mut Value) {
    let Some(members) = value.as_object_mut() else {
        return;
    };
    members.retain(|name, value| {
        if let Some((_, _, kind)) = own.members.iter().find(|(known, _, _)| known == name) {
            return fits(kind, value);
        }
        if own.extensions.is_some() && name.starts_with("x-") {
            return true;
        }
        own.named.as_ref().is_some_and(|(_, kind)| fits(kind, value))
    });
}

/// Reports whether a value has the type of its member, whose own members are left out where they do not.
fn fits(kind: &Kind, value: &mut Value) -> bool {
    match kind {
        Kind::Text | Kind::Type => value.is_string(),
        Kind::Flag => value.is_boolean(),
        Kind::Integer => value.is_i64(),
        Kind::Double => value.is_number(),
        Kind::Any => true,
        Kind::Anys => value.is_array(),
        Kind::Texts => value
            .as_array()
            .is_some_and(|all| all.iter().all(Value::is_string)),
        Kind::SchemaOrFlag if value.is_boolean() => true,
        Kind::SchemaOrFlag => fits(&Kind::Message(&SCHEMA), value),
        Kind::Message(own) | Kind::Wrapped(_, own) => {
            clean_message(own, value);
            value.is_object()
        }
        Kind::Messages(own) => clean_items(value, |item| fits(&Kind::Message(own), item)),
        Kind::Parameters => clean_items(value, |item| fits(&Kind::Parameter, item)),
        Kind::Parameter => {
            let own = parameter_message(value).1;
            let is_named = value["name"].is_string() && value["in"].is_string();
            (is_named || value["$ref"].is_string()) && fits(&Kind::Message(own), value)
        }
    }
}

fn clean_items(value: &mut Value, mut fits: impl FnMut(&mut Value) -> bool) -> bool {
    let Some(items) = value.as_array_mut() else {
        return false;
    };
    items.retain_mut(&mut fits);
    true
}

/// Writes the document's small members.
pub(super) fn document(out: &mut Vec<u8>, value: &Value) {
    append(out, |out| message(out, &DOCUMENT, value));
}

/// Writes a section whose members are written already.
pub(super) fn section(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    let number = match name {
        "paths" => 8,
        "definitions" => 9,
        _ => 10,
    };
    write_bytes(out, number, bytes);
}

/// Writes one member of a section.
pub(in crate::openapi) fn member(out: &mut Vec<u8>, section: &str, name: &str, value: &Value) {
    let own = match section {
        "paths" => &PATHS,
        "definitions" => &DEFINITIONS,
        _ => &PARAMETERS,
    };
    if let Some((number, kind)) = &own.named {
        append(out, |out| named(out, *number, kind, name, value));
    }
}

/// Appends fields that `write` puts, the last one first.
fn append(out: &mut Vec<u8>, write: impl FnOnce(&mut ReverseBuffer)) {
    let mut fields = ReverseBuffer::with_capacity(1024);
    write(&mut fields);
    out.extend_from_slice(fields.written());
}

fn message(out: &mut ReverseBuffer, own: &Message, value: &Value) {
    let Value::Object(members) = value else { return };
    for (name, value) in members.iter().rev() {
        if let Some((_, number, kind)) = own.members.iter().find(|(known, _, _)| known == name) {
            field(out, *number, kind, value);
        } else if let Some(number) = own.extensions.filter(|_| name.starts_with("x-")) {
            named(out, number, &Kind::Any, name, value);
        } else if let Some((number, kind)) = &own.named {
            named(out, *number, kind, name, value);
        }
    }
}

fn named(out: &mut ReverseBuffer, number: u16, kind: &Kind, name: &str, value: &Value) {
    out.field_message(number, |out| {
        match kind {
            // Texts by name are wrapped once more.
            Kind::Texts => out.field_message(NAMED_VALUE, |out| field(out, 1, kind, value)),
            _ => field(out, NAMED_VALUE, kind, value),
        }
        out.field_bytes(1, name.as_bytes());
    });
}

fn field(out: &mut ReverseBuffer, number: u16, kind: &Kind, value: &Value) {
    let items = || value.as_array().into_iter().flatten().rev();
    match kind {
        Kind::Text => out.field_bytes(number, value.as_str().unwrap_or_default().as_bytes()),
        Kind::Flag => out.field_number(number, value.as_bool().unwrap_or_default().into()),
        Kind::Integer => out.field_number(number, value.as_i64().unwrap_or_default()),
        Kind::Double => out.field_double(number, value.as_f64().unwrap_or_default()),
        Kind::Texts => items().for_each(|item| field(out, number, &Kind::Text, item)),
        Kind::Any => any(out, number, value),
        Kind::Anys => items().for_each(|item| any(out, number, item)),
        Kind::Message(own) => out.field_message(number, |out| message(out, own, value)),
        Kind::Messages(own) => {
            items().for_each(|item| out.field_message(number, |out| message(out, own, item)));
        }
        Kind::Wrapped(inner, own) => out.field_message(number, |out| wrapped(out, inner, own, value)),
        Kind::SchemaOrFlag => out.field_message(number, |out| match value {
            Value::Bool(flag) => out.field_number(2, (*flag).into()),
            _ => out.field_message(1, |out| message(out, &SCHEMA, value)),
        }),
        Kind::Type => out.field_message(number, |out| field(out, 1, &Kind::Text, value)),
        Kind::Parameters => items().for_each(|item| parameter(out, number, item)),
        Kind::Parameter => {
            // Without the message that chooses between a parameter and a reference.
            let (within, own) = parameter_message(value);
            out.field_message(number, |out| wrapped(out, &within[1..], own, value));
        }
    }
}

fn any(out: &mut ReverseBuffer, number: u16, value: &Value) {
    // JSON is YAML, which is what readers parse here.
    out.field_message(number, |out| out.field_bytes(2, value.to_string().as_bytes()));
}

fn wrapped(out: &mut ReverseBuffer, numbers: &[u16], own: &Message, value: &Value) {
    match numbers.split_first() {
        Some((number, rest)) => out.field_message(*number, |out| wrapped(out, rest, own, value)),
        None => message(out, own, value),
    }
}

/// Writes a parameter into the member of its kind.
fn parameter(out: &mut ReverseBuffer, number: u16, value: &Value) {
    let (within, own) = parameter_message(value);
    out.field_message(number, |out| wrapped(out, within, own, value));
}

/// The message of a parameter, within those that only choose it.
fn parameter_message(value: &Value) -> (&'static [u16], &'static Message) {
    let place = value
        .as_object()
        .and_then(|own: &Map<String, Value>| own.get("in"));
    if value.get("$ref").is_some() {
        return (&[2], &REFERENCE);
    }
    match place.and_then(Value::as_str) {
        Some("body") => (&[1, 1], &BODY_PARAMETER),
        Some("path") => (&[1, 2, 4], &PATH_PARAMETER),
        _ => (&[1, 2, 3], &QUERY_PARAMETER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A field of bytes or a message, whose parts stand in their order.
    fn bytes(number: u16, parts: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        write_bytes(&mut out, number, &parts.concat());
        out
    }

    fn text(number: u16, text: &str) -> Vec<u8> {
        bytes(number, &[text.as_bytes()])
    }

    #[test]
    fn document_members_stand_in_the_order_of_the_json_form() {
        let schema = json!({
            "additionalProperties": {"$ref": "b"}, "description": "d", "enum": ["a", 1], "items": {"maximum": 0.5},
            "properties": {"p": {"additionalProperties": true}, "q": {"minLength": 3}}, "required": ["p", "q"],
            "type": "object", "x-kubernetes-list-type": "set"});
        let mut out = b"before".to_vec();
        member(&mut out, "definitions", "io.Own", &schema);
        let reference = bytes(21, &[&bytes(1, &[&text(1, "b")])]);
        let values = [bytes(20, &[&text(2, "\"a\"")]), bytes(20, &[&text(2, "1")])].concat();
        let half = bytes(23, &[&bytes(1, &[&[7 << 3 | 1], &0.5_f64.to_le_bytes()])]);
        let open = bytes(1, &[&text(1, "p"), &bytes(2, &[&bytes(21, &[&[2 << 3, 1]])])]);
        let long = bytes(1, &[&text(1, "q"), &bytes(2, &[&[12 << 3, 3]])]);
        let properties = bytes(25, &[&open, &long]);
        let required = [text(19, "p"), text(19, "q")].concat();
        let kind = bytes(22, &[&text(1, "object")]);
        let extension = bytes(
            31,
            &[
                &text(1, "x-kubernetes-list-type"),
                &bytes(2, &[&text(2, "\"set\"")]),
            ],
        );
        let parts = [
            &reference,
            &text(4, "d"),
            &values,
            &half,
            &properties,
            &required,
            &kind,
            &extension,
        ];
        let expected = bytes(
            1,
            &[&text(1, "io.Own"), &bytes(2, &parts.map(|own| own.as_slice()))],
        );
        assert_eq!(out, [b"before".to_vec(), expected].concat());
    }

    #[test]
    fn document_parameters_are_chosen_by_their_place() {
        let get =
            json!({"get": {"parameters": [{"in": "path", "name": "n"}, {"$ref": "r"}], "tags": ["a", "b"]}});
        let mut out = Vec::new();
        member(&mut out, "paths", "/a", &get);
        let in_path = bytes(4, &[&text(2, "path"), &text(4, "n")]);
        let parameters = [
            bytes(8, &[&bytes(1, &[&bytes(2, &[&in_path])])]),
            bytes(8, &[&bytes(2, &[&text(1, "r")])]),
        ];
        let operation = bytes(2, &[&parameters[0], &parameters[1], &text(1, "a"), &text(1, "b")]);
        assert_eq!(out, bytes(2, &[&text(1, "/a"), &bytes(2, &[&operation])]));
    }
}
