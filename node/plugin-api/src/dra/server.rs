//! The service of a driver.

use std::sync::Arc;

use futures::future::BoxFuture;
use tonic::Status;
use tonic::body::Body;

use super::DraService;
use super::messages::{
    Claim, NodePrepareResourcesRequest, NodePrepareResourcesResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
};
use crate::calls::{Transport, answer, unknown};

/// A larger call of the agent is refused.
const CALL_BYTES_MAX: usize = 4 << 20;

/// A driver's answer.
pub type Answer<T> = BoxFuture<'static, Result<T, Status>>;

/// A driver, as it serves a node.
pub trait DraDriver: Send + Sync + 'static {
    /// Prepares claims.
    fn prepare(&self, claims: Vec<Claim>) -> Answer<NodePrepareResourcesResponse>;

    /// Takes that back.
    fn unprepare(&self, claims: Vec<Claim>) -> Answer<NodeUnprepareResourcesResponse>;
}

/// The service of a driver, in all versions.
pub fn service(driver: Arc<dyn DraDriver>) -> Transport {
    Transport::new(tower::service_fn(move |request: http::Request<Body>| {
        let driver = Arc::clone(&driver);
        async move { Ok(serve(driver.as_ref(), request).await) }
    }))
}

async fn serve(driver: &dyn DraDriver, request: http::Request<Body>) -> http::Response<Body> {
    let path = request.uri().path().to_owned();
    if DraService::ALL.iter().any(|service| service.prepare() == path) {
        let handle = |message: NodePrepareResourcesRequest| driver.prepare(message.claims);
        return answer(request, CALL_BYTES_MAX, handle).await;
    }
    if DraService::ALL.iter().any(|service| service.unprepare() == path) {
        let handle = |message: NodeUnprepareResourcesRequest| driver.unprepare(message.claims);
        return answer(request, CALL_BYTES_MAX, handle).await;
    }
    unknown()
}
