//! Controllers and scheduler: what they are started with, and those that run.

use crate::faults::{Faults, FaultyService};
use crate::identities;
use apiserver_server::Server;
use controllers_manager::manager::Selection;
use controllers_manager::{Config, ControllerContext, ControllerManager};
use machinery_client::{Client, Informers};
use machinery_meta::UserInfo;
use machinery_runtime::{Runtime, Scope};
use std::sync::{Arc, Weak};

/// What runs beside the server.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Which controllers; none where nothing is said.
    pub(crate) controllers: Option<Selection>,
    /// The controllers' settings.
    pub(crate) config: Config,
    /// Whether the scheduler runs.
    pub(crate) scheduler: bool,
}

/// Starts and ends what is wanted.
pub(crate) struct Components {
    wanted: Wanted,
    transport: Transport,
    running: Option<Running>,
}

/// Dropping it ends them.
struct Running {
    manager: Option<ControllerManager>,
    scope: Scope,
}

impl Components {
    pub(crate) fn new(wanted: Wanted, transport: Transport) -> Self {
        Self {
            wanted,
            transport,
            running: None,
        }
    }

    /// Starts them, with empty caches and no memory of an earlier run.
    pub(crate) fn start(&mut self) {
        let scope = self.transport.runtime.child_scope();
        let runtime = scope.runtime().clone();
        let controllers = self.wanted.controllers.as_ref();
        let manager = controllers.map(|selection| {
            start_controllers(&self.transport, &runtime, self.wanted.config.clone(), selection)
        });
        if self.wanted.scheduler
            && let Some(client) = self.transport.client_as(identities::scheduler())
        {
            controllers_scheduler::start(client, runtime).detach();
        }
        self.running = Some(Running { manager, scope });
    }

    /// Ends them and waits until they have.
    pub(crate) async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            if let Some(manager) = running.manager {
                manager.stopped().await;
            }
            running.scope.stopped().await;
        }
    }
}

/// How components reach the server: in process, through the faults where there are some.
#[derive(Clone)]
pub(crate) struct Transport {
    pub(crate) server: Weak<Server>,
    pub(crate) runtime: Runtime,
    pub(crate) faults: Option<Faults>,
}

impl Transport {
    fn client_as(&self, user: UserInfo) -> Option<Client> {
        let service = self.server.upgrade()?.service_as(user);
        Some(match &self.faults {
            Some(faults) => {
                let service = FaultyService::new(service, faults.clone(), self.runtime.clone());
                Client::in_process(service, self.runtime.clone())
            }
            None => Client::in_process(service, self.runtime.clone()),
        })
    }
}

fn start_controllers(
    transport: &Transport,
    runtime: &Runtime,
    config: Config,
    selection: &Selection,
) -> ControllerManager {
    let client = |transport: &Transport, user: UserInfo| {
        transport
            .client_as(user)
            .expect("the server outlives its components")
            .with_user_agent("kube-controller-manager")
    };
    let reader = client(transport, identities::controller_manager());
    let informers = Informers::new(reader, runtime.clone());
    let writers = transport.clone();
    let clients = Arc::new(move |account: &str| client(&writers, identities::controller(account)));
    let context = ControllerContext::new(runtime.clone(), informers, clients, config);
    ControllerManager::start(&context, selection)
}
