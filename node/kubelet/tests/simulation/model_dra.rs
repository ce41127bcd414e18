//! A driver of devices in memory, behind the agent's own calls: it describes devices in a folder of the world's.

use crate::model_plugins::ModelSockets;
use futures::future::BoxFuture;
use machinery_runtime::{Runtime, Watched};
use node_plugin_api::dra::DraService;
use node_plugin_api::dra::messages::{
    Claim, Device, NodePrepareResourceResponse, NodePrepareResourcesResponse, NodeUnprepareResourceResponse,
    NodeUnprepareResourcesResponse,
};
use node_plugin_api::dra::server::{Answer, DraDriver, service};
use node_plugin_api::plugin_registration::{
    self, DRA_PLUGIN, PluginInfo, RegisteringPlugin, RegistrationStatus,
};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

/// A driver.
#[derive(Debug)]
pub(crate) struct ModelDra {
    runtime: Runtime,
    name: String,
    folder: PathBuf,
    hangs: Watched<bool>,
    refuses: Mutex<bool>,
    /// Uids of the claims that it has prepared: they outlive it, as files of a real one.
    prepared: Arc<Mutex<BTreeSet<String>>>,
    /// Calls in their order: what, and the names of the claims.
    pub(crate) calls: Mutex<Vec<(&'static str, Vec<String>)>>,
}

impl ModelDra {
    /// A driver that describes its devices in a folder.
    pub(crate) fn new(runtime: &Runtime, name: &str, folder: &Path) -> Arc<Self> {
        std::fs::create_dir_all(folder).unwrap();
        Arc::new(Self {
            runtime: runtime.clone(),
            name: name.to_owned(),
            folder: folder.to_owned(),
            hangs: Watched::new(false),
            refuses: Mutex::new(false),
            prepared: Arc::default(),
            calls: Mutex::default(),
        })
    }

    fn registration(&self) -> String {
        format!("plugins_registry/{}-reg.sock", self.name)
    }

    /// It listens, for whatever agent comes.
    pub(crate) fn start(self: &Arc<Self>, sockets: &ModelSockets) {
        sockets.listen(&format!("{}/dra.sock", self.name), service(self.clone()));
        let registering = Registering(self.clone());
        sockets.listen(&self.registration(), plugin_registration::service(registering));
    }

    /// It removes its sockets.
    pub(crate) fn stop(&self, sockets: &ModelSockets) {
        sockets.remove(&self.registration());
        sockets.remove(&format!("{}/dra.sock", self.name));
    }

    pub(crate) fn set_hangs(&self, hangs: bool) {
        self.hangs.replace(hangs);
    }

    pub(crate) fn set_refuses(&self, refuses: bool) {
        *self.refuses.lock() = refuses;
    }

    pub(crate) fn prepared(&self) -> BTreeSet<String> {
        self.prepared.lock().clone()
    }

    /// Number of calls of a kind about a claim.
    pub(crate) fn count(&self, call: &str, claim: &str) -> usize {
        let calls = self.calls.lock();
        let own = calls
            .iter()
            .filter(|(own, of)| *own == call && of.iter().any(|of| of == claim));
        own.count()
    }

    /// Takes as long as a call does. One that hangs has done its work.
    fn call(&self, call: &'static str, claims: &[Claim]) -> BoxFuture<'static, ()> {
        let names = claims.iter().map(|claim| claim.name.clone()).collect();
        self.calls.lock().push((call, names));
        let (hangs, runtime) = (self.hangs.get(), self.runtime.clone());
        Box::pin(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            runtime.sleep(Duration::from_millis(20)).await;
        })
    }

    fn error(&self) -> String {
        match *self.refuses.lock() {
            true => "not now".to_owned(),
            false => String::new(),
        }
    }

    fn file(&self, uid: &str) -> PathBuf {
        self.folder.join(format!("{}-{uid}.json", self.name))
    }

    fn describe(&self, claim: &Claim) -> Device {
        let kind = format!("{}/dev", self.name);
        let edits = json!({"env": [format!("CLAIM_{}={}", claim.name.to_uppercase(), claim.uid)],
            "deviceNodes": [{"path": format!("/dev/{}", claim.name), "hostPath": "/dev/null"}]});
        let text = json!({"cdiVersion": "0.6.0", "kind": kind,
            "devices": [{"name": claim.uid, "containerEdits": edits}]});
        std::fs::write(self.file(&claim.uid), text.to_string()).unwrap();
        Device {
            pool_name: "pool".to_owned(),
            device_name: "device".to_owned(),
            cdi_device_ids: vec![format!("{kind}={}", claim.uid)],
            ..Device::default()
        }
    }
}

impl DraDriver for ModelDra {
    fn prepare(&self, claims: Vec<Claim>) -> Answer<NodePrepareResourcesResponse> {
        let (work, error) = (self.call("prepare", &claims), self.error());
        let outcome = |claim: Claim| {
            let devices = match error.is_empty() {
                true => {
                    self.prepared.lock().insert(claim.uid.clone());
                    vec![self.describe(&claim)]
                }
                false => Vec::new(),
            };
            let error = error.clone();
            (claim.uid, NodePrepareResourceResponse { devices, error })
        };
        let claims = claims.into_iter().map(outcome).collect();
        Box::pin(async move {
            work.await;
            Ok(NodePrepareResourcesResponse { claims })
        })
    }

    fn unprepare(&self, claims: Vec<Claim>) -> Answer<NodeUnprepareResourcesResponse> {
        let (work, error) = (self.call("unprepare", &claims), self.error());
        let outcome = |claim: Claim| {
            if error.is_empty() {
                self.prepared.lock().remove(&claim.uid);
                let _ = std::fs::remove_file(self.file(&claim.uid));
            }
            let error = error.clone();
            (claim.uid, NodeUnprepareResourceResponse { error })
        };
        let claims = claims.into_iter().map(outcome).collect();
        Box::pin(async move {
            work.await;
            Ok(NodeUnprepareResourcesResponse { claims })
        })
    }
}

/// The driver's side of its registration.
#[derive(Clone)]
struct Registering(Arc<ModelDra>);

impl RegisteringPlugin for Registering {
    fn info(&self) -> BoxFuture<'static, Result<PluginInfo, Status>> {
        let info = PluginInfo {
            r#type: DRA_PLUGIN.to_owned(),
            name: self.0.name.clone(),
            endpoint: format!("/plugins/{}/dra.sock", self.0.name),
            supported_versions: vec![DraService::V1.name().to_owned()],
        };
        Box::pin(async move { Ok(info) })
    }

    fn registered(&self, _: RegistrationStatus) -> BoxFuture<'static, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }
}
