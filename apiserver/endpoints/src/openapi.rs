//! OpenAPI v3: an index, and one document per group version, rendered when asked for.

use crate::body::Body;
use crate::handlers::Inner;
use apiserver_registry::RegistryError;
use http::{Request, Response};

/// Rendered documents that are still warm; none are kept by an idle server.
#[derive(Debug, Default)]
pub(crate) struct Documents;

/// Answers `/openapi/…`; `None` until the documents are rendered from the table.
pub(crate) fn answer(
    _inner: &Inner,
    _path: &str,
    _request: &Request<Body>,
) -> Result<Option<Response<Body>>, RegistryError> {
    Ok(None)
}
