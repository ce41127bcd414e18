//! Options of an operation as webhooks get them: `CreateOptions` and its like of meta.k8s.io/v1.

use crate::engine::options::{CreateOptions, DeleteOptions, FieldValidation, Propagation, UpdateOptions};
use serde_json::{Map, Value, json};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum OperationOptions {
    /// A connection, and what the server does itself.
    #[default]
    None,
    Create(WriteOptions),
    Update(WriteOptions),
    Delete(Box<DeleteOptions>),
}

/// Options that creates and updates have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_manager: String,
    pub field_validation: FieldValidation,
}

impl From<&CreateOptions> for OperationOptions {
    fn from(own: &CreateOptions) -> Self {
        Self::Create(WriteOptions {
            dry_run: own.dry_run,
            field_manager: own.field_manager.clone(),
            field_validation: own.field_validation,
        })
    }
}

impl From<&UpdateOptions> for OperationOptions {
    fn from(own: &UpdateOptions) -> Self {
        Self::Update(WriteOptions {
            dry_run: own.dry_run,
            field_manager: own.field_manager.clone(),
            field_validation: own.field_validation,
        })
    }
}

impl From<&DeleteOptions> for OperationOptions {
    fn from(own: &DeleteOptions) -> Self {
        Self::Delete(Box::new(own.clone()))
    }
}

impl OperationOptions {
    /// The options as a JSON object.
    pub fn to_json(&self) -> Option<String> {
        let (kind, mut members) = match self {
            Self::None => return None,
            Self::Create(write) => ("CreateOptions", write.members()),
            Self::Update(write) => ("UpdateOptions", write.members()),
            Self::Delete(own) => ("DeleteOptions", of_delete(own)),
        };
        members.insert("kind".to_owned(), json!(kind));
        members.insert("apiVersion".to_owned(), json!("meta.k8s.io/v1"));
        Some(Value::Object(members).to_string())
    }
}

impl WriteOptions {
    fn members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        if self.dry_run {
            members.insert("dryRun".to_owned(), json!(["All"]));
        }
        if !self.field_manager.is_empty() {
            members.insert("fieldManager".to_owned(), json!(self.field_manager));
        }
        // The default and its absence are the same.
        let validation = match self.field_validation {
            FieldValidation::Warn => return members,
            FieldValidation::Ignore => "Ignore",
            FieldValidation::Strict => "Strict",
        };
        members.insert("fieldValidation".to_owned(), json!(validation));
        members
    }
}

fn of_delete(own: &DeleteOptions) -> Map<String, Value> {
    let mut members = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        members.extend(value.map(|value| (name.to_owned(), value)));
    };
    set("dryRun", own.dry_run.then(|| json!(["All"])));
    set("gracePeriodSeconds", own.grace_period_seconds.map(Value::from));
    set("orphanDependents", own.orphan_dependents.map(Value::from));
    let propagation = own.propagation.map(|own| match own {
        Propagation::Orphan => "Orphan",
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
    });
    set("propagationPolicy", propagation.map(Value::from));
    let wanted = &own.preconditions;
    let mut preconditions = Map::new();
    preconditions.extend(wanted.uid.as_ref().map(|uid| ("uid".to_owned(), json!(uid.0))));
    let version = wanted.resource_version.as_ref();
    preconditions.extend(version.map(|own| ("resourceVersion".to_owned(), json!(own))));
    set(
        "preconditions",
        (!preconditions.is_empty()).then_some(Value::Object(preconditions)),
    );
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_told_as_upstream_tells_them() {
        let json = |options: OperationOptions| -> Value {
            serde_json::from_str(&options.to_json().unwrap()).unwrap()
        };
        let create = CreateOptions {
            dry_run: true,
            field_manager: "me".to_owned(),
            field_validation: FieldValidation::Strict,
            addressed: false,
        };
        let expected = json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"], "fieldManager": "me", "fieldValidation": "Strict"});
        assert_eq!(json((&create).into()), expected);
        // A patch is an update to webhooks, and `force` is not among its options (upstream's `patchToUpdateOptions`).
        let patch = UpdateOptions {
            force: true,
            ..UpdateOptions::default()
        };
        let expected = json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"});
        assert_eq!(json((&patch).into()), expected);
        let delete = DeleteOptions {
            grace_period_seconds: Some(0),
            propagation: Some(Propagation::Background),
            ..DeleteOptions::default()
        };
        let expected = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        assert_eq!(json((&delete).into()), expected);
        assert_eq!(OperationOptions::None.to_json(), None);
    }
}
