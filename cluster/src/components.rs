//! Controllers and scheduler: what they are started with, and those that run.

use crate::candidate::Candidate;
use crate::faults::{Faults, FaultyService};
use crate::fence::Fenced;
use crate::identities;
use apiserver_server::pki::ApprovedRequest;
use apiserver_server::{LegacyClaims, Server};
use controllers_manager::leader_election::{ElectionConfig, Leadership};
use controllers_manager::manager::Selection;
use controllers_manager::{
    CertificateOf, CertificateSigner, Config, ControllerContext, ControllerManager, TokenOf,
};
use controllers_scheduler::Settings as SchedulerSettings;
use machinery_client::{Client, Informers};
use machinery_meta::UserInfo;
use machinery_runtime::{Runtime, Scope};
use std::sync::{Arc, Weak};

/// Components beside the server.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Controllers that run; `None` runs none.
    pub(crate) controllers: Option<Selection>,
    /// The controllers' settings.
    pub(crate) config: Config,
    /// Settings of the scheduler; `None` runs none.
    pub(crate) scheduler: Option<SchedulerSettings>,
    /// Election of the server that runs them; `None` runs them in this one.
    pub(crate) election: Option<LeaderElection>,
}

/// The leases of controllers and scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElection {
    /// Of the controllers (`kube-controller-manager`).
    pub controllers: ElectionConfig,
    /// Of the scheduler (`kube-scheduler`).
    pub scheduler: ElectionConfig,
}

impl LeaderElection {
    /// Upstream's names and times for this candidate.
    pub fn new(identity: &str) -> Self {
        Self {
            controllers: ElectionConfig::new("kube-controller-manager", identity),
            scheduler: ElectionConfig::new("kube-scheduler", identity),
        }
    }
}

/// Starts and ends what is wanted.
pub(crate) struct Components {
    wanted: Wanted,
    transport: Transport,
    /// Dropping it ends them.
    running: Option<Scope>,
    candidates: Vec<Candidate>,
}

impl Components {
    pub(crate) fn new(wanted: Wanted, transport: Transport) -> Self {
        Self {
            wanted,
            transport,
            running: None,
            candidates: Vec::new(),
        }
    }

    pub(crate) fn client_as(&self, user: UserInfo) -> Option<Client> {
        self.transport.client_as(user)
    }

    /// Starts them, with empty caches and no memory of an earlier run.
    pub(crate) fn start(&mut self) {
        let scope = self.transport.runtime.child_scope();
        let election = self.wanted.election.clone();
        if let Some(selection) = self.wanted.controllers.clone() {
            let (transport, config) = (self.transport.clone(), self.wanted.config.clone());
            // A server without a controller must not keep the lease from one that has some.
            let candidate = election.as_ref().filter(|_| !selection.is_empty());
            let lease = candidate.map(|election| election.controllers.clone());
            let begin = move |runtime: &Runtime, fence: Option<Leadership>| {
                start_controllers(&transport.behind(fence), runtime, config.clone(), &selection)
            };
            self.run(
                &scope,
                "controller-manager",
                identities::controller_manager(),
                lease,
                begin,
            );
        }
        if let Some(settings) = self.wanted.scheduler.clone() {
            let transport = self.transport.clone();
            let begin = move |runtime: &Runtime, fence: Option<Leadership>| {
                if let Some(client) = transport.behind(fence).client_as(identities::scheduler()) {
                    controllers_scheduler::start(client, runtime.clone(), settings.clone()).detach();
                }
            };
            let lease = election.map(|election| election.scheduler);
            self.run(&scope, "scheduler", identities::scheduler(), lease, begin);
        }
        self.running = Some(scope);
    }

    fn run<T: Send + 'static>(
        &mut self,
        scope: &Scope,
        name: &'static str,
        user: UserInfo,
        lease: Option<ElectionConfig>,
        begin: impl Fn(&Runtime, Option<Leadership>) -> T + Send + Sync + 'static,
    ) {
        let client = lease.zip(self.transport.client_as(user));
        let Some((lease, client)) = client else {
            let begin = move |runtime: Runtime| running(begin(&runtime, None));
            scope.runtime().supervise_scope(name, begin).detach();
            return;
        };
        let candidate = Candidate::new(name, lease, client.with_user_agent("leader-election"));
        candidate.clone().keep(scope.runtime(), name, begin);
        self.candidates.push(candidate);
    }

    /// Ends them and waits until they have; then others need not wait for the leases to run out.
    pub(crate) async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stopped().await;
        }
        for candidate in self.candidates.drain(..) {
            candidate.release().await;
        }
    }
}

/// A component whose tasks do its work, until its scope ends; with empty caches at each beginning, as upstream's, which is
/// a process of its own.
async fn running<T>(begun: T) -> Result<(), String> {
    let _begun = begun;
    std::future::pending().await
}

/// Transport of components to the server: in process, with faults if there are some.
#[derive(Clone)]
pub(crate) struct Transport {
    pub(crate) server: Weak<Server>,
    pub(crate) runtime: Runtime,
    pub(crate) faults: Option<Faults>,
    /// Leadership that a change requires.
    pub(crate) fence: Option<Leadership>,
}

impl Transport {
    /// The same for components that act for a leader.
    fn behind(&self, fence: Option<Leadership>) -> Self {
        Self {
            fence,
            ..self.clone()
        }
    }

    pub(crate) fn client_as(&self, user: UserInfo) -> Option<Client> {
        let service = self.server.upgrade()?.service_as(user);
        let runtime = self.runtime.clone();
        // The fence stands where the request is taken up, behind whatever delays it.
        Some(match (&self.faults, self.fence.clone()) {
            (None, None) => Client::in_process(service, runtime),
            (None, Some(fence)) => Client::in_process(Fenced::new(service, fence), runtime),
            (Some(faults), None) => {
                let service = FaultyService::new(service, faults.clone(), runtime.clone());
                Client::in_process(service, runtime)
            }
            (Some(faults), Some(fence)) => {
                let service = Fenced::new(service, fence);
                let service = FaultyService::new(service, faults.clone(), runtime.clone());
                Client::in_process(service, runtime)
            }
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
    let server = transport.server.clone();
    let signer = move |of: TokenOf<'_>| {
        let server = server.upgrade().ok_or("the server is gone")?;
        let claims = LegacyClaims::new(of.namespace, of.account, of.account_uid, of.secret);
        server.secret_token(&claims).map_err(|error| error.to_string())
    };
    let context = ControllerContext::new(runtime.clone(), informers, clients, config)
        .with_token_signer(Arc::new(signer))
        .with_certificate_signer(certificate_signer(transport));
    ControllerManager::start(&context, selection)
}

/// Signs with the authority of the server, whose key stays there.
fn certificate_signer(transport: &Transport) -> CertificateSigner {
    let server = transport.server.clone();
    Arc::new(move |of: CertificateOf<'_>| {
        let server = server.upgrade().ok_or("the server is gone")?;
        let approved = ApprovedRequest {
            request: of.request,
            usages: of.usages,
            lifetime: of.lifetime,
        };
        server.certificate(&approved).map_err(|error| error.to_string())
    })
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
