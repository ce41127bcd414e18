//! Claims of a token, and the checks that every token must pass (OpenID Connect Core 3.1.3.7), in go-oidc's words.

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Clocks may differ by so many seconds for the time before which a token is not good; its end is taken by the word.
const NOT_BEFORE_LEEWAY_SECONDS: i64 = 60;

/// See the module.
#[derive(Debug)]
pub(super) struct Claims(Value);

/// An old name of Google's issuer.
pub(super) fn full_issuer(issuer: &str) -> &str {
    match issuer {
        "accounts.google.com" => "https://accounts.google.com",
        issuer => issuer,
    }
}

impl Claims {
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let claims: Map<String, Value> =
            serde_json::from_slice(text).map_err(|_| "oidc: failed to unmarshal claims".to_owned())?;
        Ok(Self(Value::Object(claims)))
    }

    /// The claims as expressions see them.
    pub(super) fn value(&self) -> &Value {
        &self.0
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some()
    }

    /// A claim of this type; null is Go's zero value.
    pub(super) fn get<T: DeserializeOwned + Default>(&self, name: &str) -> Result<T, String> {
        let value = self.0.get(name).ok_or_else(|| "claim not present".to_owned())?;
        let value = Option::<T>::deserialize_from(value);
        value.map(Option::unwrap_or_default)
    }

    /// A claim that is one text or a list of texts.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        match self.0.get(name) {
            Some(Value::String(one)) => Ok(vec![one.clone()]),
            _ => self.get(name),
        }
    }

    fn number(&self, name: &str) -> Option<i64> {
        let value = self.0.get(name)?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a time beyond the range is its end"
        )]
        let number = value.as_i64().or_else(|| value.as_f64().map(|own| own as i64));
        number
    }

    pub(super) fn check_issuer(&self, expected: &str) -> Result<(), String> {
        let issuer: String = self.get("iss").unwrap_or_default();
        match full_issuer(&issuer) == expected {
            true => Ok(()),
            // The token's issuer is not shown: its signature is not verified yet.
            false => Err(format!(
                "oidc: id token issued by a different provider, expected {expected:?}"
            )),
        }
    }

    pub(super) fn check_audience(&self, expected: &[String]) -> Result<(), String> {
        let own = self.texts("aud").unwrap_or_default();
        match own.iter().any(|one| expected.contains(one)) {
            true => Ok(()),
            false => Err(format!("oidc: expected audience in {expected:?}")),
        }
    }

    pub(super) fn check_times(&self, now: Timestamp) -> Result<(), String> {
        let seconds = now.as_second();
        let expires = self.number("exp").unwrap_or_default();
        if expires < seconds {
            return Err(format!("oidc: token is expired (Token Expiry: {expires})"));
        }
        let not_before = self.number("nbf").unwrap_or(i64::MIN);
        if seconds.saturating_add(NOT_BEFORE_LEEWAY_SECONDS) < not_before {
            return Err(format!(
                "oidc: current time {seconds} before the nbf (not before) time: {not_before}"
            ));
        }
        Ok(())
    }
}

/// Reading a value without a copy of it, with words for the log that hold nothing of it.
trait FromValue: Sized {
    fn deserialize_from(value: &Value) -> Result<Self, String>;
}

impl<T: DeserializeOwned> FromValue for T {
    fn deserialize_from(value: &Value) -> Result<Self, String> {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        T::deserialize(value).map_err(|_| format!("json: cannot unmarshal {found} into another type"))
    }
}
