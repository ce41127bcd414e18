//! The kind SchedulerPolicy as the scheduler reads it.

use super::Policy;
use machinery_client::{ApiResource, Projection};
use machinery_meta::ObjectHeader;
use serde::Deserialize;
use std::borrow::Cow;

/// The name of the one object that counts.
pub const NAME: &str = "default";

/// The resource of the kind.
pub fn resource() -> ApiResource {
    ApiResource {
        group: Cow::Borrowed("knarr.dev"),
        version: Cow::Borrowed("v1"),
        plural: Cow::Borrowed("schedulerpolicies"),
        kind: Cow::Borrowed("SchedulerPolicy"),
        namespaced: false,
    }
}

/// The policy of an object. One that this version does not know is kept by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedPolicy {
    pub policy: Result<Policy, Box<str>>,
    pub uid: Box<str>,
    pub generation: i64,
}

impl Projection for WantedPolicy {
    fn project(header: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Object {
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Deserialize, Default)]
        struct Spec {
            #[serde(default)]
            policy: Box<str>,
        }
        let object: Object = machinery_client::json::from_slice(json)?;
        let name = object.spec.policy;
        Ok(Self {
            policy: Policy::named(&name).ok_or(name),
            uid: (*header.uid.0).into(),
            generation: header.generation,
        })
    }
}
