//! Files of the operator with one object of `apiserver.config.k8s.io`, decoded as strictly as upstream does.

use machinery_schema::yaml_to_json;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A file that is no such object, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(String);

/// Fields of a kind, so that others can be refused.
#[derive(Debug)]
pub(crate) enum Shape {
    Leaf,
    List(&'static Shape),
    Object(&'static [(&'static str, Shape)]),
}

/// A kind and the versions in which it may be written.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) versions: &'static [&'static str],
    pub(crate) shape: Shape,
}

impl Kind {
    /// Reads an object of this kind.
    pub(crate) fn decode<T: DeserializeOwned>(&self, text: &str) -> Result<T, DecodeError> {
        let failed = |why: String| DecodeError(why);
        if text.is_empty() {
            return Err(failed("empty config data".to_owned()));
        }
        let json = yaml_to_json(text.as_bytes()).map_err(|error| failed(error.to_string()))?;
        let value: Value = serde_json::from_str(&json).map_err(|error| failed(error.to_string()))?;
        self.check_version(&value)?;
        let mut unknown = Vec::new();
        find_unknown(&value, &self.shape, "", &mut unknown);
        if !unknown.is_empty() {
            let unknown: Vec<String> = unknown
                .iter()
                .map(|name| format!("unknown field {name:?}"))
                .collect();
            return Err(failed(format!("strict decoding error: {}", unknown.join(", "))));
        }
        serde_json::from_str(&json).map_err(|error| failed(format!("strict decoding error: {error}")))
    }

    fn check_version(&self, value: &Value) -> Result<(), DecodeError> {
        let member = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        let (kind, version) = (member("kind"), member("apiVersion"));
        if kind.is_empty() {
            return Err(DecodeError("Object 'Kind' is missing".to_owned()));
        }
        if kind != self.name || !self.versions.contains(&version) {
            return Err(DecodeError(format!(
                "no kind {kind:?} is registered for version {version:?}; give {} of {}",
                self.name,
                self.versions.join(" or ")
            )));
        }
        Ok(())
    }
}

fn find_unknown(value: &Value, shape: &Shape, path: &str, unknown: &mut Vec<String>) {
    match (value, shape) {
        (Value::Object(members), Shape::Object(fields)) => {
            for (name, member) in members {
                let at = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                match fields.iter().find(|(own, _)| own == name) {
                    Some((_, shape)) => find_unknown(member, shape, &at, unknown),
                    None => unknown.push(at),
                }
            }
        }
        (Value::Array(items), Shape::List(item)) => {
            for (at, own) in items.iter().enumerate() {
                find_unknown(own, item, &format!("{path}[{at}]"), unknown);
            }
        }
        _ => {}
    }
}

/// A value, or what Go has in its place where the file says null.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
