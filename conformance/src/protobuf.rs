//! Kubernetes' protobuf, written and read by the facts: a second opinion beside the product's own codec.
//!
//! A zero on the wire counts as absent where the Go field is no pointer: no client sees a difference. Of a pointer
//! it is kept.

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use crate::facts::{Facts, Field, Type};

const MAGIC: &[u8] = b"k8s\0";
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

/// An object, in the envelope that requests and responses carry.
pub fn encode(facts: &Facts, object: &Value) -> Result<Vec<u8>> {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let entry = facts
        .kind(api_version, kind)
        .with_context(|| format!("no facts about {api_version} {kind}"))?;
    let mut raw = Vec::new();
    Encoder { facts }.members(entry, object, &mut raw)?;
    let mut meta = Vec::new();
    put_bytes(&mut meta, 1, api_version.as_bytes());
    put_bytes(&mut meta, 2, kind.as_bytes());
    let mut body = MAGIC.to_vec();
    put_bytes(&mut body, 1, &meta);
    put_bytes(&mut body, 2, &raw);
    put_bytes(&mut body, 3, b"");
    put_bytes(&mut body, 4, b"");
    Ok(body)
}

/// The object in an envelope.
pub fn decode(facts: &Facts, body: &[u8]) -> Result<Value> {
    let mut rest = body.strip_prefix(MAGIC).context("no k8s\\0 at the beginning")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    while !rest.is_empty() {
        match take(&mut rest)? {
            (1, Wire::Bytes(mut meta)) => {
                while !meta.is_empty() {
                    match take(&mut meta)? {
                        (1, Wire::Bytes(text)) => api_version = text_of(text)?,
                        (2, Wire::Bytes(text)) => kind = text_of(text)?,
                        other => bail!("{other:?} in TypeMeta"),
                    }
                }
            }
            (2, Wire::Bytes(object)) => raw = object,
            (3 | 4, Wire::Bytes([])) => {}
            other => bail!("{other:?} in the envelope"),
        }
    }
    let entry = facts
        .kind(&api_version, &kind)
        .with_context(|| format!("no facts about {api_version} {kind}"))?;
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    decode_members(facts, entry, raw, &mut object)?;
    Ok(Value::Object(object))
}

/// Version and kind of an envelope, whatever it holds.
pub fn type_meta(body: &[u8]) -> Result<(String, String)> {
    let mut rest = body.strip_prefix(MAGIC).context("no k8s\\0 at the beginning")?;
    let (mut api_version, mut kind) = (String::new(), String::new());
    let (1, Wire::Bytes(mut meta)) = take(&mut rest)? else {
        bail!("no TypeMeta");
    };
    while !meta.is_empty() {
        match take(&mut meta)? {
            (1, Wire::Bytes(text)) => api_version = text_of(text)?,
            (2, Wire::Bytes(text)) => kind = text_of(text)?,
            other => bail!("{other:?} in TypeMeta"),
        }
    }
    Ok((api_version, kind))
}

/// The reason of a `Status` in an envelope; empty where it has none.
pub fn status_reason(body: &[u8]) -> Result<String> {
    let envelope = body.strip_prefix(MAGIC).context("no k8s\\0 at the beginning")?;
    let status = member(envelope, 2)?.unwrap_or_default();
    text_of(member(status, 4)?.unwrap_or_default())
}

/// The envelope of the object in the first event of a watch; `None` where none came.
pub fn first_watched(body: &[u8]) -> Result<Option<&[u8]>> {
    let Some((length, rest)) = body.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_be_bytes(*length))?;
    let event = rest.get(..length).context("the first event is cut off")?;
    let object = member(event, 2)?.context("an event without an object")?;
    member(object, 1)
}

/// The first member of this number, which is one of bytes.
fn member(mut message: &[u8], number: u32) -> Result<Option<&[u8]>> {
    while !message.is_empty() {
        match take(&mut message)? {
            (own, Wire::Bytes(bytes)) if own == number => return Ok(Some(bytes)),
            _ => {}
        }
    }
    Ok(None)
}

struct Encoder<'a> {
    facts: &'a Facts,
}

impl Encoder<'_> {
    fn members(&self, entry: &Type, object: &Value, out: &mut Vec<u8>) -> Result<()> {
        for field in entry.fields.iter().filter(|field| field.number != 0) {
            // An inlined struct is a message of its own on the wire, with members of this object.
            let value = match field.inline {
                true => object,
                false => &object[&field.name],
            };
            if !value.is_null() {
                self.field(field.number, &field.type_, value, out)
                    .with_context(|| format!("in {}", field.name))?;
            }
        }
        Ok(())
    }

    fn field(&self, number: u32, type_: &str, value: &Value, out: &mut Vec<u8>) -> Result<()> {
        if let Some(inner) = type_.strip_prefix('*') {
            return self.field(number, inner, value, out);
        }
        if let Some(inner) = type_.strip_prefix("[]") {
            for item in value.as_array().context("not a list")? {
                self.field(number, inner, item, out)?;
            }
            return Ok(());
        }
        if let Some(inner) = type_.strip_prefix("map[string]") {
            for (key, item) in value.as_object().context("not a map")? {
                let mut entry = Vec::new();
                put_bytes(&mut entry, 1, key.as_bytes());
                self.field(2, inner, item, &mut entry)?;
                put_bytes(out, number, &entry);
            }
            return Ok(());
        }
        match type_ {
            "string" => put_bytes(out, number, value.as_str().context("not a string")?.as_bytes()),
            "bytes" => put_bytes(
                out,
                number,
                &BASE64.decode(value.as_str().context("not a string")?)?,
            ),
            "bool" => put_varint(out, number, u64::from(value.as_bool().context("not a bool")?)),
            "float64" => {
                put_key(out, number, FIXED64);
                out.extend(value.as_f64().context("not a number")?.to_le_bytes());
            }
            "int32" | "int64" | "int" | "uint8" | "uint32" | "uint64" => {
                put_int(out, number, value.as_i64().context("not an integer")?);
            }
            name => {
                let mut message = Vec::new();
                let entry = self
                    .facts
                    .type_named(name)
                    .or_else(|| object_marker(name))
                    .with_context(|| format!("no type {name}"))?;
                self.message(entry, value, &mut message)?;
                put_bytes(out, number, &message);
            }
        }
        Ok(())
    }

    fn message(&self, entry: &Type, value: &Value, out: &mut Vec<u8>) -> Result<()> {
        if let Some(list) = &entry.is {
            return self.field(1, list, value, out);
        }
        let Some(marker) = &entry.marker else {
            return self.members(entry, value, out);
        };
        let text = || value.as_str().context("not a string");
        match marker.as_str() {
            "Time" | "MicroTime" => {
                let time: jiff::Timestamp = text()?.parse()?;
                put_int(out, 1, time.as_second());
                put_int(out, 2, time.subsec_nanosecond().into());
            }
            "Quantity" => match value {
                Value::String(text) => put_bytes(out, 1, text.as_bytes()),
                other => put_bytes(out, 1, other.to_string().as_bytes()),
            },
            "IntOrString" => match value {
                Value::String(text) => {
                    put_varint(out, 1, 1);
                    put_bytes(out, 3, text.as_bytes());
                }
                other => {
                    put_varint(out, 1, 0);
                    put_int(out, 2, other.as_i64().context("not an integer")?);
                }
            },
            "RawExtension" | "FieldsV1" | "JSON" => {
                put_bytes(out, 1, value.to_string().as_bytes());
            }
            "JSONSchemaPropsOrBool" => match value {
                Value::Bool(allows) => put_varint(out, 1, u64::from(*allows)),
                schema => {
                    put_varint(out, 1, 1);
                    self.field(2, "apiextensions.v1.JSONSchemaProps", schema, out)?;
                }
            },
            "JSONSchemaPropsOrArray" => match value {
                Value::Array(_) => {
                    self.field(2, "[]apiextensions.v1.JSONSchemaProps", value, out)?;
                }
                schema => self.field(1, "apiextensions.v1.JSONSchemaProps", schema, out)?,
            },
            "JSONSchemaPropsOrStringArray" => match value {
                Value::Array(_) => self.field(2, "[]string", value, out)?,
                schema => self.field(1, "apiextensions.v1.JSONSchemaProps", schema, out)?,
            },
            other => bail!("{other} is not written here"),
        }
        Ok(())
    }
}

/// `runtime.Object` has no entry of its own: it is written as a `RawExtension`.
fn object_marker(name: &str) -> Option<&'static Type> {
    static RAW: std::sync::LazyLock<Type> = std::sync::LazyLock::new(|| Type {
        kinds: Vec::new(),
        marker: Some("RawExtension".to_owned()),
        is: None,
        fields: Vec::new(),
    });
    (name == "machinery.Object").then(|| &*RAW)
}

fn decode_members(
    facts: &Facts,
    entry: &Type,
    mut raw: &[u8],
    object: &mut Map<String, Value>,
) -> Result<()> {
    while !raw.is_empty() {
        let (number, wire) = take(&mut raw)?;
        let Some(field) = entry.fields.iter().find(|field| field.number == number) else {
            object.insert(format!("<field {number}>"), format!("{wire:?}").into());
            continue;
        };
        decode_field(facts, field, &wire, object).with_context(|| format!("in {}", field.name))?;
    }
    Ok(())
}

fn decode_field(
    facts: &Facts,
    field: &Field,
    wire: &Wire<'_>,
    object: &mut Map<String, Value>,
) -> Result<()> {
    let type_ = field.type_.trim_start_matches('*');
    if field.inline {
        let entry = facts
            .type_named(type_)
            .with_context(|| format!("no type {type_}"))?;
        return decode_members(facts, entry, wire.bytes()?, object);
    }
    let slot = object.entry(&field.name);
    if let Some(inner) = type_.strip_prefix("[]") {
        let value = decode_value(facts, inner, wire)?;
        slot.or_insert_with(|| json!([]))
            .as_array_mut()
            .context("a list and not a list")?
            .push(value);
    } else if let Some(inner) = type_.strip_prefix("map[string]") {
        let mut entry = wire.bytes()?;
        let (mut key, mut value) = (String::new(), Value::Null);
        while !entry.is_empty() {
            match take(&mut entry)? {
                (1, Wire::Bytes(text)) => key = text_of(text)?,
                (2, wire) => value = decode_value(facts, inner, &wire)?,
                other => bail!("{other:?} in a map entry"),
            }
        }
        slot.or_insert_with(|| json!({}))[key] = value;
    } else {
        let value = decode_value(facts, type_, wire)?;
        if field.type_.starts_with('*') || !is_zero(&value) {
            *slot.or_insert(Value::Null) = value;
        }
    }
    Ok(())
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(value) => value.is_empty(),
        Value::Array(value) => value.is_empty(),
        Value::Object(value) => value.is_empty(),
    }
}

fn decode_value(facts: &Facts, type_: &str, wire: &Wire<'_>) -> Result<Value> {
    let type_ = type_.trim_start_matches('*');
    Ok(match type_ {
        "string" => text_of(wire.bytes()?)?.into(),
        "bytes" => BASE64.encode(wire.bytes()?).into(),
        "bool" => (wire.varint()? != 0).into(),
        "float64" => match wire {
            Wire::Fixed64(bytes) => f64::from_le_bytes(*bytes).into(),
            other => bail!("{other:?} is no float64"),
        },
        "int32" | "int64" | "int" | "uint8" | "uint32" | "uint64" => wire.varint()?.cast_signed().into(),
        name => {
            let entry = facts
                .type_named(name)
                .or_else(|| object_marker(name))
                .with_context(|| format!("no type {name}"))?;
            decode_message(facts, entry, wire.bytes()?)?
        }
    })
}

fn decode_message(facts: &Facts, entry: &Type, mut raw: &[u8]) -> Result<Value> {
    if entry.is.is_none() && entry.marker.is_none() {
        let mut object = Map::new();
        decode_members(facts, entry, raw, &mut object)?;
        return Ok(Value::Object(object));
    }
    // Go reads a time without fields as no time at all.
    if raw.is_empty() && matches!(entry.marker.as_deref(), Some("Time" | "MicroTime")) {
        return Ok(Value::Null);
    }
    // Marker messages are shown as they stand on the wire.
    let mut shown = Vec::new();
    while !raw.is_empty() {
        shown.push(match take(&mut raw)? {
            (number, Wire::Varint(value)) => json!([number, value.cast_signed()]),
            (number, Wire::Fixed64(value)) => json!([number, f64::from_le_bytes(value)]),
            (number, Wire::Bytes(bytes)) => {
                let text = String::from_utf8_lossy(bytes).into_owned();
                let json = serde_json::from_str(&text);
                json!([number, json.unwrap_or(Value::String(text))])
            }
        });
    }
    if matches!(entry.marker.as_deref(), Some("Time" | "MicroTime")) {
        return Ok(time_of(&shown));
    }
    Ok(Value::Array(shown))
}

/// A time as JSON shows it, so that the masks find it.
fn time_of(shown: &[Value]) -> Value {
    let number = |wanted: i64| {
        shown
            .iter()
            .find(|field| field[0] == wanted)
            .and_then(|field| field[1].as_i64())
            .unwrap_or_default()
    };
    let nanoseconds = i32::try_from(number(2)).unwrap_or_default();
    match jiff::Timestamp::new(number(1), nanoseconds) {
        Ok(time) => Value::String(time.to_string()),
        Err(_) => Value::Array(shown.to_vec()),
    }
}

#[derive(Debug)]
enum Wire<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    fn bytes(&self) -> Result<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            other => bail!("{other:?} where bytes belong"),
        }
    }

    fn varint(&self) -> Result<u64> {
        match self {
            Self::Varint(value) => Ok(*value),
            other => bail!("{other:?} where a varint belongs"),
        }
    }
}

fn take<'a>(rest: &mut &'a [u8]) -> Result<(u32, Wire<'a>)> {
    let key = take_varint(rest)?;
    let number = u32::try_from(key >> 3)?;
    Ok((
        number,
        match u32::try_from(key & 7)? {
            VARINT => Wire::Varint(take_varint(rest)?),
            FIXED64 => {
                let (value, after) = rest.split_first_chunk().context("cut off")?;
                *rest = after;
                Wire::Fixed64(*value)
            }
            BYTES => {
                let length = usize::try_from(take_varint(rest)?)?;
                let (value, after) = rest.split_at_checked(length).context("cut off")?;
                *rest = after;
                Wire::Bytes(value)
            }
            other => bail!("wire type {other}"),
        },
    ))
}

fn take_varint(rest: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().context("cut off")?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    bail!("a varint without end")
}

fn text_of(bytes: &[u8]) -> Result<String> {
    Ok(std::str::from_utf8(bytes)?.to_owned())
}

fn put_key(out: &mut Vec<u8>, number: u32, wire: u32) {
    put_raw_varint(out, u64::from(number << 3 | wire));
}

fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_key(out, number, BYTES);
    put_raw_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, number: u32, value: u64) {
    put_key(out, number, VARINT);
    put_raw_varint(out, value);
}

fn put_int(out: &mut Vec<u8>, number: u32, value: i64) {
    put_varint(out, number, value.cast_unsigned());
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "seven bits at a time is what a varint is"
)]
fn put_raw_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn protobuf_written_message_is_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../machinery/api/facts");
        let facts = Facts::read(&folder).unwrap();
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "labels": {"k": "v"}},
            "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}],
                     "volumes": [{"name": "e", "emptyDir": {"medium": "Memory"}}]},
        });
        let bytes = encode(&facts, &object).unwrap();
        assert_eq!(decode(&facts, &bytes).unwrap(), object);
    }
}
