//! Texts made of the table: values of fields that no setting decides, and the rows of `docs/kubelet-configuration.md`. Pure.

use super::fields::{FIELDS, Form, Handling};
use serde_json::{Map, Value};

/// Values that the agent has in any case, as `/configz` shows them.
pub(crate) fn kept_values() -> Map<String, Value> {
    let mut document = Map::new();
    for field in FIELDS {
        if let Handling::Kept { own, .. } = field.handling
            && !own.is_empty()
        {
            put(&mut document, field.path, value(field.form, own));
        }
    }
    document
}

fn put(document: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            document.insert(path.to_owned(), value);
        }
        Some((name, rest)) => {
            let group = document.entry(name).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(group) = group {
                put(group, rest, value);
            }
        }
    }
}

fn value(form: Form, text: &str) -> Value {
    match form {
        Form::Bool => Value::Bool(text == "true"),
        Form::Int32 | Form::Int64 => text.parse::<i64>().map_or(Value::Null, Value::from),
        _ => Value::from(text),
    }
}

/// Puts upstream's default of a field into a document.
#[cfg(test)]
pub(super) fn put_default(document: &mut Map<String, Value>, field: &super::fields::Field) {
    let value = match field.form {
        Form::Texts => Value::from(vec![field.default]),
        form => value(form, field.default),
    };
    put(document, field.path, value);
}

/// The rows of the page's table.
#[cfg(test)]
pub(super) fn table() -> String {
    let code = |text: &str| match text {
        "" => String::new(),
        text => format!("`{text}`"),
    };
    let rows = FIELDS.iter().map(|field| {
        let here = match field.handling {
            Handling::Flag(flag) if flag.len() == 1 => format!("`-{flag}`"),
            Handling::Flag(flag) => format!("`--{flag}`"),
            Handling::With(other) => format!("with `{other}`"),
            Handling::Kept { own, others, needs } => {
                let all = [field.default, own].into_iter().chain(others.iter().copied());
                let mut kept: Vec<String> = Vec::new();
                for text in all.map(code).filter(|text| !text.is_empty()) {
                    if !kept.contains(&text) {
                        kept.push(text);
                    }
                }
                match (kept.is_empty(), own) {
                    (true, _) => format!("not given; else {needs}"),
                    (false, "") => format!("{}, without effect; else {needs}", kept.join(", ")),
                    (false, own) if own != field.default => {
                        format!(
                            "{}, of which the agent does {}; else {needs}",
                            kept.join(", "),
                            code(own)
                        )
                    }
                    (false, _) => format!("{}; else {needs}", kept.join(", ")),
                }
            }
        };
        format!("| `{}` | {} | {here} |\n", field.path, code(field.default))
    });
    rows.collect()
}
