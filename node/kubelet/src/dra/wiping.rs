//! Removal of the ResourceSlices of drivers that are not there: pods that the scheduler sent to their devices would wait.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{Api, DeleteParams, ListParams};
use machinery_runtime::CancellationToken;
use parking_lot::Mutex;

use super::manager::Dra;

/// Time that a driver has to come back; upstream's `defaultWipingDelay`.
const WIPING_DELAY: Duration = Duration::from_secs(30);
/// First and longest pause before another try, and number of tries: upstream's.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
const TRIES: u32 = 100;

/// Drivers whose slices are to be removed.
#[derive(Debug, Default)]
pub(super) struct Wiping(Mutex<BTreeMap<String, CancellationToken>>);

impl Dra {
    /// A plugin of a driver has come or gone: plans the removal of the driver's slices, or cancels it. One that is planned stays
    /// at its time.
    pub(super) fn plan_wiping(&self, driver: &str) {
        let mut planned = self.wiping.0.lock();
        if self.drivers.is_usable(driver) {
            if let Some(before) = planned.remove(driver) {
                before.cancel();
            }
            return;
        }
        if planned.contains_key(driver) {
            return;
        }
        let cancelled = CancellationToken::new();
        planned.insert(driver.to_owned(), cancelled.clone());
        drop(planned);
        let (dra, driver) = (self.clone(), driver.to_owned());
        let wiping = async move {
            let work = async {
                dra.runtime.sleep(WIPING_DELAY).await;
                dra.wipe(Some(&driver)).await;
            };
            if cancelled.run_until_cancelled(work).await.is_some() {
                let mut planned = dra.wiping.0.lock();
                if !cancelled.is_cancelled() {
                    planned.remove(&driver);
                }
            }
        };
        self.runtime.spawn("wiping of ResourceSlices", wiping).detach();
    }

    /// Removes the slices of this node, of one driver or of all.
    pub(super) async fn wipe(&self, driver: Option<&str>) {
        let slices: Api<ResourceSlice> = Api::all(self.client.clone());
        let selector = selector(&self.config.node_name, driver);
        let selected = ListParams::default().fields(&selector);
        let mut pause = RETRY_AFTER.0;
        for _ in 0..TRIES {
            let deleted = slices
                .delete_collection(&DeleteParams::default(), &selected)
                .await;
            match deleted {
                Ok(_) => {
                    tracing::debug!(selector, "ResourceSlices removed");
                    return;
                }
                Err(kube::Error::Api(refused)) if refused.code == 404 => return,
                // They are removed; what this node cannot decode of them says nothing of that.
                Err(kube::Error::SerdeError(_)) => return,
                Err(error) => tracing::debug!(%error, selector, "ResourceSlices not removed"),
            }
            // A fifth more by chance, as upstream.
            let share = u32::try_from(self.runtime.random_u64() % 200).unwrap_or(0);
            self.runtime.sleep(pause + pause * share / 1_000).await;
            pause = (pause * 2).min(RETRY_AFTER.1);
        }
    }
}

fn selector(node: &str, driver: Option<&str>) -> String {
    match driver {
        Some(driver) => format!("spec.driver={driver},spec.nodeName={node}"),
        None => format!("spec.nodeName={node}"),
    }
}
