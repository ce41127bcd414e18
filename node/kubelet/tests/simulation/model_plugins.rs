//! Device plugins in memory, behind the agent's own calls.

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt as _};
use machinery_runtime::{Runtime, Watched};
use node_kubelet::plugins::sockets::{FoundSockets, PluginSockets, SocketStamp};
use node_plugin_api::calls::{Connection, Ended, Live, Transport};
use node_plugin_api::device_plugin::client::register;
use node_plugin_api::device_plugin::messages::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, ContainerPreferredAllocationResponse,
    Device, DevicePluginOptions, DeviceSpec, ListAndWatchResponse, PreStartContainerRequest,
    PreferredAllocationRequest, PreferredAllocationResponse, RegisterRequest,
};
use node_plugin_api::device_plugin::server::{DevicePlugin, service};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

/// Sockets by name: the agent's, and those of plugins.
#[derive(Debug, Default)]
pub(crate) struct ModelSockets {
    services: Mutex<BTreeMap<String, Transport>>,
    /// Connections that are there as long as the programs behind their sockets are.
    lives: Mutex<BTreeMap<String, Vec<Live>>>,
    /// Sockets in the folder where plugins of all types register, each with its number.
    registry: Watched<BTreeMap<String, u64>>,
    /// As it was listed last.
    listed: Mutex<BTreeMap<String, u64>>,
}

fn name(socket: &Path) -> String {
    let folder = socket.parent().and_then(Path::file_name).unwrap();
    let name = socket.file_name().unwrap();
    format!("{}/{}", folder.display(), name.display())
}

#[async_trait]
impl PluginSockets for ModelSockets {
    async fn clean(&self, _: &Path) -> std::io::Result<()> {
        Ok(())
    }

    async fn serve(&self, socket: &Path, service: Transport) -> std::io::Result<()> {
        self.services.lock().insert(name(socket), service);
        std::future::pending().await
    }

    async fn connect(&self, socket: &Path) -> Result<Transport, Status> {
        let found = self.services.lock().get(&name(socket)).cloned();
        found.ok_or_else(|| Status::unavailable("no such file or directory"))
    }

    async fn connect_once(&self, socket: &Path) -> Result<Connection, Status> {
        let transport = self.connect(socket).await?;
        let (live, ended) = Ended::of_live();
        self.lives.lock().entry(name(socket)).or_default().push(live);
        Ok(Connection { transport, ended })
    }

    async fn list(&self, folder: &Path) -> std::io::Result<FoundSockets> {
        let now = self.registry.get();
        self.listed.lock().clone_from(&now);
        let own = now.into_iter();
        Ok(own
            .map(|(name, number)| (folder.join(name), SocketStamp::of_number(number)))
            .collect())
    }

    async fn changed(&self, _: &Path) {
        self.registry.wait_for(|now| *now != *self.listed.lock()).await;
    }
}

impl ModelSockets {
    /// Returns the service at a socket.
    pub(crate) fn service(&self, socket: &str) -> Option<Transport> {
        self.services.lock().get(socket).cloned()
    }

    /// A program listens at a socket, named with its folder.
    pub(crate) fn listen(&self, socket: &str, service: Transport) {
        self.services.lock().insert(socket.to_owned(), service);
        if let Some(name) = socket.strip_prefix("plugins_registry/") {
            self.registry.change(|all| {
                let number = all.values().max().map_or(1, |last| last + 1);
                all.insert(name.to_owned(), number);
                true
            });
        }
    }

    /// A program removes its socket.
    pub(crate) fn remove(&self, socket: &str) {
        self.services.lock().remove(socket);
        self.lives.lock().remove(socket);
        if let Some(name) = socket.strip_prefix("plugins_registry/") {
            self.registry.change(|all| all.remove(name).is_some());
        }
    }

    /// The agent that listened has died.
    pub(crate) fn forget_agent(&self) {
        self.services
            .lock()
            .retain(|socket, _| !socket.ends_with("/kubelet.sock"));
    }

    /// The plugin registers, once an agent is there that listens.
    pub(crate) async fn register(&self, runtime: &Runtime, plugin: &Arc<ModelPlugin>) -> Result<(), Status> {
        let own = format!("device-plugins/{}", plugin.socket());
        self.services.lock().insert(own, service(plugin.clone()));
        let agent = loop {
            match self.service("device-plugins/kubelet.sock") {
                Some(agent) => break agent,
                None => runtime.sleep(Duration::from_millis(100)).await,
            }
        };
        let asked = RegisterRequest {
            version: "v1beta1".to_owned(),
            endpoint: plugin.socket(),
            resource_name: plugin.resource.clone(),
            options: None,
        };
        register(&agent, asked).await
    }
}

/// A list of devices, and whether the plugin that has them lives.
#[derive(Debug, Clone, PartialEq)]
struct Listed {
    devices: Vec<(String, bool)>,
    lives: bool,
}

/// A plugin.
#[derive(Debug)]
pub(crate) struct ModelPlugin {
    runtime: Runtime,
    resource: String,
    options: DevicePluginOptions,
    listed: Watched<Listed>,
    /// It answers nothing any more.
    hangs: Watched<bool>,
    /// Devices that it was asked to give, and before whose containers' starts it was asked.
    pub(crate) given: Mutex<Vec<Vec<String>>>,
    pub(crate) started: Mutex<Vec<Vec<String>>>,
}

impl ModelPlugin {
    pub(crate) fn new(
        runtime: &Runtime,
        resource: &str,
        options: DevicePluginOptions,
        ids: &[&str],
    ) -> Arc<Self> {
        Arc::new(Self {
            runtime: runtime.clone(),
            resource: resource.to_owned(),
            options,
            listed: Watched::new(Listed {
                devices: ids.iter().map(|id| ((*id).to_owned(), true)).collect(),
                lives: true,
            }),
            hangs: Watched::new(false),
            given: Mutex::default(),
            started: Mutex::default(),
        })
    }

    fn socket(&self) -> String {
        format!("{}.sock", self.resource.replace('/', "-"))
    }

    /// Devices of this name get well or ill.
    pub(crate) fn set_health(&self, id: &str, healthy: bool) {
        self.listed.change(|listed| {
            let own = listed.devices.iter_mut().filter(|(own, _)| own == id);
            own.for_each(|(_, health)| *health = healthy);
            true
        });
    }

    /// Kills the plugin, or starts it again.
    pub(crate) fn set_lives(&self, lives: bool) {
        self.listed.change(|listed| {
            listed.lives = lives;
            true
        });
    }

    pub(crate) fn set_hangs(&self, hangs: bool) {
        self.hangs.replace(hangs);
    }

    fn answer<T: Send + 'static>(&self, answer: Result<T, Status>) -> BoxFuture<'static, Result<T, Status>> {
        let (hangs, runtime) = (self.hangs.get(), self.runtime.clone());
        Box::pin(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            runtime.sleep(Duration::from_millis(20)).await;
            answer
        })
    }
}

/// The plugin as a service, which shares it.
impl DevicePlugin for ModelPlugin {
    fn options(&self) -> DevicePluginOptions {
        self.options
    }

    fn list_and_watch(self: Arc<Self>) -> BoxStream<'static, Result<ListAndWatchResponse, Status>> {
        futures::stream::unfold((self, None), |(plugin, before)| async move {
            let now = plugin.listed.wait_for(|now| Some(now) != before.as_ref()).await;
            if !now.lives {
                return None;
            }
            let device = |(id, healthy): &(String, bool)| Device {
                id: id.clone(),
                health: if *healthy { "Healthy" } else { "Unhealthy" }.to_owned(),
                topology: None,
            };
            let devices = now.devices.iter().map(device).collect();
            Some((Ok(ListAndWatchResponse { devices }), (plugin, Some(now))))
        })
        .boxed()
    }

    fn preferred(
        &self,
        asked: PreferredAllocationRequest,
    ) -> BoxFuture<'static, Result<PreferredAllocationResponse, Status>> {
        // It prefers its last ones.
        let of = |mut ids: Vec<String>| {
            ids.sort();
            ids.reverse();
            ContainerPreferredAllocationResponse { device_ids: ids }
        };
        let asked = asked.container_requests.into_iter();
        let container_responses = asked.map(|asked| of(asked.available_device_ids)).collect();
        self.answer(Ok(PreferredAllocationResponse { container_responses }))
    }

    fn allocate(&self, asked: AllocateRequest) -> BoxFuture<'static, Result<AllocateResponse, Status>> {
        let of = |ids: Vec<String>| {
            let spec = |id: &String| DeviceSpec {
                container_path: format!("/dev/{id}"),
                host_path: format!("/dev/host-{id}"),
                permissions: "rw".to_owned(),
            };
            let answer = ContainerAllocateResponse {
                envs: [("DEVICES".to_owned(), ids.join(","))].into(),
                devices: ids.iter().map(spec).collect(),
                ..ContainerAllocateResponse::default()
            };
            self.given.lock().push(ids);
            answer
        };
        let asked = asked.container_requests.into_iter();
        let container_responses = asked.map(|asked| of(asked.devices_ids)).collect();
        self.answer(Ok(AllocateResponse { container_responses }))
    }

    fn pre_start(&self, asked: PreStartContainerRequest) -> BoxFuture<'static, Result<(), Status>> {
        self.started.lock().push(asked.devices_ids);
        self.answer(Ok(()))
    }
}
