//! Rights beyond the request's own that a plugin requests.

use crate::AdmissionError;
use apiserver_auth::authz::attributes::ResourceTarget;
use apiserver_auth::authz::{Attributes, AttributesTarget, AuthorizerChain, Busy};
use async_trait::async_trait;
use machinery_meta::UserInfo;

/// A right on a resource; empty text where a part is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

/// The server's authorizers.
#[async_trait]
pub trait Permissions: Send + Sync {
    /// Reports whether the authorizers allow the user this right.
    ///
    /// # Errors
    /// [`AdmissionError::Busy`] where none has decided.
    async fn has(&self, user: &UserInfo, right: Right<'_>) -> Result<bool, AdmissionError>;
}

#[async_trait]
impl Permissions for AuthorizerChain {
    async fn has(&self, user: &UserInfo, right: Right<'_>) -> Result<bool, AdmissionError> {
        let target = AttributesTarget::Resource(ResourceTarget {
            group: right.group,
            version: "*",
            resource: right.resource,
            namespace: right.namespace,
            name: right.name,
            ..ResourceTarget::default()
        });
        let question = Attributes {
            asker: None,
            user,
            verb: right.verb,
            target,
        };
        let allowed = self.allows(&question).await;
        allowed.map_err(|Busy| AdmissionError::Busy)
    }
}
