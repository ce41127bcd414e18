//! Expressions with upstream's answers: problems, types, estimates, costs and values.

use crate::value::{Data, List, Map};
use crate::{Env, Limits, NoSizes, Type, Value, Variables};
use serde_json::Value as Json;

/// The files of recorded answers, one expression a line.
const FILES: [(&str, &str); 3] = [
    ("language", include_str!("../../testdata/language.jsonl")),
    ("spec", include_str!("../../testdata/spec.jsonl")),
    ("libraries", include_str!("../../testdata/libraries.jsonl")),
];

fn env(case: &Json) -> Env {
    let mut env = Env::new();
    env.features.newest = true;
    env.features.mutation = case["expr"].as_str().is_some_and(|own| own.contains("jsonpatch"));
    for (name, _) in case["vars"].as_object().into_iter().flatten() {
        env = env.variable(name, Type::Dyn);
    }
    for (name, ty) in case["types"].as_object().into_iter().flatten() {
        let ty = ty
            .as_str()
            .unwrap_or_default()
            .replace("optional(", "optional_type(");
        env = env.variable(name, ty.parse().expect("a type"));
    }
    env
}

/// Expressions whose answers differ on purpose, or because upstream's depend on chance.
const OTHERWISE: [(&str, &str); 9] = [
    (
        "[1].map(a, {a: a}).map(b, {b: b})",
        "only scalars are keys here, as the language says",
    ),
    (
        "{null:false}[null]",
        "only scalars are keys here, as the language says",
    ),
    ("x.map(e, e)", "the order of keys is chance to upstream"),
    (
        "x.all(k, k == 'zz') || x.exists(k, k == 'a')",
        "the order of keys is chance to upstream",
    ),
    (
        "{'foo': 2, 'bar': 1, 'baz': 0}.transformMap(k, v, 4 / v)",
        "the order of keys is chance to upstream",
    ),
    ("99999999999999999999999G", "quantities end at 1.7·10^29 here"),
    (
        "[quantity(\"9999999999999999999999999999999999999\")].all(x, x.add(quantity(\"1\")).compareTo(x.add(quantity(\"2\"))) == -1)",
        "quantities end at 1.7·10^29 here",
    ),
    ("[].flatten(dyn('1'))", "upstream panics"),
    (
        "ExampleType{}.in",
        "one syntax error is reported, not those that follow",
    ),
];

/// Recorded and own answers of a case, as one text each.
fn answers(case: &Json) -> (String, String) {
    let text = case["expr"].as_str().expect("an expression");
    let env = env(case);
    let field = |name: &str| case[name].as_str().unwrap_or_default().to_owned();
    let compiled = match env.compile(text) {
        Ok(own) => own,
        Err(issues) => return (field("errors"), issues.to_string()),
    };
    let estimate = compiled.estimate(&NoSizes);
    let own = format!("{}..{}", estimate.min, estimate.max);
    let wanted = format!("{}..{}", case["min"], case["max"]);
    let program = match compiled.program() {
        Ok(own) => own,
        Err(problem) => {
            return (
                format!("{} {wanted}", field("errors")),
                format!("PROGRAM {problem} {own}"),
            );
        }
    };
    let mut variables = Variables::new();
    for (name, value) in case["vars"].as_object().into_iter().flatten() {
        variables = variables.with(name, Data::from(value).value());
    }
    let done = program.evaluate(&variables, &Limits::default());
    let own = format!("{own} cost {}", done.cost);
    let wanted = format!("{}{wanted} cost {}", field("errors"), case["cost"]);
    match done.value {
        Ok(value) => (
            format!("{wanted} = {}{}", field("value"), field("error")),
            format!("{own} = {}", show(&value)),
        ),
        Err(error) => (
            format!("{wanted} ! {}{}", field("error"), field("value")),
            format!("{own} ! {error}"),
        ),
    }
}

/// A value in the notation of the data.
fn show(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(own) => own.to_string(),
        Value::Int(own) => own.to_string(),
        Value::Uint(own) => format!("{own}u"),
        Value::Double(own) if own.is_nan() => "d:NaN".to_owned(),
        Value::Double(own) if own.is_infinite() => format!("d:{}Inf", if *own > 0.0 { '+' } else { '-' }),
        Value::Double(own) => format!("d:{:x}", own.to_bits()),
        Value::String(own) => Json::String(own.as_str().to_owned()).to_string(),
        Value::Bytes(own) => own
            .iter()
            .fold("b:".to_owned(), |out, own| format!("{out}{own:02x}")),
        Value::Timestamp(own) => format!("ts:{}.{:09}", own.seconds, own.nanos),
        Value::Duration(own) => format!("dur:{own}"),
        Value::Type(own) => format!("type:{}", own.name()),
        Value::Optional(None) => "opt()".to_owned(),
        Value::Optional(Some(own)) => format!("opt({})", show(own)),
        Value::List(own) => format!("[{}]", list(own)),
        Value::Map(own) => format!("{{{}}}", map(own)),
        other => other.ty().name().to_owned(),
    }
}

fn list(own: &List<'_>) -> String {
    let shown: Vec<_> = own.iter().map(|own| show(&own.expect("an element"))).collect();
    shown.join(",")
}

fn map(own: &Map<'_>) -> String {
    let keys = own.keys();
    let entries = keys.iter().map(|key| {
        let value = own.find(key).expect("a value").expect("a value");
        format!("{}:{}", show(key), show(&value))
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort();
    entries.join(",")
}

/// Values of libraries are compared by their type alone.
fn normal(own: &str) -> String {
    match own.find("= net.").or(own.find("= kubernetes.")) {
        Some(at) => own[..at + 2 + own[at + 2..].find(':').unwrap_or(own.len() - at - 2)].to_owned(),
        None => own.to_owned(),
    }
}

#[test]
fn answers_are_those_of_upstream() {
    let (mut wrong, mut all) = (Vec::new(), 0);
    for (file, text) in FILES {
        for line in text.lines() {
            let case: Json = serde_json::from_str(line).expect("a line is JSON");
            let text = case["expr"].as_str().unwrap_or_default();
            if OTHERWISE
                .iter()
                .any(|own| text == own.0 || text.contains(own.0) && own.0.ends_with('G'))
            {
                continue;
            }
            all += 1;
            let (wanted, own) = answers(&case);
            if normal(&wanted) != normal(&own) {
                wrong.push(format!(
                    "{file}: {}\n  upstream {wanted}\n  ours     {own}",
                    case["expr"]
                ));
            }
        }
    }
    let shown = wrong.join("\n");
    assert!(wrong.is_empty(), "{} of {all} differ:\n{shown}", wrong.len());
}
