//! The node's service of a driver.

use std::sync::Arc;

use futures::future::{BoxFuture, ready};
use tonic::Status;
use tonic::body::Body;

use super::messages::{
    Empty, NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesResponse,
    NodeGetInfoResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
};
use super::{CAPABILITIES, EXPAND, INFO, PUBLISH, STAGE, STATS, UNPUBLISH, UNSTAGE};
use crate::calls::{Transport, answer, unknown};

/// A larger call of the agent is refused.
const CALL_BYTES_MAX: usize = 4 << 20;

/// A driver's answer.
pub type Answer<T> = BoxFuture<'static, Result<T, Status>>;

/// A driver, as it serves a node.
pub trait NodeDriver: Send + Sync + 'static {
    /// Returns what it is on this node.
    fn info(&self) -> Answer<NodeGetInfoResponse>;

    /// Its abilities.
    fn capabilities(&self) -> NodeGetCapabilitiesResponse;

    /// Shows a volume once for all pods.
    fn stage(&self, message: NodeStageVolumeRequest) -> Answer<()>;

    /// Takes a staged volume away.
    fn unstage(&self, message: NodeUnstageVolumeRequest) -> Answer<()>;

    /// Shows a volume to a pod.
    fn publish(&self, message: NodePublishVolumeRequest) -> Answer<()>;

    /// Takes a volume away from a pod.
    fn unpublish(&self, message: NodeUnpublishVolumeRequest) -> Answer<()>;

    /// Returns the usage of a volume.
    fn stats(&self, message: NodeGetVolumeStatsRequest) -> Answer<NodeGetVolumeStatsResponse>;

    /// Makes a volume larger.
    fn expand(&self, message: NodeExpandVolumeRequest) -> Answer<NodeExpandVolumeResponse>;
}

/// The service of a driver.
pub fn service(driver: Arc<dyn NodeDriver>) -> Transport {
    Transport::new(tower::service_fn(move |request: http::Request<Body>| {
        let driver = Arc::clone(&driver);
        async move { Ok(serve(driver.as_ref(), request).await) }
    }))
}

async fn serve(driver: &dyn NodeDriver, request: http::Request<Body>) -> http::Response<Body> {
    match request.uri().path() {
        INFO => answer(request, CALL_BYTES_MAX, |_: Empty| driver.info()).await,
        CAPABILITIES => {
            answer(request, CALL_BYTES_MAX, |_: Empty| {
                ready(Ok(driver.capabilities()))
            })
            .await
        }
        STAGE => answer(request, CALL_BYTES_MAX, |message| empty(driver.stage(message))).await,
        UNSTAGE => answer(request, CALL_BYTES_MAX, |message| empty(driver.unstage(message))).await,
        PUBLISH => answer(request, CALL_BYTES_MAX, |message| empty(driver.publish(message))).await,
        UNPUBLISH => {
            answer(request, CALL_BYTES_MAX, |message| {
                empty(driver.unpublish(message))
            })
            .await
        }
        STATS => answer(request, CALL_BYTES_MAX, |message| driver.stats(message)).await,
        EXPAND => answer(request, CALL_BYTES_MAX, |message| driver.expand(message)).await,
        _ => unknown(),
    }
}

async fn empty(answer: Answer<()>) -> Result<Empty, Status> {
    answer.await.map(|()| Empty {})
}
