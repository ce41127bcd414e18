//! Builders of documents, patches, messages and schemas: deep, wide and long ones, of the words that the engines know.

use crate::protobuf::{write_bytes, write_number};
use machinery_fuzz::Random;

/// Built inputs end here, so that a round costs milliseconds.
const MAX_BUILT: usize = 1 << 14;

const NAMES: &[&str] = &[
    "metadata",
    "spec",
    "status",
    "labels",
    "annotations",
    "finalizers",
    "containers",
    "name",
    "ports",
    "containerPort",
    "env",
    "resources",
    "limits",
    "nodeSelector",
    "overhead",
    "token",
    "livenessProbe",
    "creationTimestamp",
    "kind",
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/finalizers",
];
const LEAVES: &[&str] = &[
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "1e300",
    "9223372036854775808",
    "\"\"",
    "\"a\"",
    "\"1Gi\"",
    "\"aGk=\"",
    "\"2026-01-02T02:04:05Z\"",
    "\"\\u00e4\\ud800\\\\\"",
    "{}",
    "[]",
    "\"delete\"",
    "\"replace\"",
];

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace(['"', '\\'], "_"))
}

fn member_name(random: &mut Random) -> String {
    match random.below(4) {
        0 => quoted(&random.name()),
        _ => quoted(random.pick(NAMES)),
    }
}

/// Adds so many parts, until there is enough of it.
fn many(random: &mut Random, times: usize, mut part: impl FnMut(&mut Random, usize) -> String) -> String {
    let mut out = String::new();
    for at in 0..times {
        if out.len() > MAX_BUILT {
            break;
        }
        if at > 0 {
            out.push(',');
        }
        out.push_str(&part(random, at));
    }
    out
}

/// A value: a leaf, something nested in itself, a long list or text, a map of a few or of many.
pub(super) fn value(random: &mut Random, depth: usize) -> String {
    match random.below(if depth > 4 { 2 } else { 8 }) {
        0 | 1 => random.pick(LEAVES).to_owned(),
        2 => nested(random),
        3 => {
            let (times, item) = (random.count(), value(random, depth + 1));
            format!("[{}]", many(random, times, |_, _| item.clone()))
        }
        4 => {
            let piece = random.pick(&["x", "é", "\\n", "\\u0001", "\\\\"]);
            format!("\"{}\"", piece.repeat(random.count()))
        }
        5 => {
            let (times, item) = (random.count(), value(random, depth + 1));
            format!("{{{}}}", many(random, times, |_, at| format!("\"k{at}\":{item}")))
        }
        _ => object(random, depth),
    }
}

fn nested(random: &mut Random) -> String {
    let times = random.count();
    let (open, close) = match random.below(3) {
        0 => ("[".to_owned(), "]"),
        1 => (format!("{{{}:", member_name(random)), "}"),
        _ => (format!("[{{{}:", member_name(random)), "}]"),
    };
    let times = times.min(MAX_BUILT / open.len());
    let close = if random.below(8) == 0 { "" } else { close };
    format!(
        "{}{}{}",
        open.repeat(times),
        random.pick(LEAVES),
        close.repeat(times)
    )
}

fn object(random: &mut Random, depth: usize) -> String {
    let times = 1 + random.below(5);
    let members = many(random, times, |random, _| {
        let name = member_name(random);
        format!("{name}:{}", value(random, depth + 1))
    });
    format!("{{{members}}}")
}

pub(super) fn json(random: &mut Random) -> Vec<u8> {
    value(random, 0).into_bytes()
}

/// A pod-like object whose lists and maps may be long, with directives if requested.
pub(super) fn pod(random: &mut Random, directives: bool) -> String {
    let items = |random: &mut Random, directives: bool| {
        let times = random.count();
        many(random, times, |random, at| {
            let name = if random.below(4) == 0 { 0 } else { at };
            let more = match random.below(if directives { 6 } else { 3 }) {
                0 => format!(r#","resources":{{"limits":{{"cpu{at}":"{at}"}}}}"#),
                1 => format!(r#","ports":[{{"containerPort":{at}}}]"#),
                3 => r#","$patch":"delete""#.to_owned(),
                4 => r#","$retainKeys":["name"]"#.to_owned(),
                5 => r#","command":["x"],"$setElementOrder/ports":[{"containerPort":1}]"#.to_owned(),
                _ => String::new(),
            };
            format!(r#"{{"name":"c{name}"{more}}}"#)
        })
    };
    let texts = |random: &mut Random| {
        let times = random.count();
        many(random, times, |random, at| {
            format!("\"f{}\"", at + random.below(2))
        })
    };
    let containers = items(random, directives);
    let finalizers = texts(random);
    let times = random.count();
    let labels = many(random, times, |random, at| match random.below(5) {
        0 => format!("\"l{at}\":null"),
        _ => format!("\"l{at}\":\"v\""),
    });
    let overhead = value(random, 1);
    let order = if directives {
        let (list, gone, times) = (texts(random), texts(random), random.count());
        let named = many(random, times, |random, at| {
            format!(r#"{{"name":"c{}"}}"#, at * random.below(3))
        });
        match random.below(3) {
            0 => format!(r#""$setElementOrder/containers":[{named}],"#),
            1 => format!(r#""$retainKeys":["containers",{list}"x"],"$deleteFromPrimitiveList/x":[{gone}],"#),
            _ => String::new(),
        }
    } else {
        String::new()
    };
    format!(
        r#"{{"metadata":{{"name":"a","finalizers":[{finalizers}],"labels":{{{labels}}}}},"spec":{{{order}"containers":[{containers}],"overhead":{overhead}}}}}"#
    )
}

/// Operations on a document and on what earlier ones made of it.
pub(super) fn json_patch(random: &mut Random) -> Vec<u8> {
    let times = random.count().min(1_000);
    let mut depth = 1;
    let operations = many(random, times, |random, _| {
        let path = |random: &mut Random, depth: usize| match random.below(6) {
            0 => format!("/spec/containers/{}", random.pick(&["0", "-", "-1", "1", "99"])),
            1 => format!("/metadata/labels/{}", random.name().replace(['"', '\\'], "_")),
            2 => "/x".to_owned(),
            3 => format!("/x{}", "/0".repeat(random.below(depth + 2))),
            4 => format!("/x{}/-", "/0".repeat(random.below(depth + 2))),
            _ => random
                .pick(&["", "/", "/spec", "/metadata", "/data", "/spec/overhead"])
                .to_owned(),
        };
        let (from, to) = (path(random, depth), path(random, depth));
        match random.below(7) {
            0 | 1 => {
                let value = value(random, 3);
                depth = (depth + 1).min(300);
                format!(r#"{{"op":"add","path":"{to}","value":{value}}}"#)
            }
            2 => format!(r#"{{"op":"remove","path":"{to}"}}"#),
            3 => format!(
                r#"{{"op":"replace","path":"{to}","value":{}}}"#,
                random.pick(LEAVES)
            ),
            4 => format!(r#"{{"op":"move","from":"{from}","path":"{to}"}}"#),
            5 => {
                depth = (depth * 2).min(300);
                format!(r#"{{"op":"copy","from":"{from}","path":"{to}"}}"#)
            }
            _ => format!(r#"{{"op":"test","path":"{to}","value":null}}"#),
        }
    });
    format!(r#"[{{"op":"add","path":"/x","value":[[]]}},{operations}]"#).into_bytes()
}

/// A message of fields by number: nested, in parts, packed, repeated.
pub(super) fn message(random: &mut Random, depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    if random.below(4) == 0 {
        let number = small_number(random);
        let times = random.count();
        for _ in 0..times.min(MAX_BUILT / 8) {
            let inner = std::mem::take(&mut out);
            write_bytes(&mut out, number, &inner);
        }
    }
    for _ in 0..1 + random.below(6) {
        let number = small_number(random);
        match random.below(if depth > 5 { 2 } else { 5 }) {
            0 => write_number(&mut out, number, i64::from(u32::MAX) * i64::from(number)),
            1 => write_bytes(&mut out, number, &vec![b'a'; random.count()]),
            2 => {
                let part = message(random, depth + 1);
                for _ in 0..random.count().min(MAX_BUILT / (part.len() + 1)) {
                    write_bytes(&mut out, number, &part);
                }
            }
            _ => {
                let inner = message(random, depth + 1);
                write_bytes(&mut out, number, &inner);
            }
        }
    }
    out
}

fn small_number(random: &mut Random) -> u16 {
    [1, 2, 3, 4, 6, 7, 8, 10, 11, 14, 16, 32][random.below(12)]
}

/// A structural schema, or nearly one: nested, with many alternatives and properties, patterns and defaults.
pub(super) fn schema(random: &mut Random, depth: usize) -> String {
    let leaf = |random: &mut Random| {
        let pattern = random.pick(&["^a+$", "(", r"\\pL{20}", "[^[]*", r"\\d", "(a{1000}){1000}", "x*"]);
        match random.below(6) {
            0 => format!(r#"{{"type":"string","pattern":"{pattern}"}}"#),
            1 => r#"{"type":"integer","minimum":1,"default":0}"#.to_owned(),
            2 => r#"{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}"#.to_owned(),
            3 => r#"{"x-kubernetes-preserve-unknown-fields":true}"#.to_owned(),
            4 => r#"{"type":"string","enum":["a","b"],"maxLength":3,"default":"a"}"#.to_owned(),
            _ => r#"{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"}}}}"#.to_owned(),
        }
    };
    match random.below(if depth > 3 { 2 } else { 6 }) {
        0 | 1 => leaf(random),
        2 => {
            let times = random.count();
            let open = r#"{"type":"object","properties":{"a":"#;
            let times = times.min(MAX_BUILT / open.len());
            format!("{}{}{}", open.repeat(times), leaf(random), "}}".repeat(times))
        }
        3 => {
            let (times, inner) = (random.count(), leaf(random));
            let properties = many(random, times, |_, at| format!("\"p{at}\":{inner}"));
            format!(r#"{{"type":"object","properties":{{{properties}}}}}"#)
        }
        4 => {
            let (times, junctor) = (random.count(), random.pick(&["allOf", "anyOf", "oneOf"]));
            let all = many(random, times, |random, at| match random.below(2) {
                0 => format!(r#"{{"minLength":{at}}}"#),
                _ => r#"{"not":{"pattern":"a"}}"#.to_owned(),
            });
            format!(r#"{{"type":"string","{junctor}":[{all}]}}"#)
        }
        _ => {
            let (items, more) = (schema(random, depth + 1), schema(random, depth + 1));
            format!(
                r#"{{"type":"object","properties":{{"l":{{"type":"array","items":{items}}},"m":{{"type":"object","additionalProperties":{more}}}}}}}"#
            )
        }
    }
}
