//! The services of both sides: registration, which is the agent's, and the plugin's.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tonic::body::Body;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::messages::{
    AllocateRequest, AllocateResponse, DevicePluginOptions, Empty, ListAndWatchResponse,
    PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse, RegisterRequest,
};
use super::{ALLOCATE, LIST_AND_WATCH, OPTIONS, PRE_START, PREFERRED, REGISTER};
use crate::calls::{Transport, answer, unknown};

/// A larger request to register is refused.
const REGISTER_BYTES_MAX: usize = 64 << 10;
/// A larger call of the agent is refused.
const CALL_BYTES_MAX: usize = 4 << 20;

/// The agent's service: its requests go to `register`.
pub fn registration<F>(register: F) -> Transport
where
    F: Fn(RegisterRequest) -> BoxFuture<'static, Result<(), Status>> + Clone + Send + Sync + 'static,
{
    Transport::new(tower::service_fn(move |request: http::Request<Body>| {
        let register = register.clone();
        async move {
            if request.uri().path() != REGISTER {
                return Ok(unknown());
            }
            let handle = |message: RegisterRequest| {
                let registered = register(message);
                async move { registered.await.map(|()| Empty {}) }
            };
            Ok(answer(request, REGISTER_BYTES_MAX, handle).await)
        }
    }))
}

/// A plugin.
pub trait DevicePlugin: Send + Sync + 'static {
    /// Optional calls that it wants.
    fn options(&self) -> DevicePluginOptions;

    /// Its devices, now and after each change.
    fn list_and_watch(self: Arc<Self>) -> BoxStream<'static, Result<ListAndWatchResponse, Status>>;

    /// Returns the devices that suit best.
    fn preferred(
        &self,
        message: PreferredAllocationRequest,
    ) -> BoxFuture<'static, Result<PreferredAllocationResponse, Status>>;

    /// Gives devices to containers.
    fn allocate(&self, message: AllocateRequest) -> BoxFuture<'static, Result<AllocateResponse, Status>>;

    /// A container is about to start.
    fn pre_start(&self, message: PreStartContainerRequest) -> BoxFuture<'static, Result<(), Status>>;
}

/// The service of a plugin.
pub fn service(plugin: Arc<dyn DevicePlugin>) -> Transport {
    Transport::new(tower::service_fn(move |request: http::Request<Body>| {
        let plugin = Arc::clone(&plugin);
        async move { Ok(serve(&plugin, request).await) }
    }))
}

async fn serve(plugin: &Arc<dyn DevicePlugin>, request: http::Request<Body>) -> http::Response<Body> {
    match request.uri().path() {
        OPTIONS => {
            let handle = |_: Empty| futures::future::ready(Ok(plugin.options()));
            answer(request, CALL_BYTES_MAX, handle).await
        }
        LIST_AND_WATCH => {
            let open = |_: Request<Empty>| {
                let devices = Response::new(Arc::clone(plugin).list_and_watch());
                futures::future::ready(Ok::<_, Status>(devices))
            };
            tonic::server::Grpc::new(ProstCodec::<ListAndWatchResponse, Empty>::default())
                .server_streaming(tower::service_fn(open), request)
                .await
        }
        PREFERRED => answer(request, CALL_BYTES_MAX, |message| plugin.preferred(message)).await,
        ALLOCATE => answer(request, CALL_BYTES_MAX, |message| plugin.allocate(message)).await,
        PRE_START => {
            let handle = |message| {
                let started = plugin.pre_start(message);
                async move { started.await.map(|()| PreStartContainerResponse {}) }
            };
            answer(request, CALL_BYTES_MAX, handle).await
        }
        _ => unknown(),
    }
}
