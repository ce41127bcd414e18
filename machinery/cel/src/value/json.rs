//! Values as JSON, for changes that expressions make.

use super::Value;
use base64::Engine as _;
use serde_json::{Map as JsonMap, Value as Json};

/// Bytes of a value as JSON, about: lists may hold one value many times.
const MAX_BYTES: usize = 8 << 20;
/// Values inside each other.
const MAX_DEPTH: usize = 256;

/// The reason for which a value is no JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoJson(pub String);

/// The JSON of a value, and what was wrong with the names of the types of its objects.
struct Writing {
    left: usize,
    mismatches: Vec<String>,
}

impl Value<'_> {
    /// The value as JSON.
    ///
    /// Types of objects in an object must have the names of the fields that lead to them: `Object.spec` is for `spec`.
    ///
    /// # Errors
    /// A part of the value has no form in JSON, is too large, or has a type of another name.
    pub fn to_json(&self) -> Result<Json, NoJson> {
        let mut writing = Writing {
            left: MAX_BYTES,
            mismatches: Vec::new(),
        };
        let path = match self {
            Self::Object(own) => Some(own.type_name.to_string()),
            _ => None,
        };
        let json = writing.value(self, path.as_deref(), 0)?;
        match writing.mismatches.as_slice() {
            [] => Ok(json),
            several => Err(NoJson(format!("type mismatch: {}", several.join("\n")))),
        }
    }
}

impl Writing {
    fn take(&mut self, bytes: usize) -> Result<(), NoJson> {
        let left = self.left.checked_sub(bytes + size_of::<Json>());
        self.left = left.ok_or_else(|| NoJson(format!("the value is larger than {MAX_BYTES} bytes")))?;
        Ok(())
    }

    fn value(&mut self, value: &Value<'_>, path: Option<&str>, depth: usize) -> Result<Json, NoJson> {
        if depth > MAX_DEPTH {
            return Err(NoJson(format!(
                "the value has more than {MAX_DEPTH} values inside each other"
            )));
        }
        self.take(0)?;
        Ok(match value {
            Value::Null | Value::Optional(None) => Json::Null,
            Value::Bool(own) => Json::Bool(*own),
            Value::Int(own) => (*own).into(),
            Value::Uint(own) => (*own).into(),
            Value::Double(own) => double(*own)?,
            Value::String(own) => self.text(own.as_str())?,
            Value::Bytes(own) => {
                self.take(own.len())?;
                Json::String(base64::engine::general_purpose::STANDARD.encode(own))
            }
            Value::Timestamp(own) => Json::String(own.to_string()),
            Value::Duration(own) => Json::String(seconds(*own)),
            Value::Optional(Some(own)) => self.value(own, path, depth + 1)?,
            Value::List(own) => {
                let mut items = Vec::new();
                for item in own.iter() {
                    let item = item.map_err(|error| NoJson(error.to_string()))?;
                    items.push(self.value(&item, path, depth + 1)?);
                }
                Json::Array(items)
            }
            Value::Map(own) => {
                let mut members = JsonMap::new();
                for key in own.keys() {
                    let Some(name) = key.as_str() else {
                        let (shown, ty) = (key.shown(), key.ty());
                        return Err(NoJson(format!(
                            "map key {shown:?} is of type {}, not string",
                            ty.name()
                        )));
                    };
                    let member = own.find(&key).unwrap_or(Ok(Value::Null));
                    let member = member.map_err(|error| NoJson(error.to_string()))?;
                    self.take(name.len())?;
                    members.insert(name.to_owned(), self.value(&member, path, depth + 1)?);
                }
                Json::Object(members)
            }
            Value::Object(own) => self.object(own, path, depth)?,
            Value::Type(_) => return Err(unusable("type")),
            Value::Opaque(own) => return Err(unusable(own.ty().name())),
        })
    }

    fn text(&mut self, text: &str) -> Result<Json, NoJson> {
        self.take(text.len())?;
        Ok(Json::String(text.to_owned()))
    }

    fn object(&mut self, own: &super::Object<'_>, path: Option<&str>, depth: usize) -> Result<Json, NoJson> {
        let name = &*own.type_name;
        if let Some(expected) = path.filter(|path| *path != name) {
            self.mismatches.push(format!(
                "unexpected type name {name:?}, expected {expected:?}, which matches field name path from root Object type"
            ));
        }
        let mut members = JsonMap::new();
        for (field, value) in &own.fields {
            let below = path.map(|path| format!("{path}.{field}"));
            self.take(field.len())?;
            let member = self.value(value, below.as_deref(), depth + 1)?;
            members.insert(field.to_string(), member);
        }
        Ok(Json::Object(members))
    }
}

fn unusable(name: &str) -> NoJson {
    NoJson(format!("a value of type {name} has no form in JSON"))
}

fn double(own: f64) -> Result<Json, NoJson> {
    let number = serde_json::Number::from_f64(own);
    let number = number.ok_or_else(|| NoJson("a double that is no number has no form in JSON".to_owned()))?;
    // Go writes a whole number without a fraction.
    Ok(super::as_int(own).map_or(Json::Number(number), Json::from))
}

/// A duration as protobuf's JSON has it.
fn seconds(nanoseconds: i64) -> String {
    let (whole, rest) = (
        nanoseconds / 1_000_000_000,
        (nanoseconds % 1_000_000_000).unsigned_abs(),
    );
    let sign = if nanoseconds < 0 && whole == 0 { "-" } else { "" };
    match rest {
        0 => format!("{sign}{whole}s"),
        rest => format!("{sign}{whole}.{}s", format!("{rest:09}").trim_end_matches('0')),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Env, Limits, Type, Variables};

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        let env = Env::new().variable("x", Type::Dyn).with_mutation();
        let program = env.compile(text).unwrap().program().unwrap();
        let variables = Variables::new();
        let done = program.evaluate(&variables, &Limits::default());
        let found = done.value.unwrap().to_json().map(|own| own.to_string());
        assert_eq!(found.as_deref().map_err(|own| own.0.as_str()), expected, "{text}");
    }

    #[test]
    fn values_have_upstreams_form_in_json() {
        check("Object{}", Ok("{}"));
        check(
            "Object{spec: Object.spec{n: 3, l: [Object.spec.l{a: 'b'}], m: {'k': Object.spec.m{}}}}",
            Ok(r#"{"spec":{"l":[{"a":"b"}],"m":{"k":{}},"n":3}}"#),
        );
        check("[1.5, 2.0]", Ok("[1.5,2]"));
        check("[duration('-0.5s'), duration('90s')]", Ok(r#"["-0.5s","90s"]"#));
        check("b'abc'", Ok(r#""YWJj""#));
        check("[null]", Ok("[null]"));
        check("Object{?a: optional.none()}", Ok("{}"));
        check("{1: 'a'}", Err("map key \"1\" is of type int, not string"));
        check("ip('1.2.3.4')", Err("a value of type net.IP has no form in JSON"));
        check(
            "Object{spec: Object.wrong{}}",
            Err(
                "type mismatch: unexpected type name \"Object.wrong\", expected \"Object.spec\", which matches field name path from root Object type",
            ),
        );
    }

    #[test]
    fn values_that_repeat_themselves_are_bounded() {
        let mut text = "'abcdefgh'".to_owned();
        for _ in 0..12 {
            text = format!("[{text}].map(e, [e, e, e, e])");
        }
        check(&text, Err("the value is larger than 8388608 bytes"));
    }
}
