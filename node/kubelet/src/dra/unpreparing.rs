//! Taking back of what was prepared: once a pod has ended, and for pods that went while no agent ran.

use std::time::Duration;

use futures::StreamExt as _;
use node_plugin_api::dra::client::DraClient;
use node_plugin_api::dra::messages::Claim;

use super::manager::{Dra, call_text};
use super::preparing::check_answer;
use crate::managers::ManagerContext;

/// Between two looks for pods that have gone; upstream's `defaultReconcilePeriod`.
const RECONCILE_AFTER: Duration = Duration::from_secs(60);

/// Pods whose claims are taken back at once.
const AT_ONCE_MAX: usize = 32;

/// Removes the slices of drivers that have not come yet, and takes back claims of pods that are not there, for ever.
pub(crate) async fn run(context: ManagerContext) {
    let dra = context.workers.dra.clone();
    let wiping = async {
        context.registered().await;
        dra.wipe(None).await;
        std::future::pending().await
    };
    let reconciling = async {
        dra.settled.wait_for(|settled| *settled).await;
        loop {
            dra.reconcile(|uid| context.pods.is_known(uid)).await;
            context.runtime.sleep(RECONCILE_AFTER).await;
        }
    };
    tokio::select! {
        biased;
        () = wiping => {}
        () = reconciling => {}
    }
}

impl Dra {
    /// Takes back the claims that a pod uses alone, those of a driver in one call; nothing of it may run any more. A claim
    /// taken back already costs no call. Words are upstream's.
    ///
    /// # Errors
    /// A driver has not done so; it is tried again.
    pub(crate) async fn unprepare(&self, pod: &str) -> Result<(), String> {
        let has_none = {
            let state = self.state.lock();
            state.claims.of_pod(pod).is_empty() && !state.unsaved.contains(pod)
        };
        if has_none {
            return Ok(());
        }
        let unprepared = self
            .measured("UnprepareResources", self.unprepare_claims(pod))
            .await;
        unprepared.map_err(|error| format!("unprepare dynamic resources: {error}"))
    }

    async fn unprepare_claims(&self, pod: &str) -> Result<(), String> {
        let begun = self.state.lock().claims.begin_unprepare(pod);
        for (driver, claims) in begun.batches {
            self.unprepare_by(&driver, claims).await?;
        }
        {
            let mut state = self.state.lock();
            state.claims.unprepared(&begun.claims);
            state.unsaved.insert(pod.to_owned());
        }
        let saved = self.saver.save().await;
        saved.map_err(|error| format!("checkpoint ResourceClaim state: {error}"))?;
        self.state.lock().unsaved.remove(pod);
        Ok(())
    }

    async fn unprepare_by(&self, driver: &str, claims: Vec<Claim>) -> Result<(), String> {
        let plugin = self.drivers.get(driver)?;
        let (service, requested) = (plugin.service, claims.clone());
        let answer = self.call(&plugin, service.unprepare(), |transport| async move {
            DraClient::new(transport, service).unprepare(requested).await
        });
        let answered = answer
            .await
            .map_err(|status| format!("NodeUnprepareResources: {}", call_text(&status)))?
            .claims;
        check_answer("NodeUnprepareResources", &claims, &answered, |own| &own.error)
    }

    /// Takes back the claims of pods that are not known, side by side: one whose driver does not answer holds up no other.
    pub(super) async fn reconcile(&self, is_known: impl Fn(&str) -> bool) {
        let orphans = self.state.lock().claims.orphans(is_known);
        let unpreparing = orphans.into_iter().map(|pod| async move {
            if let Err(error) = self.unprepare(&pod).await {
                tracing::warn!(
                    pod,
                    error,
                    "ResourceClaims of a pod that has gone are not unprepared"
                );
            }
        });
        let at_once = futures::stream::iter(unpreparing).buffer_unordered(AT_ONCE_MAX);
        at_once.collect::<()>().await;
    }
}
