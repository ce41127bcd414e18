//! One method per CRI call, each with its deadline and its name for errors.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use k8s_cri::v1;
use k8s_cri::v1::image_service_client::ImageServiceClient;
use k8s_cri::v1::runtime_service_client::RuntimeServiceClient;
use tonic::body::Body;
use tonic::transport::{Endpoint, Uri};
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use crate::{CriError, exec_output};

/// Carries calls to a runtime: over its socket, or to a model of it. Everything above it, the clients and their
/// decoding included, is the same for both.
pub type Transport = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, tonic::Status>;

/// Looking at things.
const READ_TIMEOUT: Duration = Duration::from_secs(120);
/// Starting and removing things; upstream's `runtimeRequestTimeout` for these is four minutes.
const ACT_TIMEOUT: Duration = Duration::from_secs(240);
/// Checkpointing a container that has much memory; the request names the runtime's own time.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(3600);
/// Pulling an image may take as long as the registry keeps sending.
const PULL_TIMEOUT: Duration = Duration::from_secs(3600);
/// An answer larger than this is refused. A node full of containers lists in about 2 MB.
pub(crate) const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Called when a call has ended, with whether it failed.
pub type CallEnd = Box<dyn FnOnce(bool) + Send>;

/// Notified of calls. A call whose caller has gone does not end.
pub trait CallObserver: Send + Sync + std::fmt::Debug {
    /// A call of this name begins; names are upstream's kubelet's.
    fn began(&self, operation: &'static str) -> CallEnd;
}

/// A connection to a container runtime; cheap to clone, reconnects by itself.
#[derive(Debug, Clone)]
pub struct CriClient {
    channel: Transport,
    runtime: RuntimeServiceClient<Transport>,
    images: ImageServiceClient<Transport>,
    socket: PathBuf,
    observer: Option<Arc<dyn CallObserver>>,
}

macro_rules! calls {
    ($($service:ident.$name:ident($request:ident) -> $response:ident, $timeout:expr, $operation:literal, $action:literal;)*) => {
        $(
            #[doc = concat!("CRI's call for ", $action, ".")]
            pub fn $name(&self, request: v1::$request) -> BoxFuture<'static, Result<v1::$response, CriError>> {
                let mut client = self.$service.clone();
                let mut request = tonic::Request::new(request);
                request.set_timeout($timeout);
                self.observed($operation, async move {
                    client.$name(request).await.map(tonic::Response::into_inner).map_err(CriError::call($action))
                })
            }
        )*
    };
}

impl CriClient {
    /// A client of the runtime behind a socket. Connects when first used.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        let socket = socket.into();
        let path = socket.clone();
        // The authority must be a plain name: containerd refuses a socket path there.
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(
            tower::service_fn(move |_: Uri| {
                let path = path.clone();
                async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
            }),
        );
        let failed = |error: tonic::transport::Error| tonic::Status::from_error(error.into());
        Self::connect_through(Transport::new(channel.map_err(failed)), socket)
    }

    /// A client over a transport of the caller's. The socket is only named.
    pub fn connect_through(channel: Transport, socket: PathBuf) -> Self {
        let runtime = RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        let images = ImageServiceClient::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        Self {
            channel,
            runtime,
            images,
            socket,
            observer: None,
        }
    }

    /// The same, whose calls are observed.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn CallObserver>) -> Self {
        Self {
            observer: Some(observer),
            ..self
        }
    }

    fn observed<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, CriError>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, CriError>> {
        let Some(observer) = self.observer.clone() else {
            return Box::pin(call);
        };
        Box::pin(async move {
            let end = observer.began(operation);
            let answer = call.await;
            end(answer.is_err());
            answer
        })
    }

    /// Socket of the runtime.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn channel(&self) -> Transport {
        self.channel.clone()
    }

    calls! {
        runtime.version(VersionRequest) -> VersionResponse, READ_TIMEOUT, "version", "asking the runtime's version";
        runtime.status(StatusRequest) -> StatusResponse, READ_TIMEOUT, "status", "asking the runtime's status";
        runtime.runtime_config(RuntimeConfigRequest) -> RuntimeConfigResponse, READ_TIMEOUT, "runtime_config", "asking the runtime's configuration";
        runtime.update_runtime_config(UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse, READ_TIMEOUT, "update_runtime_config", "updating the runtime's configuration";
        runtime.run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse, ACT_TIMEOUT, "run_podsandbox", "starting a pod sandbox";
        runtime.stop_pod_sandbox(StopPodSandboxRequest) -> StopPodSandboxResponse, ACT_TIMEOUT, "stop_podsandbox", "stopping a pod sandbox";
        runtime.remove_pod_sandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse, ACT_TIMEOUT, "remove_podsandbox", "removing a pod sandbox";
        runtime.pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse, READ_TIMEOUT, "podsandbox_status", "asking for a pod sandbox";
        runtime.list_pod_sandbox(ListPodSandboxRequest) -> ListPodSandboxResponse, READ_TIMEOUT, "list_podsandbox", "listing pod sandboxes";
        runtime.create_container(CreateContainerRequest) -> CreateContainerResponse, ACT_TIMEOUT, "create_container", "creating a container";
        runtime.start_container(StartContainerRequest) -> StartContainerResponse, ACT_TIMEOUT, "start_container", "starting a container";
        runtime.remove_container(RemoveContainerRequest) -> RemoveContainerResponse, ACT_TIMEOUT, "remove_container", "removing a container";
        runtime.list_containers(ListContainersRequest) -> ListContainersResponse, READ_TIMEOUT, "list_containers", "listing containers";
        runtime.container_status(ContainerStatusRequest) -> ContainerStatusResponse, READ_TIMEOUT, "container_status", "asking for a container";
        runtime.update_container_resources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse, ACT_TIMEOUT, "update_container", "updating a container's resources";
        runtime.reopen_container_log(ReopenContainerLogRequest) -> ReopenContainerLogResponse, READ_TIMEOUT, "reopen_container_log", "reopening a container's log";
        runtime.checkpoint_container(CheckpointContainerRequest) -> CheckpointContainerResponse, CHECKPOINT_TIMEOUT, "checkpoint_container", "checkpointing a container";
        runtime.attach(AttachRequest) -> AttachResponse, READ_TIMEOUT, "attach", "attaching to a container";
        runtime.container_stats(ContainerStatsRequest) -> ContainerStatsResponse, READ_TIMEOUT, "container_stats", "asking for a container's usage";
        runtime.list_container_stats(ListContainerStatsRequest) -> ListContainerStatsResponse, READ_TIMEOUT, "list_container_stats", "listing containers' usage";
        runtime.list_pod_sandbox_stats(ListPodSandboxStatsRequest) -> ListPodSandboxStatsResponse, READ_TIMEOUT, "list_podsandbox_stats", "listing pods' usage";
        images.list_images(ListImagesRequest) -> ListImagesResponse, READ_TIMEOUT, "list_images", "listing images";
        images.image_status(ImageStatusRequest) -> ImageStatusResponse, READ_TIMEOUT, "image_status", "asking for an image";
        images.pull_image(PullImageRequest) -> PullImageResponse, PULL_TIMEOUT, "pull_image", "pulling an image";
        images.remove_image(RemoveImageRequest) -> RemoveImageResponse, ACT_TIMEOUT, "remove_image", "removing an image";
        images.image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse, READ_TIMEOUT, "image_fs_info", "asking for the images' file system";
    }

    /// Stops a container: TERM, then KILL after `grace_seconds`.
    pub fn stop_container(&self, id: &str, grace_seconds: i64) -> BoxFuture<'static, Result<(), CriError>> {
        let mut client = self.runtime.clone();
        let request = v1::StopContainerRequest {
            container_id: id.to_string(),
            timeout: grace_seconds,
        };
        let mut request = tonic::Request::new(request);
        request.set_timeout(ACT_TIMEOUT + Duration::from_secs(u64::try_from(grace_seconds).unwrap_or(0)));
        self.observed("stop_container", async move {
            client
                .stop_container(request)
                .await
                .map(drop)
                .map_err(CriError::call("stopping a container"))
        })
    }

    /// Runs a command in a container and waits. A timeout of zero is none. The answer has the first
    /// [`EXEC_OUTPUT_BYTES_MAX`](crate::EXEC_OUTPUT_BYTES_MAX) of each stream.
    pub fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout_seconds: i64,
    ) -> BoxFuture<'static, Result<v1::ExecSyncResponse, CriError>> {
        self.command(id, command, timeout_seconds, exec_output::EXEC_OUTPUT_BYTES_MAX)
    }

    /// Runs a command in a container and waits, without a timeout of its own. The answer has the first `output_bytes_max` of each stream.
    pub fn run_command(
        &self,
        id: &str,
        command: Vec<String>,
        output_bytes_max: usize,
    ) -> BoxFuture<'static, Result<v1::ExecSyncResponse, CriError>> {
        self.command(id, command, 0, output_bytes_max)
    }

    /// Output is cut as it comes.
    fn command(
        &self,
        id: &str,
        command: Vec<String>,
        timeout_seconds: i64,
        output_bytes_max: usize,
    ) -> BoxFuture<'static, Result<v1::ExecSyncResponse, CriError>> {
        let cut =
            move |answer: http::Response<Body>| answer.map(|body| exec_output::cut(body, output_bytes_max));
        let channel = Transport::new(self.channel.clone().map_response(cut));
        let mut client = RuntimeServiceClient::new(channel);
        let request = v1::ExecSyncRequest {
            container_id: id.to_string(),
            cmd: command,
            timeout: timeout_seconds,
        };
        let mut request = tonic::Request::new(request);
        request.set_timeout(ACT_TIMEOUT + Duration::from_secs(u64::try_from(timeout_seconds).unwrap_or(0)));
        self.observed("exec_sync", async move {
            let answer = client.exec_sync(request).await;
            answer
                .map(tonic::Response::into_inner)
                .map_err(CriError::call("running a command in a container"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn client_over_a_transport_of_the_tests_asks_no_socket() {
        let answer = |request: http::Request<Body>| async move {
            let found = request.uri().path() == "/runtime.v1.RuntimeService/Version";
            let code = if found { "5" } else { "12" };
            let answer = http::Response::builder().header("grpc-status", code);
            let answer = answer.header("content-type", "application/grpc");
            Ok::<_, tonic::Status>(answer.body(Body::empty()).unwrap())
        };
        let transport = Transport::new(tower::service_fn(answer));
        let client = CriClient::connect_through(transport, PathBuf::from("/nowhere"));
        let version = client.version(v1::VersionRequest::default()).await;
        assert!(version.unwrap_err().is_not_found());
        let seen = Arc::<Seen>::default();
        let client = client.observed_by(seen.clone());
        let listed = client
            .list_pod_sandbox(v1::ListPodSandboxRequest::default())
            .await;
        assert!(listed.is_err());
        assert_eq!(*seen.0.lock().unwrap(), [("list_podsandbox", true)]);
    }

    /// Calls that have ended, and whether they failed.
    #[derive(Debug, Default)]
    struct Seen(Arc<std::sync::Mutex<Vec<(&'static str, bool)>>>);

    impl CallObserver for Seen {
        fn began(&self, operation: &'static str) -> CallEnd {
            let seen = Arc::clone(&self.0);
            Box::new(move |failed| seen.lock().unwrap().push((operation, failed)))
        }
    }
}
