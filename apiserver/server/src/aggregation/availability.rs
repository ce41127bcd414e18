//! The condition `Available` of an APIService with a service (upstream's `RemoteAvailability` controller).
//!
//! The service must be there, listen on the port and have a ready endpoint; then the group version itself must answer. It is
//! looked at after every change of the condition, the service and its slices, and every [`RESYNC`]; after a failure sooner, and
//! never more often than every [`LEAST_PAUSE`], whatever an extension answers; [`Changes`] bounds what is written.

use super::Aggregation;
use super::table::{Extension, Place};
use crate::startup::{ObjectAddress, Startup};
use apiserver_egress::service::{SERVICE_NAME, ServiceState, service_state};
use apiserver_registry::conditions::Condition;
use apiserver_registry::{Follower, RegistryError, Scope};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use machinery_meta::reader::{ObjectReader, ReadError};
use machinery_meta::{FieldSelector, LabelSelector, Predicate};
use std::sync::Arc;
use std::time::Duration;

const RESYNC: Duration = Duration::from_secs(30);
/// Time between two looks at least; after a first failure, from which on it doubles up to [`RESYNC`].
const LEAST_PAUSE: Duration = Duration::from_millis(200);
/// Changes of the condition that are written as they come, and the time in which there may be one more: an extension says by
/// its answers what they are.
const CHANGES_AT_ONCE: u32 = 8;
const CHANGE_PAUSE: Duration = Duration::from_secs(10);
/// Requests of one look, to endpoints chosen by chance; one that is answered is enough.
const ATTEMPTS: usize = 5;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a watch of the service or its slices that ended, and after a condition that could not be written.
const WATCH_RETRY: Duration = Duration::from_secs(1);

/// A condition that is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Finding {
    fn unavailable(reason: &'static str, message: String) -> Self {
        Self {
            status: "False",
            reason,
            message,
        }
    }
}

/// The finding of a service that leads nowhere.
fn of_service(place: &Place, state: Result<ServiceState, ReadError>) -> Option<Finding> {
    let at = format!("service/{} in {:?}", place.service, place.namespace);
    let (reason, message) = match state {
        Ok(ServiceState::Usable) => return None,
        Ok(ServiceState::NotFound) => ("ServiceNotFound", format!("{at} is not present")),
        Ok(ServiceState::NotListening) => (
            "ServicePortError",
            format!("{at} is not listening on port {}", place.port),
        ),
        Ok(ServiceState::WithoutSlices) => (
            "EndpointsNotFound",
            format!("cannot find endpointslices for {at}"),
        ),
        Ok(ServiceState::WithoutEndpoints(name)) => (
            "MissingEndpoints",
            format!("endpointslices for {at} have no addresses with port name {name:?}"),
        ),
        Err(error) => {
            return Some(Finding {
                status: "Unknown",
                reason: "ServiceAccessError",
                message: format!("{at} cannot be checked due to: {error}"),
            });
        }
    };
    Some(Finding::unavailable(reason, message))
}

/// Changes of the condition of one extension, some at once and then one after the other: each is a write that every watch receives.
#[derive(Debug, Default)]
struct Changes {
    last: Option<Finding>,
    /// Time at which all that was written would be due.
    paid_until: Duration,
}

impl Changes {
    /// Returns the time to wait before this finding is written; where there is none, it counts as written.
    fn wait_for(&mut self, finding: &Finding, now: Duration) -> Duration {
        if self.last.as_ref() == Some(finding) {
            return Duration::ZERO;
        }
        let paid_until = self.paid_until.max(now) + CHANGE_PAUSE;
        let wait = paid_until.saturating_sub(now + CHANGE_PAUSE * CHANGES_AT_ONCE);
        if wait.is_zero() {
            self.paid_until = paid_until;
            self.last = Some(finding.clone());
        }
        wait
    }
}

/// Runs as long as the extension is registered.
pub(super) async fn keep(facts: Startup, extension: Arc<Extension>) {
    match followers(&facts, &extension) {
        Ok(mut followers) => {
            for follower in &mut followers {
                // The first check reads what there is; a failure shows again with the first change.
                drop(follower.begin().await);
            }
            check(&facts, &extension, followers).await;
        }
        Err(error) => tracing::error!(%error, "the service of an API service cannot be watched"),
    }
}

/// Changes of the service and of its slices.
fn followers(facts: &Startup, extension: &Extension) -> Result<[Follower; 2], RegistryError> {
    let place = extension.place();
    let follow = |group: &'static str, plural: &'static str, predicate: Predicate| {
        let store = facts.core.registry.preferred_store(group, plural);
        let store = store.ok_or(RegistryError::NoSuchResource)?;
        Ok::<_, RegistryError>(store.follow(Scope::of(&place.namespace), predicate, WATCH_RETRY))
    };
    let name = FieldSelector::equals("metadata.name", &place.service);
    let label = LabelSelector::from_pairs([(SERVICE_NAME, place.service.as_str())]);
    Ok([
        follow("", "services", name.into())?,
        follow("discovery.k8s.io", "endpointslices", label.into())?,
    ])
}

/// Checks again and again, and writes what it finds.
async fn check(facts: &Startup, extension: &Arc<Extension>, [mut service, mut slices]: [Follower; 2]) {
    let mut changes = Changes::default();
    let aggregation = &facts.core.aggregation;
    let mut failures = 0;
    loop {
        let changed = extension.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let finding = aggregation.look(&*facts.core.reader, extension).await;
        failures = match finding.reason {
            "FailedDiscoveryCheck" => failures + 1,
            _ => 0,
        };
        let mut wait = match failures {
            0 => RESYNC,
            failed => LEAST_PAUSE.saturating_mul(1 << (failed - 1).min(16)).min(RESYNC),
        };
        let change_wait = changes.wait_for(&finding, facts.core.runtime.monotonic());
        if !change_wait.is_zero() {
            wait = change_wait;
        } else if let Err(error) = write(facts, extension, &finding).await {
            tracing::warn!(%error, name = extension.name, "writing the condition of an API service failed");
            wait = WATCH_RETRY;
        }
        facts.core.runtime.sleep(LEAST_PAUSE).await;
        tokio::select! { biased;
            () = changed => {}
            _ = service.next() => {}
            _ = slices.next() => {}
            () = facts.core.runtime.sleep(wait) => {}
        }
    }
}

async fn write(facts: &Startup, extension: &Extension, finding: &Finding) -> Result<(), RegistryError> {
    let aggregation = &facts.core.aggregation;
    let was_available = {
        let table = aggregation.table.load();
        table.get(&extension.name).is_some_and(|own| own.is_available)
    };
    let address = ObjectAddress {
        group: "apiregistration.k8s.io",
        plural: "apiservices",
        namespace: "",
        name: &extension.name,
    };
    let condition = Condition {
        kind: "Available",
        status: finding.status,
        reason: finding.reason,
        message: &finding.message,
    };
    facts.set_condition(address, condition).await?;
    if was_available && finding.status != "True" {
        aggregation
            .metrics
            .became_unavailable(&extension.name, finding.reason);
    }
    Ok(())
}

impl Aggregation {
    async fn look(&self, reader: &dyn ObjectReader, extension: &Arc<Extension>) -> Finding {
        let place = extension.place();
        let service = (place.namespace.as_str(), place.service.as_str());
        let state = service_state(reader, service, place.port).await;
        if let Some(finding) = of_service(place, state) {
            return finding;
        }
        match self.answers(extension).await {
            Ok(()) => Finding {
                status: "True",
                reason: "Passed",
                message: "all checks passed".to_owned(),
            },
            Err(message) => Finding::unavailable("FailedDiscoveryCheck", message),
        }
    }

    /// Reports whether one of some requests is answered; else the last failure.
    async fn answers(&self, extension: &Arc<Extension>) -> Result<(), String> {
        let mut probes: FuturesUnordered<_> = (0..ATTEMPTS).map(|_| self.probe(extension)).collect();
        let mut last = Ok(());
        while let Some(answered) = probes.next().await {
            if answered.is_ok() {
                return Ok(());
            }
            last = answered;
        }
        last
    }

    async fn probe(&self, extension: &Arc<Extension>) -> Result<(), String> {
        let target = extension.target.as_ref().map_err(ToString::to_string)?;
        let path = extension.root();
        let request = super::documents::request(&path, "", super::documents::Caller::Aggregator)?;
        let probed = self.client.probe(target, request, ANSWER_TIMEOUT).await;
        let (host, answered) = probed.map_err(|error| error.to_string())?;
        let url = format!("https://{host}{path}");
        let failing = |why: String| format!("failing or missing response from {url}: {why}");
        let answer = answered.map_err(|why| failing(format!("Get {url:?}: {why}")))?;
        match answer.status().is_success() {
            true => Ok(()),
            false => Err(failing(format!(
                "bad status from {url}: {}",
                answer.status().as_u16()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_an_extension_that_flaps_are_written_ever_more_seldom() {
        let good = Finding {
            status: "True",
            reason: "Passed",
            message: String::new(),
        };
        let bad = Finding::unavailable("FailedDiscoveryCheck", "500".to_owned());
        let (mut changes, mut written) = (Changes::default(), Vec::new());
        // It answers otherwise each time, five times a second.
        for look in 0..5 * 60 {
            let now = Duration::from_millis(1_000_000 + 200 * look);
            let finding = if look % 2 == 0 { &good } else { &bad };
            if changes.last.as_ref() != Some(finding) && changes.wait_for(finding, now).is_zero() {
                written.push(now.as_secs() - 1_000);
            }
        }
        assert_eq!(written[..8], [0, 0, 0, 0, 0, 1, 1, 1]);
        assert_eq!(written[8..], [10, 20, 30, 40, 50]);
        // Between two of these the last one costs nothing, another one waits for its time.
        let between = Duration::from_secs(1_055);
        let (last, other) = match changes.last == Some(good.clone()) {
            true => (&good, &bad),
            false => (&bad, &good),
        };
        assert_eq!(changes.wait_for(last, between), Duration::ZERO);
        assert_eq!(changes.wait_for(other, between), Duration::from_secs(5));
        let later = Duration::from_secs(2_000);
        for finding in [&bad, &good, &bad, &good] {
            assert_eq!(
                changes.wait_for(finding, later),
                Duration::ZERO,
                "after a quiet time"
            );
        }
    }
}
