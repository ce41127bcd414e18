//! A component that runs while its candidate leads.

use controllers_manager::leader_election::{ElectionConfig, Elector, Leadership};
use machinery_client::Client;
use machinery_runtime::Runtime;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// One candidate of this server. Clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    runtime: Runtime,
    elector: Arc<Mutex<Elector>>,
}

/// Time for which a server that stops tries to release a lease.
const RELEASED_WITHIN: Duration = Duration::from_secs(2);

/// Reason why a component no longer runs.
enum Ended {
    Lost,
    Panicked,
}

impl Candidate {
    pub(crate) fn new(component: &str, lease: ElectionConfig, client: Client) -> Self {
        Self {
            runtime: client.runtime().clone(),
            elector: Arc::new(Mutex::new(Elector::new(lease, client, component))),
        }
    }

    /// Runs the component whenever this candidate leads. It has ended before another one may begin; what it sends goes
    /// through the leadership it is given.
    pub(crate) fn keep<T: Send + 'static>(
        self,
        runtime: &Runtime,
        name: &'static str,
        begin: impl Fn(&Runtime, Option<Leadership>) -> T + Send + Sync + 'static,
    ) {
        let own = runtime.clone();
        let begin = Arc::new(begin);
        let run = move || {
            let (runtime, candidate, begin) = (own.clone(), self.clone(), Arc::clone(&begin));
            async move {
                loop {
                    match candidate.term(&runtime, &*begin).await {
                        Ended::Lost => {}
                        Ended::Panicked => return Err("a task of it panicked".to_owned()),
                    }
                }
            }
        };
        runtime.supervise(name, run).detach();
    }

    /// Runs from becoming the leader to the end of everything that ran because of it.
    async fn term<T>(
        &self,
        runtime: &Runtime,
        begin: &(dyn Fn(&Runtime, Option<Leadership>) -> T + Send + Sync),
    ) -> Ended {
        let mut elector = self.elector.lock().await;
        elector.acquire().await;
        let scope = runtime.child_scope();
        let begun = begin(scope.runtime(), Some(elector.leadership()));
        let ended = tokio::select! {
            biased;
            () = scope.panicked() => Ended::Panicked,
            () = elector.hold() => Ended::Lost,
        };
        drop(begun);
        scope.stopped().await;
        ended
    }

    /// Gives the lease back; the component has ended.
    pub(crate) async fn release(self) {
        let release = async { self.elector.lock().await.release().await };
        if self.runtime.timeout(RELEASED_WITHIN, release).await.is_err() {
            tracing::warn!("a lease could not be given back in time; others wait until it has run out");
        }
    }
}
