//! Two masked answers side by side.

use anyhow::Result;
use http::HeaderMap;
use serde_json::Value;

use super::client::Answer;
use super::mask::Mask;
use crate::facts::Facts;
use crate::protobuf;

/// The headers that a client can act on.
const COMPARED_HEADERS: &[&str] = &[
    "content-type",
    "warning",
    "cache-control",
    "retry-after",
    "location",
    "allow",
    "www-authenticate",
    "x-content-type-options",
];

/// Parts of an answer that are compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

/// The body as a document, whatever form it has on the wire.
pub fn document(facts: &Facts, answer: &Answer) -> Result<Value> {
    let content_type = header(&answer.headers, "content-type");
    if answer.body.is_empty() {
        return Ok(Value::Null);
    }
    let text = || String::from_utf8_lossy(&answer.body).into_owned();
    Ok(if content_type.contains("protobuf") {
        protobuf::decode(facts, &answer.body)
            .unwrap_or_else(|problem| format!("protobuf that does not decode: {problem:#}").into())
    } else if content_type.contains("json") {
        serde_json::from_slice(&answer.body).unwrap_or_else(|_| text().into())
    } else if content_type.contains("yaml") {
        serde_saphyr::from_str(&text()).unwrap_or_else(|_| text().into())
    } else {
        text().into()
    })
}

/// An answer after the mask, without what the step ignores.
pub fn see(answer: &Answer, mut body: Value, mask: &mut Mask, ignore: &[String]) -> Seen {
    mask.document(&mut body);
    for path in ignore {
        let steps: Vec<&str> = path.split('.').collect();
        remove(&mut body, &steps);
    }
    let headers = COMPARED_HEADERS
        .iter()
        .flat_map(|name| {
            answer.headers.get_all(*name).iter().map(move |value| {
                (
                    (*name).to_owned(),
                    String::from_utf8_lossy(value.as_bytes()).into_owned(),
                )
            })
        })
        .map(|(name, value)| (name, mask.text(&value)))
        .collect();
    Seen {
        status: answer.status.as_u16(),
        headers,
        body,
    }
}

/// One line for each difference; none when the answers are the same.
pub fn differences(upstream: &Seen, ours: &Seen) -> Vec<String> {
    let mut lines = Vec::new();
    if upstream.status != ours.status {
        lines.push(format!(
            "status: upstream {}, ours {}",
            upstream.status, ours.status
        ));
    }
    differing_headers(upstream, ours, &mut lines);
    walk("body", Some(&upstream.body), Some(&ours.body), &mut lines);
    lines
}

/// Warnings are compared one by one, in any order; of other headers there is one.
fn differing_headers(upstream: &Seen, ours: &Seen, lines: &mut Vec<String>) {
    let only = |left: &Seen, right: &Seen, name: &str| -> Vec<String> {
        let own = left.headers.iter().filter(|(own, _)| own == name);
        own.filter(|pair| !right.headers.contains(pair))
            .map(|(_, value)| format!("{value:?}"))
            .collect()
    };
    for name in COMPARED_HEADERS {
        let (mut left, mut right) = (only(upstream, ours, name), only(ours, upstream, name));
        for _ in 0..left.len().max(right.len()) {
            let take = |from: &mut Vec<String>| {
                if from.is_empty() {
                    "nothing".to_owned()
                } else {
                    from.remove(0)
                }
            };
            let (upstream, ours) = (take(&mut left), take(&mut right));
            lines.push(format!("header {name}: upstream {upstream}, ours {ours}"));
        }
    }
}

fn walk(path: &str, upstream: Option<&Value>, ours: Option<&Value>, lines: &mut Vec<String>) {
    match (upstream, ours) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let more = right.keys().filter(|name| !left.contains_key(*name));
            for name in left.keys().chain(more) {
                walk(&format!("{path}.{name}"), left.get(name), right.get(name), lines);
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for index in 0..left.len().max(right.len()) {
                walk(
                    &format!("{path}[{index}]"),
                    left.get(index),
                    right.get(index),
                    lines,
                );
            }
        }
        (left, right) if left != right => {
            let show = |value: Option<&Value>| value.map_or("nothing".to_owned(), shorten);
            lines.push(format!("{path}: upstream {}, ours {}", show(left), show(right)));
        }
        _ => {}
    }
}

fn shorten(value: &Value) -> String {
    const LONGEST: usize = 600;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}

fn remove(value: &mut Value, steps: &[&str]) {
    let Some((first, rest)) = steps.split_first() else {
        return;
    };
    match value {
        Value::Array(items) if *first == "*" => {
            items.iter_mut().for_each(|item| remove(item, rest));
        }
        Value::Array(items) => {
            if let Some(item) = first.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                remove(item, rest);
            }
        }
        Value::Object(members) => {
            if rest.is_empty() {
                members.remove(*first);
            } else if let Some(member) = members.get_mut(*first) {
                remove(member, rest);
            }
        }
        _ => {}
    }
}

fn header(headers: &HeaderMap, name: &str) -> String {
    headers
        .get(name)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .unwrap_or_default()
}
