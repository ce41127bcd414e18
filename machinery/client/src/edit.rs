//! Changes parts of an object's JSON and keeps every other byte of meaning, known to us or not.
//!
//! Controllers may only `update` what upstream's roles let them; they send back what they read, with one part replaced.

use crate::error::ClientError;
use crate::resource::ApiResource;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

type Fields = BTreeMap<String, Box<RawValue>>;

/// An object being changed.
#[derive(Debug)]
pub struct Edit(Fields);

impl Edit {
    /// Begins with an object as it was read; list items get the type meta they lack.
    pub fn of(resource: &ApiResource, json: &[u8]) -> Result<Self, ClientError> {
        let mut edit = Self(serde_json::from_slice(json).map_err(unreadable)?);
        edit.set("apiVersion", &resource.api_version())?;
        edit.set("kind", &resource.kind)?;
        Ok(edit)
    }

    /// Replaces a top-level field.
    pub fn set(&mut self, field: &str, value: &impl Serialize) -> Result<&mut Self, ClientError> {
        self.0.insert(
            field.to_owned(),
            serde_json::value::to_raw_value(value).map_err(unreadable)?,
        );
        Ok(self)
    }

    /// Replaces a field of a top-level object, such as `metadata.annotations`.
    pub fn set_in(
        &mut self,
        field: &str,
        inner: &str,
        value: &impl Serialize,
    ) -> Result<&mut Self, ClientError> {
        let mut fields: Fields = match self.0.get(field) {
            Some(raw) => serde_json::from_str(raw.get()).map_err(unreadable)?,
            None => Fields::new(),
        };
        fields.insert(
            inner.to_owned(),
            serde_json::value::to_raw_value(value).map_err(unreadable)?,
        );
        self.set(field, &fields)
    }

    /// The changed object, to be sent.
    pub fn body(&self) -> &impl Serialize {
        &self.0
    }
}

fn unreadable(source: serde_json::Error) -> ClientError {
    ClientError::Decode {
        what: "an object to be changed".to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    #[test]
    fn edit_keeps_other_members() {
        let json =
            br#"{"metadata":{"name":"a","new":{"x":1e3}},"spec":{"unknown":[1,null]},"status":{"old":1}}"#;
        let mut edit = Edit::of(&ApiResource::of::<Pod>(), json).unwrap();
        edit.set("status", &serde_json::json!({"phase": "Failed"}))
            .unwrap();
        edit.set_in("metadata", "annotations", &serde_json::json!({"k": "v"}))
            .unwrap();
        let text = serde_json::to_string(edit.body()).unwrap();
        assert_eq!(
            text,
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"k":"v"},"name":"a","new":{"x":1e3}},"spec":{"unknown":[1,null]},"status":{"phase":"Failed"}}"#
        );
    }
}
