//! Ends the pods of a node that shuts down, group by group.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;

use super::config::ShutdownPeriod;
use super::groups::{Group, groups};
use crate::managers::ManagerContext;
use crate::pods::disruption::Disruption;
use crate::pods::{full_name, uid};

const REASON: &str = "Terminated";
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// Ends all pods that have not, those of the lowest priority first. A group has its period until the next begins; one that is done
/// earlier, volumes included, is not waited for. Dropped, it begins with no further group.
pub(super) async fn end_pods(context: &ManagerContext, periods: &[ShutdownPeriod]) {
    for group in groups(periods, active(context)) {
        let ShutdownPeriod { priority, seconds } = group.period;
        tracing::info!(
            priority,
            seconds,
            pods = group.pods.len(),
            "ending pods for a shutdown"
        );
        for pod in &group.pods {
            context.pods.shut_down(uid(pod), disruption(seconds));
        }
        let ended = join_all(group.pods.iter().map(|pod| context.pods.taken_down(uid(pod))));
        let period = Duration::from_secs(seconds);
        if context.runtime.timeout(period, ended).await.is_err() {
            report_late(context, &group);
        }
    }
}

fn active(context: &ManagerContext) -> Vec<Arc<Pod>> {
    let pods = &context.pods;
    let all = pods.list().into_iter();
    all.filter(|pod| !pods.has_ended(uid(pod))).collect()
}

/// Order to end within so many seconds, or in the pod's own grace period where that is shorter.
fn disruption(seconds: u64) -> Disruption {
    Disruption {
        reason: REASON,
        message: MESSAGE.to_owned(),
        condition: Some(MESSAGE.to_owned()),
        grace_seconds: Some(i64::try_from(seconds).unwrap_or(i64::MAX)),
        annotations: BTreeMap::new(),
        has_event: false,
    }
}

fn report_late(context: &ManagerContext, group: &Group) {
    for pod in &group.pods {
        if !context.pods.is_taken_down(uid(pod)) {
            let ended = context.pods.has_ended(uid(pod));
            tracing::warn!(pod = %full_name(pod), ended, "pod has not ended, or its volumes are still there, within its period");
        }
    }
}
