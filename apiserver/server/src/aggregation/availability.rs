//! The condition `Available` of an APIService with a service (upstream's `RemoteAvailability` controller).
//!
//! The service must be there, listen on the port and have a ready endpoint; then the group version itself must answer. It is
//! looked at after every change of the condition, the service and its slices, and every [`RESYNC`]; after a failure sooner, and
//! never more often than every [`LEAST_PAUSE`], whatever an extension answers.

use super::Aggregation;
use super::table::{Extension, Place};
use crate::startup::{ObjectAddress, Startup};
use apiserver_egress::service::{SERVICE_NAME, ServiceState, service_state};
use apiserver_registry::conditions::Condition;
use apiserver_registry::options::WatchOptions;
use apiserver_registry::{RegistryError, Scope, Watcher};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use machinery_meta::reader::{ObjectReader, ReadError};
use machinery_meta::{FieldSelector, LabelSelector, Predicate};
use std::sync::Arc;
use std::time::Duration;

const RESYNC: Duration = Duration::from_secs(30);
/// Time between two looks at least; after a first failure, from which on it doubles up to [`RESYNC`].
const LEAST_PAUSE: Duration = Duration::from_millis(200);
/// Requests of one look, to endpoints chosen by chance; one that is answered is enough.
const ATTEMPTS: usize = 5;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// A watch of the service or its slices that ended is begun again after this pause.
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

/// Runs as long as the extension is registered.
pub(super) async fn keep(facts: Startup, extension: Arc<Extension>) {
    let runtime = facts.core.runtime.clone();
    loop {
        let followed = watches(&facts, &extension).await;
        match followed {
            Ok(watches) => follow(&facts, &extension, watches).await,
            Err(error) => tracing::warn!(%error, "watching the service of an API service failed"),
        }
        runtime.sleep(WATCH_RETRY).await;
    }
}

/// Watches of the service and of its slices.
async fn watches(facts: &Startup, extension: &Extension) -> Result<[Watcher; 2], RegistryError> {
    let place = extension.place();
    let watch = async |group: &'static str, plural: &'static str, predicate: Predicate| {
        let store = facts.core.registry.preferred_store(group, plural);
        let store = store.ok_or(RegistryError::NoSuchResource)?;
        let options = WatchOptions {
            predicate,
            ..WatchOptions::default()
        };
        let mut watcher = store.watch(&Scope::of(&place.namespace), &options).await?;
        // What is there is read by the first look.
        drop(watcher.initial_events());
        Ok::<_, RegistryError>(watcher)
    };
    let name = FieldSelector::equals("metadata.name", &place.service);
    let label = LabelSelector::from_pairs([(SERVICE_NAME, place.service.as_str())]);
    Ok([
        watch("", "services", name.into()).await?,
        watch("discovery.k8s.io", "endpointslices", label.into()).await?,
    ])
}

/// Looks again and again, until a watch ends.
async fn follow(facts: &Startup, extension: &Arc<Extension>, [mut service, mut slices]: [Watcher; 2]) {
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
        if let Err(error) = write(facts, extension, &finding).await {
            tracing::warn!(%error, name = extension.name, "writing the condition of an API service failed");
            wait = WATCH_RETRY;
        }
        facts.core.runtime.sleep(LEAST_PAUSE).await;
        let events = tokio::select! { biased;
            () = changed => continue,
            events = service.next() => events,
            events = slices.next() => events,
            () = facts.core.runtime.sleep(wait) => continue,
        };
        if events.is_empty() {
            return;
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
        let mut asked: FuturesUnordered<_> = (0..ATTEMPTS).map(|_| self.probe(extension)).collect();
        let mut last = Ok(());
        while let Some(answered) = asked.next().await {
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
        let probing = self.client.probe(target, request);
        let probed = self.runtime.timeout(ANSWER_TIMEOUT, probing).await;
        let Ok(probed) = probed else {
            let (namespace, name) = target.service();
            return Err(format!(
                "timed out waiting for https://{name}.{namespace}.svc:{}{path}",
                target.port()
            ));
        };
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
