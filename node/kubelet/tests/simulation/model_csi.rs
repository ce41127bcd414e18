//! A driver of volumes in memory, behind the agent's own calls: its mounts are the model machine's.

use crate::machine::ModelMounts;
use crate::model_plugins::ModelSockets;
use futures::future::BoxFuture;
use machinery_runtime::{Runtime, Watched};
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
use node_sys::mount::Mounter;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

/// A driver.
#[derive(Debug)]
pub(crate) struct ModelDriver {
    runtime: Runtime,
    mounts: Arc<ModelMounts>,
    name: String,
    stages: bool,
    hangs: Watched<bool>,
    /// The error of calls that show a volume.
    refuses: Mutex<Option<Status>>,
    /// Calls in their order: what, and the volume.
    pub(crate) calls: Mutex<Vec<(&'static str, String)>>,
    /// The last request to show a volume to a pod.
    pub(crate) published: Mutex<Option<NodePublishVolumeRequest>>,
    /// The last request to stage one.
    pub(crate) staged: Mutex<Option<NodeStageVolumeRequest>>,
    /// Outcomes of its registrations.
    pub(crate) statuses: Mutex<Vec<RegistrationStatus>>,
}

impl ModelDriver {
    pub(crate) fn new(runtime: &Runtime, mounts: &Arc<ModelMounts>, name: &str, stages: bool) -> Arc<Self> {
        Arc::new(Self {
            runtime: runtime.clone(),
            mounts: mounts.clone(),
            name: name.to_owned(),
            stages,
            hangs: Watched::new(false),
            refuses: Mutex::default(),
            calls: Mutex::default(),
            published: Mutex::default(),
            staged: Mutex::default(),
            statuses: Mutex::default(),
        })
    }

    fn registration(&self) -> String {
        format!("plugins_registry/{}-reg.sock", self.name)
    }

    /// Starts to listen, for whatever agent comes.
    pub(crate) fn start(self: &Arc<Self>, sockets: &ModelSockets) {
        sockets.listen(&format!("{}/csi.sock", self.name), service(self.clone()));
        let registering = Registering(self.clone());
        sockets.listen(&self.registration(), plugin_registration::service(registering));
    }

    /// Removes its sockets.
    pub(crate) fn stop(&self, sockets: &ModelSockets) {
        sockets.remove(&self.registration());
        sockets.remove(&format!("{}/csi.sock", self.name));
    }

    pub(crate) fn set_hangs(&self, hangs: bool) {
        self.hangs.replace(hangs);
    }

    pub(crate) fn set_refuses(&self, status: Option<Status>) {
        *self.refuses.lock() = status;
    }

    /// Number of calls of a kind about a volume.
    pub(crate) fn count(&self, call: &str, volume: &str) -> usize {
        let calls = self.calls.lock();
        let own = calls.iter().filter(|(own, of)| *own == call && of == volume);
        own.count()
    }

    /// A call that takes its time, and then does something on the machine.
    fn call(&self, call: &'static str, volume: &str, work: impl FnOnce() + Send + 'static) -> Answer<()> {
        self.calls.lock().push((call, volume.to_owned()));
        let shows = matches!(call, "stage" | "publish");
        let refused = self.refuses.lock().clone().filter(|_| shows);
        let (hangs, runtime) = (self.hangs.get(), self.runtime.clone());
        Box::pin(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            runtime.sleep(Duration::from_millis(20)).await;
            match refused {
                Some(status) => Err(status),
                None => {
                    work();
                    Ok(())
                }
            }
        })
    }

    fn show(&self, place: &str) -> impl FnOnce() + Send + 'static + use<> {
        let (mounts, place) = (self.mounts.clone(), PathBuf::from(place));
        move || {
            assert!(
                place.parent().is_some_and(Path::is_dir),
                "{} has no folder",
                place.display()
            );
            std::fs::create_dir_all(&place).unwrap();
            while mounts.bind(Path::new("/model"), &place).is_err() {}
        }
    }

    fn hide(&self, place: &str) -> impl FnOnce() + Send + 'static + use<> {
        let (mounts, place) = (self.mounts.clone(), PathBuf::from(place));
        move || {
            while mounts.unmount(&place).is_err() {}
            let _ = std::fs::remove_dir(&place);
        }
    }
}

impl NodeDriver for ModelDriver {
    fn info(&self) -> Answer<NodeGetInfoResponse> {
        let info = NodeGetInfoResponse {
            node_id: format!("{}-node", self.name),
            max_volumes_per_node: 12,
            accessible_topology: Some(Topology {
                segments: [(format!("topology.{}/zone", self.name), "here".to_owned())].into(),
            }),
        };
        Box::pin(async move { Ok(info) })
    }

    fn capabilities(&self) -> NodeGetCapabilitiesResponse {
        let of = |kind: NodeRpcType| NodeServiceCapability {
            rpc: Some(NodeRpc { r#type: kind.into() }),
        };
        let mut capabilities = vec![of(NodeRpcType::GetVolumeStats)];
        capabilities.extend(self.stages.then(|| of(NodeRpcType::StageUnstageVolume)));
        NodeGetCapabilitiesResponse { capabilities }
    }

    fn stage(&self, asked: NodeStageVolumeRequest) -> Answer<()> {
        let answer = self.call("stage", &asked.volume_id, self.show(&asked.staging_target_path));
        *self.staged.lock() = Some(asked);
        answer
    }

    fn unstage(&self, asked: NodeUnstageVolumeRequest) -> Answer<()> {
        self.call("unstage", &asked.volume_id, self.hide(&asked.staging_target_path))
    }

    fn publish(&self, asked: NodePublishVolumeRequest) -> Answer<()> {
        let answer = self.call("publish", &asked.volume_id, self.show(&asked.target_path));
        *self.published.lock() = Some(asked);
        answer
    }

    fn unpublish(&self, asked: NodeUnpublishVolumeRequest) -> Answer<()> {
        self.call("unpublish", &asked.volume_id, self.hide(&asked.target_path))
    }

    fn stats(&self, _: NodeGetVolumeStatsRequest) -> Answer<NodeGetVolumeStatsResponse> {
        let usage = |unit: UsageUnit| VolumeUsage {
            available: 60,
            total: 100,
            used: 40,
            unit: unit.into(),
        };
        let usage = vec![usage(UsageUnit::Bytes), usage(UsageUnit::Inodes)];
        Box::pin(async move {
            Ok(NodeGetVolumeStatsResponse {
                usage,
                volume_condition: None,
            })
        })
    }

    fn expand(&self, _: NodeExpandVolumeRequest) -> Answer<NodeExpandVolumeResponse> {
        Box::pin(async { Err(Status::unimplemented("it does not grow")) })
    }
}

/// The driver's side of its registration.
#[derive(Clone)]
struct Registering(Arc<ModelDriver>);

impl RegisteringPlugin for Registering {
    fn info(&self) -> BoxFuture<'static, Result<PluginInfo, Status>> {
        let info = PluginInfo {
            r#type: CSI_PLUGIN.to_owned(),
            name: self.0.name.clone(),
            endpoint: format!("/plugins/{}/csi.sock", self.0.name),
            supported_versions: vec!["1.0.0".to_owned()],
        };
        Box::pin(async move { Ok(info) })
    }

    fn registered(&self, status: RegistrationStatus) -> BoxFuture<'static, Result<(), Status>> {
        self.0.statuses.lock().push(status);
        Box::pin(async { Ok(()) })
    }
}
