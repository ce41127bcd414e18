//! The request as the server knows it, for plugins that look beyond kinds they name: webhooks and policies.

use crate::AdmissionError;
use async_trait::async_trait;
use machinery_cel::{Check, Decision};
use machinery_meta::{GroupVersionKind, GroupVersionResource};
use machinery_schema::Tree;
use std::fmt;
use std::time::Duration;

/// A resource that has the same objects as another, and the kind that requests of it have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Equivalent {
    pub resource: GroupVersionResource,
    pub kind: GroupVersionKind,
}

/// See the module.
#[async_trait]
pub trait Host: fmt::Debug + Send + Sync {
    /// The kind of the object that is admitted.
    fn kind(&self) -> &GroupVersionKind;

    /// The resource of the request's address.
    fn resource(&self) -> &GroupVersionResource;

    /// The options of the request as a JSON object (`CreateOptions` and its like); `None` where it has none.
    fn options(&self) -> Option<String>;

    /// Other resources with the same objects and, where the request is of a subresource, with that subresource.
    fn equivalents(&self) -> Vec<Equivalent>;

    /// The object in another version.
    ///
    /// # Errors
    /// The reason why it cannot be converted.
    async fn convert(
        &self,
        object: &Tree,
        from: &GroupVersionResource,
        to: &Equivalent,
    ) -> Result<Tree, String>;

    /// Decides whether the request's user, or a service account (namespace and name), may do something.
    async fn authorize(&self, service_account: Option<(&str, &str)>, check: &Check, verb: &str) -> Decision;

    /// Applies the defaults of the kind that a resource has.
    fn set_defaults(&self, object: &mut Tree, of: &GroupVersionResource);

    /// The problem of a record of field owners that cannot be used.
    fn field_owners_problem(&self, object: &Tree) -> Option<String>;

    /// Warns the client.
    fn warn(&self, warning: String);

    /// Adds an annotation to the request's audit event.
    fn annotate(&self, key: String, value: String);

    /// Reports whether the audit event has bodies of requests.
    fn audits_bodies(&self) -> bool;

    /// Adds time that webhooks took to what the audit event has of it.
    fn waited(&self, mutating: bool, took: Duration);

    /// Time left for the request; `None` without a bound.
    fn time_left(&self) -> Option<Duration>;

    /// Says that work in proportion to so many bytes follows.
    ///
    /// # Errors
    /// There is no turn for it.
    async fn heavy_from(&self, bytes: usize) -> Result<(), AdmissionError>;
}
