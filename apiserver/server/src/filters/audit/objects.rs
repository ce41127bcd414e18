//! Patches and answers as the JSON that an audit event carries.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use machinery_meta::GroupVersion;
use machinery_schema::protobuf::open_envelope;
use machinery_schema::{decode_protobuf, encode_json, yaml_to_json};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The body as JSON; `None` where there is none to record (an empty one, a text, an object of an unknown kind).
pub(super) fn as_json(headers: &HeaderMap, body: &Bytes, omit_managed_fields: bool) -> Option<Box<RawValue>> {
    let json = match media_type(headers)? {
        "application/vnd.kubernetes.protobuf" => from_protobuf(body)?,
        "application/yaml" | "application/apply-patch+yaml" => yaml_to_json(body).ok()?,
        json if json.ends_with("json") => std::str::from_utf8(body).ok()?.trim_end().to_owned(),
        _ => return None,
    };
    if !omit_managed_fields {
        return in_one_line(json);
    }
    let json = RawValue::from_string(json).ok()?;
    in_one_line(without_managed_fields(&json).get().to_owned())
}

/// JSON without line breaks: an event is a line, whatever a client sent. `None` where it is no JSON.
pub(super) fn in_one_line(json: String) -> Option<Box<RawValue>> {
    let json = RawValue::from_string(json).ok()?;
    // Texts have no raw line breaks, so that these stand between values.
    let breaks = ['\n', '\r'];
    if !json.get().contains(breaks) {
        return Some(json);
    }
    RawValue::from_string(json.get().replace(breaks, " ")).ok()
}

fn media_type(headers: &HeaderMap) -> Option<&str> {
    let form = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(form.split(';').next().unwrap_or_default().trim())
}

/// Reports whether a body is read as YAML.
pub(super) fn is_yaml(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|form| form.ends_with("yaml"))
}

fn from_protobuf(body: &[u8]) -> Option<String> {
    let envelope = open_envelope(body).ok()?;
    let version: GroupVersion = envelope.api_version.parse().ok()?;
    let (schema, ty) = machinery_api::schema_for(&version.group, &version.version, envelope.kind)?;
    let object = decode_protobuf(schema, ty, body).ok()?;
    let mut json = Vec::new();
    encode_json(&object, &mut json);
    String::from_utf8(json).ok()
}

/// Members of an object that is read no deeper, since it may nest as deep as objects do.
type Members = BTreeMap<String, Box<RawValue>>;

/// Removes the owners of fields, of an object, of each item of a list and of each row of a table.
fn without_managed_fields(object: &RawValue) -> Box<RawValue> {
    changed(object, |object: &mut Members| {
        remove_managed_fields(object);
        for list in ["items", "rows"] {
            change(object, list, |items: &mut Vec<Box<RawValue>>| {
                items.iter_mut().for_each(|item| {
                    *item = changed(item, |item: &mut Members| {
                        remove_managed_fields(item);
                        change(item, "object", remove_managed_fields);
                    });
                });
            });
        }
    })
}

fn remove_managed_fields(object: &mut Members) {
    change(object, "metadata", |metadata: &mut Members| {
        metadata.remove("managedFields");
    });
}

/// Changes a member, where there is one of this form.
fn change<T: DeserializeOwned + Serialize>(object: &mut Members, name: &str, change: impl FnOnce(&mut T)) {
    if let Some(member) = object.get_mut(name) {
        *member = changed(member, change);
    }
}

/// Returns the changed JSON, or the same where it has another form.
fn changed<T: DeserializeOwned + Serialize>(json: &RawValue, change: impl FnOnce(&mut T)) -> Box<RawValue> {
    let Ok(mut read) = serde_json::from_str(json.get()) else {
        return json.to_owned();
    };
    change(&mut read);
    serde_json::value::to_raw_value(&read).unwrap_or_else(|_| json.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(form: &'static str, body: &'static [u8], omit: bool, expected: Option<&str>) {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, http::HeaderValue::from_static(form))]);
        let json = as_json(&headers, &Bytes::from_static(body), omit);
        assert_eq!(json.as_deref().map(RawValue::get), expected);
    }

    #[test]
    fn audit_objects_are_one_line() {
        let line = |json: &str| in_one_line(json.to_owned()).map(|json| json.get().to_owned());
        let forged = "{\"a\":\n{\"kind\":\"Event\"}\r\n,\"b\": \"c\\n d\"}";
        let expected = r#"{"a": {"kind":"Event"}  ,"b": "c\n d"}"#;
        assert_eq!(line(forged).as_deref(), Some(expected));
        assert_eq!(line("{}").as_deref(), Some("{}"));
        assert_eq!(line("{"), None);
    }

    #[test]
    fn audit_objects_are_json_whatever_was_sent() {
        check("application/json", b"{\"a\":1}\n", false, Some("{\"a\":1}"));
        check("application/json; charset=utf-8", b"{", false, None);
        check("text/plain", b"ok", false, None);
        check("application/yaml", b"a: 1\n", true, Some("{\"a\":1}"));
        let object = br#"{"metadata":{"managedFields":[{}],"name":"x"}}"#;
        check(
            "application/json",
            object,
            true,
            Some(r#"{"metadata":{"name":"x"}}"#),
        );
        let list = br#"{"items":[{"metadata":{"managedFields":[]}}],"metadata":{}}"#;
        check(
            "application/json",
            list,
            true,
            Some(r#"{"items":[{"metadata":{}}],"metadata":{}}"#),
        );
    }

    #[test]
    fn audit_objects_nest_as_deep_as_objects_may() {
        let deep = format!("{}{}", r#"{"a":"#.repeat(255), "}".repeat(255)).replace(":}", ":1}");
        let object = |owners: &str| format!(r#"{{"metadata":{{{owners}"name":"x"}},"spec":{deep}}}"#);
        let (with, without) = (object(r#""managedFields":[{}],"#), object(""));
        for (head, tail) in [
            ("", ""),
            (r#"{"items":["#, "]}"),
            (r#"{"rows":[{"object":"#, "}]}"),
        ] {
            let headers =
                HeaderMap::from_iter([(CONTENT_TYPE, http::HeaderValue::from_static("application/json"))]);
            let body = Bytes::from(format!("{head}{with}{tail}"));
            let json = as_json(&headers, &body, true).map(|json| json.get().to_owned());
            assert_eq!(json, Some(format!("{head}{without}{tail}")));
        }
    }
}
