//! A driver of volumes as vendors write them: it registers by a socket in the agent's folder, and shows folders of its own by
//! mounts in the place where the node's containers start.

use futures::future::BoxFuture;
use node_plugin_api::calls::{Transport, serve};
use node_plugin_api::csi::messages::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesResponse, NodeGetInfoResponse,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest, NodeRpc, NodeRpcType,
    NodeServiceCapability, NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
    Topology, UsageUnit, VolumeUsage,
};
use node_plugin_api::csi::server::{Answer, NodeDriver, service};
use node_plugin_api::plugin_registration::{
    self, CSI_PLUGIN, PluginInfo, RegisteringPlugin, RegistrationStatus,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixListener;
use tonic::Status;

/// The root of the paths that a driver in a pod sees.
const UPSTREAM_ROOT: &str = "/var/lib/kubelet";

/// A running driver; it ends with this value, and its sockets go.
pub(crate) struct TestDriver {
    sockets: [PathBuf; 2],
    _tasks: tokio::runtime::Runtime,
}

struct Folders {
    name: String,
    /// A folder for each volume.
    store: PathBuf,
    /// File of the mount namespace in which containers start.
    namespace: PathBuf,
}

impl TestDriver {
    /// A driver for an agent, whose volumes are folders below `store`.
    pub(crate) fn start(agent_dir: &Path, name: &str, store: &Path) -> Self {
        let tasks = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("threads");
        let folders = Arc::new(Folders {
            name: name.to_owned(),
            store: store.to_owned(),
            namespace: agent_dir.join("containerd/namespace/mnt"),
        });
        let own = agent_dir.join("plugins").join(name);
        std::fs::create_dir_all(&own).expect("a folder of the driver");
        let sockets = [
            own.join("csi.sock"),
            agent_dir
                .join("plugins_registry")
                .join(format!("{name}-reg.sock")),
        ];
        let guard = tasks.enter();
        listen(&sockets[0], service(folders.clone()));
        listen(&sockets[1], plugin_registration::service(Registering(folders)));
        drop(guard);
        Self {
            sockets,
            _tasks: tasks,
        }
    }
}

impl Drop for TestDriver {
    fn drop(&mut self) {
        for socket in &self.sockets {
            let _ = std::fs::remove_file(socket);
        }
    }
}

fn listen(socket: &Path, service: Transport) {
    let listener = UnixListener::bind(socket).expect("a socket");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, service.clone()));
        }
    });
}

impl Folders {
    /// Runs a script where containers start.
    fn run(&self, script: String) -> Answer<()> {
        let namespace = format!("--mount={}", self.namespace.display());
        Box::pin(async move {
            let mut command = tokio::process::Command::new("nsenter");
            let ran = command.args([&namespace, "sh", "-ec", &script]).output().await;
            let ran = ran.map_err(|error| Status::internal(error.to_string()))?;
            match ran.status.success() {
                true => Ok(()),
                false => Err(Status::internal(
                    String::from_utf8_lossy(&ran.stderr).into_owned(),
                )),
            }
        })
    }

    fn folder(&self, volume: &str) -> Result<PathBuf, Status> {
        let folder = self.store.join(volume);
        std::fs::create_dir_all(&folder).map_err(|error| Status::internal(error.to_string()))?;
        Ok(folder)
    }

    /// Shows a folder at a place, once.
    fn show(&self, folder: &Path, place: &str) -> Answer<()> {
        let folder = folder.display();
        self.run(format!(
            "mkdir -p '{place}'; mountpoint -q '{place}' || mount --bind '{folder}' '{place}'"
        ))
    }

    fn hide(&self, place: &str) -> Answer<()> {
        self.run(format!(
            "! mountpoint -q '{place}' || umount '{place}'; [ ! -d '{place}' ] || rmdir '{place}'"
        ))
    }
}

fn failed<T: Send + 'static>(status: Status) -> Answer<T> {
    Box::pin(async move { Err(status) })
}

impl NodeDriver for Folders {
    fn info(&self) -> Answer<NodeGetInfoResponse> {
        let segments = [(format!("topology.{}/zone", self.name), "here".to_owned())].into();
        let info = NodeGetInfoResponse {
            node_id: "disks-node".to_owned(),
            max_volumes_per_node: 16,
            accessible_topology: Some(Topology { segments }),
        };
        Box::pin(async move { Ok(info) })
    }

    fn capabilities(&self) -> NodeGetCapabilitiesResponse {
        let of = |kind: NodeRpcType| NodeServiceCapability {
            rpc: Some(NodeRpc { r#type: kind.into() }),
        };
        NodeGetCapabilitiesResponse {
            capabilities: [NodeRpcType::StageUnstageVolume, NodeRpcType::GetVolumeStats]
                .map(of)
                .into(),
        }
    }

    fn stage(&self, asked: NodeStageVolumeRequest) -> Answer<()> {
        match self.folder(&asked.volume_id) {
            Ok(folder) => self.show(&folder, &asked.staging_target_path),
            Err(status) => failed(status),
        }
    }

    fn unstage(&self, asked: NodeUnstageVolumeRequest) -> Answer<()> {
        self.hide(&asked.staging_target_path)
    }

    fn publish(&self, asked: NodePublishVolumeRequest) -> Answer<()> {
        if !asked.target_path.starts_with(UPSTREAM_ROOT) {
            return failed(Status::invalid_argument("the driver does not see that place"));
        }
        if !asked.staging_target_path.is_empty() {
            return self.show(Path::new(&asked.staging_target_path), &asked.target_path);
        }
        let made = self.folder(&asked.volume_id).and_then(|folder| {
            let pod = asked.volume_context.get("csi.storage.k8s.io/pod.name");
            let written = std::fs::write(
                folder.join("pod"),
                format!("{}\n", pod.cloned().unwrap_or_default()),
            );
            written
                .map(|()| folder)
                .map_err(|error| Status::internal(error.to_string()))
        });
        match made {
            Ok(folder) => self.show(&folder, &asked.target_path),
            Err(status) => failed(status),
        }
    }

    fn unpublish(&self, asked: NodeUnpublishVolumeRequest) -> Answer<()> {
        self.hide(&asked.target_path)
    }

    fn stats(&self, _: NodeGetVolumeStatsRequest) -> Answer<NodeGetVolumeStatsResponse> {
        let bytes = VolumeUsage {
            available: 600,
            total: 1_000,
            used: 400,
            unit: UsageUnit::Bytes.into(),
        };
        let answer = NodeGetVolumeStatsResponse {
            usage: vec![bytes],
            volume_condition: None,
        };
        Box::pin(async move { Ok(answer) })
    }

    fn expand(&self, _: NodeExpandVolumeRequest) -> Answer<NodeExpandVolumeResponse> {
        failed(Status::unimplemented("folders have no size"))
    }
}

/// The driver's side of its registration.
#[derive(Clone)]
struct Registering(Arc<Folders>);

impl RegisteringPlugin for Registering {
    fn info(&self) -> BoxFuture<'static, Result<PluginInfo, Status>> {
        let name = self.0.name.clone();
        let info = PluginInfo {
            r#type: CSI_PLUGIN.to_owned(),
            endpoint: format!("{UPSTREAM_ROOT}/plugins/{name}/csi.sock"),
            name,
            supported_versions: vec!["1.0.0".to_owned()],
        };
        Box::pin(async move { Ok(info) })
    }

    fn registered(&self, _: RegistrationStatus) -> BoxFuture<'static, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }
}
