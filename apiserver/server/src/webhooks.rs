//! Keeps the webhooks of all configurations, by the events of these: a request reads none of them.
//!
//! Both kinds are read before the server answers. After a watch that failed everything is read again; what was known counts until
//! then.

use crate::reader::read_object;
use apiserver_admission::webhooks::{ConfiguredWebhooks, Webhooks};
use apiserver_registry::options::WatchOptions;
use apiserver_registry::{Entry, Registry, RegistryError, Scope, WatchEvent, Watcher};
use machinery_runtime::Runtime;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const GROUP: &str = "admissionregistration.k8s.io";
/// A watch that failed is begun again after this pause.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A kind of configurations.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Mutating,
    Validating,
}

impl Kind {
    fn plural(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        }
    }
}

/// Reads all configurations, then follows their changes in tasks of the runtime's scope.
pub(crate) async fn start(
    registry: &Registry,
    webhooks: &Arc<Webhooks>,
    runtime: &Runtime,
) -> Result<(), RegistryError> {
    for kind in [Kind::Mutating, Kind::Validating] {
        let followed = Followed {
            registry: registry.clone(),
            webhooks: Arc::clone(webhooks),
            kind,
        };
        let mut begun = Some(followed.begin().await?);
        let own = runtime.clone();
        let run = move || followed.clone().run(own.clone(), begun.take());
        runtime.keep("webhook configurations", run).detach();
    }
    Ok(())
}

#[derive(Debug, Clone)]
struct Followed {
    registry: Registry,
    webhooks: Arc<Webhooks>,
    kind: Kind,
}

/// Configurations by their names, which is the order in which webhooks are called.
type Known = BTreeMap<String, ConfiguredWebhooks>;

impl Followed {
    /// A watch, and what is there at its beginning.
    async fn begin(&self) -> Result<(Watcher, Known), RegistryError> {
        let store = self.registry.preferred_store(GROUP, self.kind.plural());
        let store = store.ok_or(RegistryError::NoSuchResource)?;
        let mut watcher = store.watch(&Scope::Cluster, &WatchOptions::default()).await?;
        let mut known = Known::new();
        for event in watcher.initial_events() {
            take(&mut known, event)?;
        }
        self.publish(&known);
        Ok((watcher, known))
    }

    async fn run(self, runtime: Runtime, begun: Option<(Watcher, Known)>) {
        let mut begun = begun;
        loop {
            let followed = match begun.take() {
                Some(begun) => self.follow(begun).await,
                None => match self.begin().await {
                    Ok(begun) => self.follow(begun).await,
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = followed {
                tracing::warn!(%error, kind = self.kind.plural(), "watching configurations of webhooks failed");
            }
            runtime.sleep(RETRY_PAUSE).await;
        }
    }

    /// One watch, until it ends.
    async fn follow(&self, (mut watcher, mut known): (Watcher, Known)) -> Result<(), RegistryError> {
        loop {
            let events = watcher.next().await;
            if events.is_empty() {
                return Ok(());
            }
            for event in events {
                take(&mut known, event)?;
            }
            self.publish(&known);
        }
    }

    fn publish(&self, known: &Known) {
        let all = known.values().flat_map(|own| own.0.iter().map(Arc::clone));
        match self.kind {
            Kind::Mutating => self.webhooks.set_mutating(all.collect()),
            Kind::Validating => self.webhooks.set_validating(all.collect()),
        }
    }
}

fn take(known: &mut Known, event: WatchEvent) -> Result<(), RegistryError> {
    match event {
        WatchEvent::Added(entry) | WatchEvent::Modified(entry) => compile(known, &entry),
        WatchEvent::Deleted(entry, _) => {
            known.remove(&entry.record.header.key.name);
        }
        WatchEvent::Bookmark { .. } => {}
        WatchEvent::Failed(error) => return Err(error),
    }
    Ok(())
}

fn compile(known: &mut Known, entry: &Entry) {
    let name = &entry.record.header.key.name;
    match ConfiguredWebhooks::compile(name, &read_object(entry).json) {
        Ok(webhooks) => drop(known.insert(name.clone(), webhooks)),
        // What was known of it goes on: a webhook that guards does not go without a word.
        Err(error) => tracing::error!(%error, name, "a configuration of webhooks cannot be read"),
    }
}
