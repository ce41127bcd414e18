//! A device plugin as vendors write them: it listens on a socket of its own in the agent's folder, registers, and does both
//! again when the agent restarts. Its devices are all `/dev/null`, under names of their own in containers.

use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt as _};
use node_plugin_api::calls::{connect, serve};
use node_plugin_api::device_plugin::client::register;
use node_plugin_api::device_plugin::messages::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, Device, DevicePluginOptions, DeviceSpec,
    ListAndWatchResponse, Mount, PreStartContainerRequest, PreferredAllocationRequest,
    PreferredAllocationResponse, RegisterRequest,
};
use node_plugin_api::device_plugin::server::{DevicePlugin, service};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tonic::Status;

/// Interval of looks for an agent that has restarted; it sleeps since it is the plugin's own loop, for which no test waits.
const LOOK: Duration = Duration::from_millis(50);

/// A running plugin; it ends with this value.
pub(crate) struct TestPlugin {
    _tasks: tokio::runtime::Runtime,
}

/// Its devices.
struct Nulls {
    resource: String,
    ids: Vec<String>,
    /// Shown to containers as `/opt/devices`.
    files: PathBuf,
}

impl TestPlugin {
    /// A plugin of an agent, with these devices of a resource.
    pub(crate) fn start(agent_dir: &Path, resource: &str, ids: &[&str], files: &Path) -> Self {
        let tasks = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("threads");
        let nulls = Arc::new(Nulls {
            resource: resource.to_owned(),
            ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            files: files.to_owned(),
        });
        tasks.spawn(live(nulls, agent_dir.join("device-plugins")));
        Self { _tasks: tasks }
    }
}

/// Registers at every agent that comes.
async fn live(nulls: Arc<Nulls>, folder: PathBuf) {
    let name = format!("{}.sock", nulls.resource.replace('/', "-"));
    let agent = folder.join("kubelet.sock");
    let mut known = None;
    loop {
        // A new socket may have the number of the one before.
        let found = std::fs::metadata(&agent).ok();
        let socket = found.map(|found| (found.ino(), found.ctime(), found.ctime_nsec()));
        if socket.is_some() && socket != known && try_register(&nulls, &folder, &name).await.is_ok() {
            known = socket;
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn try_register(nulls: &Arc<Nulls>, folder: &Path, name: &str) -> Result<(), Status> {
    let own = folder.join(name);
    let _ = std::fs::remove_file(&own);
    let listener = UnixListener::bind(&own).map_err(|error| Status::unknown(error.to_string()))?;
    let plugin = nulls.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, service(plugin.clone())));
        }
    });
    let agent = connect(&folder.join("kubelet.sock")).await?;
    let asked = RegisterRequest {
        version: "v1beta1".to_owned(),
        endpoint: name.to_owned(),
        resource_name: nulls.resource.clone(),
        options: None,
    };
    register(&agent, asked).await
}

impl DevicePlugin for Nulls {
    fn options(&self) -> DevicePluginOptions {
        DevicePluginOptions {
            pre_start_required: true,
            get_preferred_allocation_available: false,
        }
    }

    fn list_and_watch(self: Arc<Self>) -> BoxStream<'static, Result<ListAndWatchResponse, Status>> {
        let device = |id: &String| Device {
            id: id.clone(),
            health: "Healthy".to_owned(),
            topology: None,
        };
        let devices = self.ids.iter().map(device).collect();
        let first = futures::stream::iter([Ok(ListAndWatchResponse { devices })]);
        first.chain(futures::stream::pending()).boxed()
    }

    fn preferred(
        &self,
        _: PreferredAllocationRequest,
    ) -> BoxFuture<'static, Result<PreferredAllocationResponse, Status>> {
        Box::pin(async { Err(Status::unimplemented("it has no preferences")) })
    }

    fn allocate(&self, asked: AllocateRequest) -> BoxFuture<'static, Result<AllocateResponse, Status>> {
        let spec = |id: &String| DeviceSpec {
            container_path: format!("/dev/{id}"),
            host_path: "/dev/null".to_owned(),
            permissions: "rw".to_owned(),
        };
        let of = |ids: Vec<String>| ContainerAllocateResponse {
            envs: [("DEVICES".to_owned(), ids.join(","))].into(),
            mounts: vec![Mount {
                container_path: "/opt/devices".to_owned(),
                host_path: self.files.display().to_string(),
                read_only: true,
            }],
            devices: ids.iter().map(spec).collect(),
            ..ContainerAllocateResponse::default()
        };
        let asked = asked.container_requests.into_iter();
        let container_responses = asked.map(|asked| of(asked.devices_ids)).collect();
        Box::pin(async { Ok(AllocateResponse { container_responses }) })
    }

    fn pre_start(&self, _: PreStartContainerRequest) -> BoxFuture<'static, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }
}
