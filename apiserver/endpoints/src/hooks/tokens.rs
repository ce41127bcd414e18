//! Tokens of service accounts.

use apiserver_registry::{Admitted, RegistryError, RequestContext};
use async_trait::async_trait;
use machinery_schema::Tree;

/// Issues tokens.
#[async_trait]
pub trait Tokens: Send + Sync {
    /// Fills in what a TokenRequest leaves to the server, and validates it; validating admission sees the result.
    async fn complete(&self, _: &RequestContext, request: Tree) -> Result<Tree, RegistryError> {
        Ok(request)
    }

    /// Makes a token for a service account from a completed TokenRequest: the object with its status.
    async fn token(
        &self,
        _: &RequestContext,
        _: &Admitted,
        _service_account: &Tree,
        _: Tree,
    ) -> Result<Tree, RegistryError> {
        Err(RegistryError::Unavailable("no issuer of tokens here".into()))
    }
}
