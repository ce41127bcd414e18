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
    /// Dropping it ends them.
    running: Option<Scope>,
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
        if let Some(selection) = self.wanted.controllers.clone() {
            let (transport, config) = (self.transport.clone(), self.wanted.config.clone());
            let begin = move |runtime: Runtime| {
                let begun = start_controllers(&transport, &runtime, config.clone(), &selection);
                running(begun)
            };
            scope
                .runtime()
                .supervise_scope("controller-manager", begin)
                .detach();
        }
        if self.wanted.scheduler {
            let transport = self.transport.clone();
            let begin = move |runtime: Runtime| {
                if let Some(client) = transport.client_as(identities::scheduler()) {
                    controllers_scheduler::start(client, runtime).detach();
                }
                running(())
            };
            scope.runtime().supervise_scope("scheduler", begin).detach();
        }
        self.running = Some(scope);
    }

    /// Ends them and waits until they have.
    pub(crate) async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stopped().await;
        }
    }
}

/// A component whose tasks do its work, until its scope ends; with empty caches at each beginning, as upstream's, which is
/// a process of its own.
async fn running<T>(begun: T) -> Result<(), String> {
    let _begun = begun;
    std::future::pending().await
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn component_with_a_panicked_task_begins_again_whole() {
        let scope = Runtime::real().child_scope();
        let (runtime, begun) = (scope.runtime(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&begun);
        let begin = move |runtime: Runtime| {
            let turn = count.fetch_add(1, Ordering::SeqCst);
            let own = runtime.clone();
            let informer = async move {
                own.sleep(Duration::from_secs(5)).await;
                assert!(turn > 0, "as told");
                std::future::pending::<()>().await;
            };
            runtime.spawn("informer", informer).detach();
            runtime.spawn("controller", std::future::pending::<()>()).detach();
            running(())
        };
        runtime.supervise_scope("manager", begin).detach();
        runtime.sleep(Duration::from_secs(1)).await;
        let tasks = scope.task_count();
        assert_eq!(runtime.components().all(), [("manager", None)]);
        runtime.sleep(Duration::from_millis(4_500)).await;
        assert!(
            runtime.components().all()[0].1.is_some(),
            "it is down and said to be"
        );
        assert_eq!(scope.task_count(), 1, "the supervisor alone is left");
        runtime.sleep(Duration::from_secs(30)).await;
        assert_eq!(runtime.components().all(), [("manager", None)]);
        assert_eq!((scope.task_count(), begun.load(Ordering::SeqCst)), (tasks, 2));
    }
}
