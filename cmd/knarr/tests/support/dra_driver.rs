//! A driver of devices as vendors write them: it registers by a socket in the agent's folder, reads the claims that it is to
//! prepare, and describes their devices where the Container Device Interface has descriptions. Its devices are all `/dev/null`,
//! under names of their own in containers.

use super::Kubectl;
use futures::future::BoxFuture;
use node_plugin_api::calls::{Transport, serve};
use node_plugin_api::dra::DraService;
use node_plugin_api::dra::messages::{
    Claim, Device, NodePrepareResourceResponse, NodePrepareResourcesResponse, NodeUnprepareResourceResponse,
    NodeUnprepareResourcesResponse,
};
use node_plugin_api::dra::server::{Answer, DraDriver, service};
use node_plugin_api::plugin_registration::{
    self, DRA_PLUGIN, PluginInfo, RegisteringPlugin, RegistrationStatus,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixListener;
use tonic::Status;

/// The root of the paths that a driver in a pod sees.
const UPSTREAM_ROOT: &str = "/var/lib/kubelet";
/// Folder of descriptions that last until the machine's next start.
const DESCRIPTIONS: &str = "/var/run/cdi";

/// A running driver; it ends with this value, and its sockets and descriptions go.
pub(crate) struct TestDraDriver {
    sockets: [PathBuf; 2],
    nulls: Arc<Nulls>,
    _tasks: tokio::runtime::Runtime,
}

struct Nulls {
    name: String,
    kubectl: Kubectl,
}

impl TestDraDriver {
    /// A driver for an agent.
    pub(crate) fn start(agent_dir: &Path, name: &str, kubectl: &Kubectl) -> Self {
        let tasks = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("threads");
        let nulls = Arc::new(Nulls {
            name: name.to_owned(),
            kubectl: kubectl.clone(),
        });
        let own = agent_dir.join("plugins").join(name);
        std::fs::create_dir_all(&own).expect("a folder of the driver");
        std::fs::create_dir_all(DESCRIPTIONS).expect("a folder of descriptions");
        let registration = format!("{name}-reg.sock");
        let sockets = [
            own.join("dra.sock"),
            agent_dir.join("plugins_registry").join(registration),
        ];
        let guard = tasks.enter();
        listen(&sockets[0], service(nulls.clone()));
        listen(
            &sockets[1],
            plugin_registration::service(Registering(nulls.clone())),
        );
        drop(guard);
        Self {
            sockets,
            nulls,
            _tasks: tasks,
        }
    }

    /// Files of the claims that are prepared.
    pub(crate) fn prepared(&self) -> Vec<PathBuf> {
        let own = format!("{}-", self.nulls.name);
        let entries = std::fs::read_dir(DESCRIPTIONS).into_iter().flatten();
        let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let is_own = |file: &PathBuf| {
            file.file_name()
                .is_some_and(|name| name.display().to_string().starts_with(&own))
        };
        files.filter(is_own).collect()
    }
}

impl Drop for TestDraDriver {
    fn drop(&mut self) {
        for file in self.sockets.iter().chain(&self.prepared()) {
            let _ = std::fs::remove_file(file);
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

impl Nulls {
    fn file(&self, claim: &Claim) -> PathBuf {
        Path::new(DESCRIPTIONS).join(format!("{}-{}.yaml", self.name, claim.uid))
    }

    /// Describes the devices that a claim has of this driver. Blocks.
    fn describe(&self, claim: &Claim) -> Result<Vec<Device>, String> {
        let kubectl = self.kubectl.within(&claim.namespace);
        let found = kubectl.try_kubectl(&["get", "resourceclaim", &claim.name, "-o", "json"]);
        let found: serde_json::Value =
            serde_json::from_slice(&found.stdout).map_err(|error| error.to_string())?;
        if found["metadata"]["uid"] != claim.uid.as_str() {
            return Err("the claim is another".to_owned());
        }
        let results = found["status"]["allocation"]["devices"]["results"].as_array();
        let own = results
            .into_iter()
            .flatten()
            .filter(|result| result["driver"] == self.name.as_str());
        let (kind, mut devices, mut text) = (format!("{}/null", self.name), Vec::new(), String::new());
        for result in own {
            let field = |name: &str| result[name].as_str().unwrap_or_default().to_owned();
            let device = field("device");
            let id = format!("{}-{device}", claim.uid);
            let variable = device.to_uppercase().replace('-', "_");
            text += &format!(
                "- name: {id}\n  containerEdits:\n    env: [{variable}={}]\n    deviceNodes:\n    - {{path: /dev/{device}, hostPath: /dev/null}}\n",
                claim.name
            );
            devices.push(Device {
                request_names: vec![field("request")],
                pool_name: field("pool"),
                device_name: device,
                cdi_device_ids: vec![format!("{kind}={id}")],
                share_id: None,
            });
        }
        let text = format!("cdiVersion: 0.6.0\nkind: {kind}\ndevices:\n{text}");
        std::fs::write(self.file(claim), text).map_err(|error| error.to_string())?;
        Ok(devices)
    }
}

impl DraDriver for Nulls {
    fn prepare(&self, claims: Vec<Claim>) -> Answer<NodePrepareResourcesResponse> {
        let outcome = |claim: Claim| {
            let outcome = match self.describe(&claim) {
                Ok(devices) => NodePrepareResourceResponse {
                    devices,
                    error: String::new(),
                },
                Err(error) => NodePrepareResourceResponse {
                    devices: Vec::new(),
                    error,
                },
            };
            (claim.uid, outcome)
        };
        let claims = tokio::task::block_in_place(|| claims.into_iter().map(outcome).collect());
        Box::pin(async { Ok(NodePrepareResourcesResponse { claims }) })
    }

    fn unprepare(&self, claims: Vec<Claim>) -> Answer<NodeUnprepareResourcesResponse> {
        let outcome = |claim: Claim| {
            let _ = std::fs::remove_file(self.file(&claim));
            (claim.uid, NodeUnprepareResourceResponse::default())
        };
        let claims = claims.into_iter().map(outcome).collect();
        Box::pin(async { Ok(NodeUnprepareResourcesResponse { claims }) })
    }
}

/// The driver's side of its registration.
#[derive(Clone)]
struct Registering(Arc<Nulls>);

impl RegisteringPlugin for Registering {
    fn info(&self) -> BoxFuture<'static, Result<PluginInfo, Status>> {
        let name = self.0.name.clone();
        let info = PluginInfo {
            r#type: DRA_PLUGIN.to_owned(),
            endpoint: format!("{UPSTREAM_ROOT}/plugins/{name}/dra.sock"),
            name,
            supported_versions: DraService::ALL.map(|own| own.name().to_owned()).into(),
        };
        Box::pin(async move { Ok(info) })
    }

    fn registered(&self, _: RegistrationStatus) -> BoxFuture<'static, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }
}
