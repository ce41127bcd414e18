//! Calls as they come in and answers as they go out.

use crate::{Machine, containers, images, refusals, sandboxes};
use containerd_client::services::v1::SubscribeRequest;
use containerd_client::types::Envelope;
use machinery_runtime::CancellationToken;
use node_cri::v1;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// A call as its operation sees it.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// The caller has gone.
    pub(crate) cancelled: CancellationToken,
}

/// Cancels the call when its caller drops it.
struct Caller(CancellationToken);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// One call, from the client's side: it may never arrive, break, run out of time, or die with the daemon.
pub(crate) async fn carry(
    machine: Arc<Machine>,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, Status> {
    let Some((life, dead)) = machine.life() else {
        return Err(refusals::down());
    };
    machine.way().await?;
    let caller = Caller(CancellationToken::new());
    let context = Context {
        cancelled: caller.0.clone(),
    };
    let deadline = timeout_of(&request);
    let out_of_time = async {
        match deadline {
            Some(time) => machine.runtime.sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let working = life.spawn("cri call", serve(Arc::clone(&machine), context, request));
    let answer = tokio::select! {
        biased;
        () = dead.cancelled() => return Err(refusals::lost()),
        answer = working => answer.map_err(|_| refusals::lost())?,
        () = out_of_time => return Err(refusals::timed_out()),
    };
    machine.way().await?;
    drop(caller);
    Ok(answer)
}

/// The deadline in gRPC's header.
fn timeout_of(request: &http::Request<Body>) -> Option<Duration> {
    let text = request.headers().get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        _ => Duration::from_nanos(number),
    })
}

macro_rules! calls {
    ($machine:ident, $context:ident, $request:ident, $path:expr; $($name:literal => $operation:path,)*) => {
        match $path {
            $(concat!("/runtime.v1.", $name) => {
                let handle = |asked: Request<_>| {
                    let (machine, context) = (Arc::clone(&$machine), $context.clone());
                    async move { $operation(machine, context, asked.into_inner()).await.map(Response::new) }
                };
                unary($request, handle).await
            })*
            other => refusals::unknown_here(other).into_http(),
        }
    };
}

async fn serve(
    machine: Arc<Machine>,
    context: Context,
    request: http::Request<Body>,
) -> http::Response<Body> {
    let path = request.uri().path().to_owned();
    *machine.calls.lock().entry(path.clone()).or_default() += 1;
    if path == "/containerd.services.events.v1.Events/Subscribe" {
        return subscribe(&machine, request).await;
    }
    calls! { machine, context, request, path.as_str();
        "RuntimeService/Version" => version,
        "RuntimeService/Status" => status,
        "RuntimeService/UpdateRuntimeConfig" => update_runtime_config,
        "RuntimeService/RunPodSandbox" => sandboxes::run,
        "RuntimeService/StopPodSandbox" => sandboxes::stop,
        "RuntimeService/RemovePodSandbox" => sandboxes::remove,
        "RuntimeService/PodSandboxStatus" => sandboxes::status,
        "RuntimeService/ListPodSandbox" => sandboxes::list,
        "RuntimeService/CreateContainer" => containers::create,
        "RuntimeService/StartContainer" => containers::start,
        "RuntimeService/StopContainer" => containers::stop,
        "RuntimeService/RemoveContainer" => containers::remove,
        "RuntimeService/ListContainers" => containers::list,
        "RuntimeService/ListContainerStats" => containers::list_stats,
        "RuntimeService/ContainerStatus" => containers::status,
        "RuntimeService/UpdateContainerResources" => containers::update_resources,
        "RuntimeService/ReopenContainerLog" => containers::reopen_log,
        "RuntimeService/ExecSync" => containers::exec_sync,
        "ImageService/ListImages" => images::list,
        "ImageService/ImageStatus" => images::status,
        "ImageService/PullImage" => images::pull,
        "ImageService/RemoveImage" => images::remove,
        "ImageService/ImageFsInfo" => images::fs_info,
    }
}

async fn unary<Asked, Answer, F, A>(request: http::Request<Body>, handle: F) -> http::Response<Body>
where
    Asked: Message + Default + Send + 'static,
    Answer: Message + Send + 'static,
    F: FnMut(Request<Asked>) -> A + Send,
    A: Future<Output = Result<Response<Answer>, Status>> + Send,
{
    let codec = ProstCodec::<Answer, Asked>::default();
    Grpc::new(codec).unary(tower::service_fn(handle), request).await
}

/// Subscribes: the head of the answer comes with the first event, as containerd's.
async fn subscribe(machine: &Arc<Machine>, request: http::Request<Body>) -> http::Response<Body> {
    let open = |_: Request<SubscribeRequest>| {
        let mut events = machine.subscribers.add();
        async move {
            let first = events.recv().await.ok_or_else(refusals::lost)?;
            let rest = UnboundedReceiverStream::new(events);
            Ok(Response::new(tokio_stream::once(first).chain(rest)))
        }
    };
    let codec = ProstCodec::<Envelope, SubscribeRequest>::default();
    Grpc::new(codec)
        .server_streaming(tower::service_fn(open), request)
        .await
}

async fn version(_: Arc<Machine>, _: Context, _: v1::VersionRequest) -> Result<v1::VersionResponse, Status> {
    Ok(v1::VersionResponse {
        version: "0.1.0".to_owned(),
        runtime_name: "containerd".to_owned(),
        runtime_version: "1.6.20~ds1".to_owned(),
        runtime_api_version: "v1".to_owned(),
    })
}

async fn status(_: Arc<Machine>, _: Context, _: v1::StatusRequest) -> Result<v1::StatusResponse, Status> {
    let well = |kind: &str| v1::RuntimeCondition {
        r#type: kind.to_owned(),
        status: true,
        ..v1::RuntimeCondition::default()
    };
    Ok(v1::StatusResponse {
        status: Some(v1::RuntimeStatus {
            conditions: ["RuntimeReady", "NetworkReady"].map(well).into(),
        }),
        ..v1::StatusResponse::default()
    })
}

async fn update_runtime_config(
    _: Arc<Machine>,
    _: Context,
    _: v1::UpdateRuntimeConfigRequest,
) -> Result<v1::UpdateRuntimeConfigResponse, Status> {
    Ok(v1::UpdateRuntimeConfigResponse::default())
}
