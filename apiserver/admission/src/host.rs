//! The request as the server knows it, for plugins that look beyond kinds they name: webhooks and policies.

use crate::AdmissionError;
use async_trait::async_trait;
use machinery_cel::{Check, Decision, Interrupt};
use machinery_meta::{GroupVersionKind, GroupVersionResource};
use machinery_schema::Tree;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A resource that has the same objects as another, and the kind that requests of it have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Equivalent {
    pub resource: GroupVersionResource,
    pub kind: GroupVersionKind,
}

/// Memory that is counted; dropped, it is not any more.
pub type Held = Box<dyn Any + Send + Sync>;

/// See the module.
#[async_trait]
pub trait Host: fmt::Debug + Send + Sync {
    /// The kind of the object that is admitted.
    fn kind(&self) -> &GroupVersionKind;

    /// Reports whether the kind is one of a CustomResourceDefinition.
    fn is_custom(&self) -> bool;

    /// The resource of the request's address.
    fn resource(&self) -> &GroupVersionResource;

    /// The options of the request as a JSON object (`CreateOptions` and its like); `None` where it has none.
    fn options(&self) -> Option<String>;

    /// Resources whose objects have a kind, each with whether they are in namespaces.
    fn resources_of_kind(&self, group: &str, version: &str, kind: &str) -> Vec<(GroupVersionResource, bool)>;

    /// Other resources with the same objects and, where the request is of a subresource, with that subresource.
    fn equivalents(&self) -> Vec<Equivalent>;

    /// The object in another version.
    ///
    /// # Errors
    /// The reason why it cannot be converted; [`AdmissionError::Busy`] where another attempt may succeed.
    async fn convert(
        &self,
        object: &Tree,
        from: &GroupVersionResource,
        to: &Equivalent,
    ) -> Result<Tree, AdmissionError>;

    /// Decides whether the request's user, or a service account (namespace and name), may do something.
    ///
    /// # Errors
    /// [`AdmissionError::Busy`] where no authorizer has decided.
    async fn authorize(
        &self,
        service_account: Option<(&str, &str)>,
        check: &Check,
        verb: &str,
    ) -> Result<Decision, AdmissionError>;

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

    /// Ends evaluations of expressions once the request's client has gone.
    fn interrupt(&self) -> Option<Arc<dyn Interrupt>>;

    /// Counts bytes that the request holds while it waits for another server.
    ///
    /// # Errors
    /// [`AdmissionError::Busy`] where the request's owner holds too much already.
    fn hold(&self, bytes: usize) -> Result<Held, AdmissionError>;

    /// Says that work in proportion to so many bytes follows.
    ///
    /// # Errors
    /// There is no turn for it.
    async fn heavy_from(&self, bytes: usize) -> Result<(), AdmissionError>;
}
