//! Rights beyond the one by which a request was let in.

use crate::request_info::RequestInfo;
use apiserver_registry::{RegistryError, RequestContext};
use async_trait::async_trait;

/// Authorizes by another verb.
#[async_trait]
pub trait Rights: Send + Sync {
    /// Checks that the user may use another verb than the request's own on its object; an error refuses.
    async fn authorize(
        &self,
        ctx: &RequestContext,
        verb: &str,
        info: &RequestInfo,
    ) -> Result<(), RegistryError>;
}
