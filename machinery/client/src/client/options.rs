//! The type of a patch, and the options of a delete, beside the object itself.

use machinery_meta::{Revision, Uid};
use serde_json::json;

/// Type of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Patch {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// By the merge keys of the schema.
    Strategic,
    /// Server-side apply for this field manager.
    Apply {
        /// Field manager.
        manager: String,
        /// Take them from others.
        force: bool,
    },
}

/// Condition on the current object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Precondition {
    /// It is this object, not one recreated under the name.
    pub uid: Option<Uid>,
    /// Nothing changed it since.
    pub revision: Option<Revision>,
}

impl Precondition {
    /// The condition that it is still this object.
    pub fn uid(uid: &Uid) -> Self {
        Self {
            uid: Some(uid.clone()),
            revision: None,
        }
    }
}

/// Deletion of dependents: upstream's propagation policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They stay and forget their owner.
    Orphan,
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
}

/// Options of a delete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Condition on the current object.
    pub precondition: Precondition,
    /// Seconds the object may take; the kind's own default where absent.
    pub grace_period_seconds: Option<i64>,
    /// The kind's own default where absent.
    pub propagation: Option<Propagation>,
}

impl DeleteOptions {
    /// Delete exactly this object.
    pub fn uid(uid: &Uid) -> Self {
        Self {
            precondition: Precondition::uid(uid),
            ..Self::default()
        }
    }

    pub(super) fn body(&self) -> serde_json::Value {
        let mut body = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        if let Some(seconds) = self.grace_period_seconds {
            body["gracePeriodSeconds"] = json!(seconds);
        }
        if let Some(propagation) = self.propagation {
            body["propagationPolicy"] = json!(format!("{propagation:?}"));
        }
        if let Some(uid) = &self.precondition.uid {
            body["preconditions"]["uid"] = json!(uid.0);
        }
        if let Some(revision) = self.precondition.revision {
            body["preconditions"]["resourceVersion"] = json!(revision.to_string());
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delete_options_say_only_what_was_asked() {
        let plain = DeleteOptions::default().body();
        assert_eq!(plain, json!({"kind": "DeleteOptions", "apiVersion": "v1"}));
        let exact = DeleteOptions {
            propagation: Some(Propagation::Background),
            ..DeleteOptions::uid(&Uid("u".to_owned()))
        };
        assert_eq!(exact.body()["propagationPolicy"], "Background");
        assert_eq!(exact.body()["preconditions"]["uid"], "u");
    }
}
