//! Objects that the server writes when it starts. A new step is a file here and a row in [`STEPS`]; steps run in
//! order, each safe to run again and again, on a fresh store and on one that another server shares.

mod allocator_repair;
mod api_services;
mod bundled_definitions;
mod component_events;
mod custom_resources;
mod default_objects;
mod dns_service;
pub(crate) mod error;
mod extension_authentication;
mod flow_control;
pub(crate) mod kubernetes_service;
mod legacy_token_tracking;
mod rbac;
mod time_to_live;
mod unenforced_objects;

use self::error::StartupError;
use crate::state::ServerState;
use apiserver_registry::conditions::{Condition, set_condition};
use apiserver_registry::options::{CreateOptions, ListOptions, RevisionMatch, UpdateOptions};
use apiserver_registry::{
    Door, Follower, ObjectPart, RegistryError, RequestContext, Scope, Store, SystemWriter, Target,
    UpdatedObject, metadata,
};
use async_trait::async_trait;
use futures::future::BoxFuture;
use machinery_meta::{FieldSelector, Predicate, UserInfo};
use machinery_schema::{Strictness, Tree, apply_defaults, decode_json, merge_patch};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Delay before a watch that ended is opened again.
const RETRY: Duration = Duration::from_secs(1);

/// The state that the steps share.
#[derive(Clone)]
pub(crate) struct Startup {
    pub(crate) core: Arc<ServerState>,
    /// The address in the `kubernetes` service.
    pub(crate) advertised: SocketAddr,
}

/// A reconcile after each change of objects rests so many times as long as it took, and no longer than this.
const REST: u32 = 4;
const LONGEST_REST: Duration = Duration::from_secs(5);

type Step = for<'a> fn(&'a Startup) -> BoxFuture<'a, Result<(), RegistryError>>;

/// A step.
struct Row {
    name: &'static str,
    /// Upstream's hooks that do the same; `/livez/poststarthook/<hook>` says whether they are done.
    hooks: &'static [&'static str],
    run: Step,
}

const fn row(name: &'static str, hooks: &'static [&'static str], run: Step) -> Row {
    Row { name, hooks, run }
}

/// In order.
static STEPS: [Row; 16] = [
    row(
        "system namespaces",
        // The first that reads and writes.
        &["storage-readiness", "start-system-namespaces-controller"],
        default_objects::namespaces,
    ),
    row(
        "priority classes",
        &["scheduling/bootstrap-system-priority-classes"],
        default_objects::priority_classes,
    ),
    row(
        "flow control",
        &[
            "priority-and-fairness-config-producer",
            "priority-and-fairness-config-consumer",
            "priority-and-fairness-filter",
        ],
        flow_control::keep,
    ),
    // Before definitions are followed, so that their kinds are served from the start.
    row("bundled definitions", &[], bundled_definitions::write),
    row(
        "custom resources",
        &[
            "start-apiextensions-informers",
            "start-apiextensions-controllers",
            "crd-informer-synced",
        ],
        custom_resources::serve,
    ),
    row(
        "API services",
        &[
            "kube-apiserver-autoregistration",
            "apiservice-registration-controller",
        ],
        api_services::keep,
    ),
    row(
        "API aggregation",
        &[
            "apiservice-status-local-available-controller",
            "apiservice-status-remote-available-controller",
            "apiservice-discovery-controller",
            "apiservice-openapiv3-controller",
        ],
        |facts| Box::pin(crate::aggregation::start(facts)),
    ),
    row("bootstrap RBAC", &["rbac/bootstrap-roles"], rbac::reconcile),
    row(
        "kubernetes service",
        &["bootstrap-controller"],
        kubernetes_service::keep,
    ),
    row("cluster DNS service", &[], dns_service::reconcile),
    row(
        "service allocator repair",
        &["start-service-ip-repair-controllers"],
        allocator_repair::start,
    ),
    row(
        "extension-apiserver-authentication",
        &["start-cluster-authentication-info-controller"],
        extension_authentication::keep,
    ),
    row(
        "legacy token tracking",
        &["start-legacy-token-tracking-controller"],
        legacy_token_tracking::reconcile,
    ),
    row("times to live", &[], time_to_live::sweep),
    row("events of components", &[], component_events::record),
    row("unenforced objects", &[], unenforced_objects::name),
];

/// Upstream's hooks, each with the place of its step.
pub(crate) fn hooks() -> impl Iterator<Item = (&'static str, usize)> {
    let steps = STEPS.iter().enumerate();
    steps.flat_map(|(at, step)| step.hooks.iter().map(move |hook| (*hook, at)))
}

/// Runs all steps.
pub(crate) async fn run(facts: &Startup) -> Result<(), StartupError> {
    for (at, step) in STEPS.iter().enumerate() {
        match (step.run)(facts).await {
            Ok(()) => {}
            Err(error) if error.is_unreadable() => run_when_readable(facts, step, &error),
            Err(error) => {
                return Err(StartupError {
                    step: step.name,
                    message: apiserver_endpoints::status::of(&error).message,
                });
            }
        }
        facts.core.finished_steps.store(at + 1, Ordering::Release);
    }
    Ok(())
}

/// Runs a step again until the stored objects that it needs can be read. The server starts without it: the objects are deleted
/// through its API, or their key comes back with a reload.
fn run_when_readable(facts: &Startup, step: &'static Row, error: &RegistryError) {
    tracing::error!(step = step.name, %error, "start-up step waits for stored objects that cannot be read");
    let own = facts.clone();
    let waiting = async move {
        loop {
            own.core.runtime.sleep(RETRY).await;
            match (step.run)(&own).await {
                Ok(()) => return tracing::info!(step = step.name, "start-up step done"),
                Err(error) => tracing::debug!(step = step.name, %error, "start-up step waits"),
            }
        }
    };
    facts.core.runtime.spawn("start-up step", waiting).detach();
}

/// The address of an object in the API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ObjectAddress<'a> {
    pub(crate) group: &'a str,
    pub(crate) plural: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl ObjectAddress<'_> {
    pub(crate) fn scope(&self) -> Scope {
        Scope::of(self.namespace)
    }
}

impl Startup {
    /// The door of all these writes.
    pub(crate) fn door(&self) -> Door<'static> {
        self.core.doors.door(SystemWriter::Startup)
    }

    pub(crate) fn context(&self) -> RequestContext {
        let user = UserInfo::named("system:apiserver", [UserInfo::MASTERS, UserInfo::AUTHENTICATED]);
        RequestContext::internal(user, self.core.runtime.clone())
    }

    pub(crate) fn store(&self, address: ObjectAddress<'_>) -> Result<Store, RegistryError> {
        let store = self.core.registry.preferred_store(address.group, address.plural);
        store.ok_or_else(|| {
            RegistryError::Internal(format!("{}.{} is not served", address.plural, address.group))
        })
    }

    /// The stored JSON of an object.
    pub(crate) async fn read(&self, address: ObjectAddress<'_>) -> Result<Option<Tree>, RegistryError> {
        let store = self.store(address)?;
        match store
            .get(&address.scope(), address.name, RevisionMatch::MostRecent)
            .await
        {
            Ok(entry) => store.decode(&entry).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All objects of a resource.
    pub(crate) async fn objects(&self, (group, plural): (&str, &str)) -> Result<Vec<Tree>, RegistryError> {
        let store = self.store(ObjectAddress {
            group,
            plural,
            namespace: "",
            name: "",
        })?;
        let page = store.list(&Scope::Cluster, &ListOptions::default()).await?;
        page.entries.iter().map(|entry| store.decode(entry)).collect()
    }

    /// Creates an object unless something of its name is there; whether it was created.
    pub(crate) async fn create(&self, address: ObjectAddress<'_>, json: &str) -> Result<bool, RegistryError> {
        let store = self.store(address)?;
        if self.read(address).await?.is_some() {
            return Ok(false);
        }
        let decoded = decode_json(
            &store.row.schema,
            store.row.ty,
            json.as_bytes(),
            Strictness::Ignore,
        );
        let mut object = decoded
            .map_err(|error| RegistryError::Internal(error.to_string()))?
            .tree;
        apply_defaults(&mut object);
        store.row.strategy.defaults(&mut object);
        let created = store
            .create(
                &self.context(),
                &address.scope(),
                object,
                &CreateOptions {
                    field_manager: manager(address, ObjectPart::Main).to_owned(),
                    ..CreateOptions::default()
                },
                self.door(),
            )
            .await;
        match created {
            Ok(_) => Ok(true),
            // Another server was quicker.
            Err(RegistryError::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Says something of an object in a condition; what it says already is not written again, and an object that is
    /// gone is fine.
    pub(crate) async fn set_condition(
        &self,
        address: ObjectAddress<'_>,
        said: Condition<'_>,
    ) -> Result<(), RegistryError> {
        let change = ConditionPatch {
            kind: said.kind.to_owned(),
            status: said.status.to_owned(),
            reason: said.reason.to_owned(),
            message: said.message.to_owned(),
        };
        match self.change(address, ObjectPart::Status, &change).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => other,
        }
    }

    /// Reconciles now, and from then on after every change of these resources, in a task of its own.
    pub(crate) async fn keep(
        &self,
        task: &'static str,
        resources: [(&'static str, &'static str); 2],
        reconcile: Step,
    ) -> Result<(), RegistryError> {
        reconcile(self).await?;
        let own = self.clone();
        let keeping = move || {
            let facts = own.clone();
            async move {
                if let Err(error) = facts.reconcile_changes(task, resources, reconcile).await {
                    tracing::error!(%error, task, "built-in objects cannot be watched");
                }
            }
        };
        self.core.runtime.keep(task, keeping).detach();
        Ok(())
    }

    /// Reconciles after every change, for ever; an error is that a resource is not served.
    async fn reconcile_changes(
        &self,
        task: &'static str,
        resources: [(&'static str, &'static str); 2],
        reconcile: Step,
    ) -> Result<(), RegistryError> {
        let follow = |(group, plural)| {
            self.follow(ObjectAddress {
                group,
                plural,
                namespace: "",
                name: "",
            })
        };
        let (mut one, mut other) = (follow(resources[0])?, follow(resources[1])?);
        loop {
            tokio::select! {
                biased;
                _ = one.next() => {}
                _ = other.next() => {}
            }
            let begun = self.core.runtime.monotonic();
            if let Err(error) = reconcile(self).await {
                tracing::warn!(%error, task, "reconciling built-in objects failed");
                one.begin_again();
            }
            // Changes may come as fast as they are reconciled: what they cost is a part of the time.
            let took = self.core.runtime.monotonic().saturating_sub(begun);
            self.core.runtime.sleep(rest_after(took)).await;
        }
    }

    /// Changes of an object, or of all of a resource where the address has no name.
    pub(crate) fn follow(&self, address: ObjectAddress<'_>) -> Result<Follower, RegistryError> {
        let predicate = match address.name {
            "" => Predicate::default(),
            name => FieldSelector::equals("metadata.name", name).into(),
        };
        Ok(self.store(address)?.follow(address.scope(), predicate, RETRY))
    }

    /// Applies a merge patch to an object that exists; a patch that changes nothing writes nothing.
    pub(crate) async fn patch(
        &self,
        address: ObjectAddress<'_>,
        part: ObjectPart,
        patch: &str,
    ) -> Result<(), RegistryError> {
        self.change(address, part, &Merge(patch.to_owned())).await
    }

    async fn change(
        &self,
        address: ObjectAddress<'_>,
        part: ObjectPart,
        change: &dyn UpdatedObject,
    ) -> Result<(), RegistryError> {
        let store = self.store(address)?;
        let scope = address.scope();
        let target = Target {
            scope: &scope,
            name: address.name,
            part,
        };
        let options = UpdateOptions {
            field_manager: manager(address, part).to_owned(),
            ..UpdateOptions::default()
        };
        let context = self.context();
        let written = store.update(&context, target, change, &options, self.door());
        written.await.map(drop)
    }
}

/// Pause after a reconcile that took so long.
fn rest_after(took: Duration) -> Duration {
    (took * REST).min(LONGEST_REST)
}

/// The manager that upstream's part of the server names itself; most go by the server's name.
fn manager(address: ObjectAddress<'_>, part: ObjectPart) -> &'static str {
    match (address.group, part) {
        ("flowcontrol.apiserver.k8s.io", ObjectPart::Status) => {
            "api-priority-and-fairness-config-consumer-v1"
        }
        ("flowcontrol.apiserver.k8s.io", _) => "api-priority-and-fairness-config-producer-v1",
        _ => "",
    }
}

/// A condition as a change.
struct ConditionPatch {
    kind: String,
    status: String,
    reason: String,
    message: String,
}

#[async_trait]
impl UpdatedObject for ConditionPatch {
    async fn apply(&self, ctx: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let Some(live) = live else {
            return Err(RegistryError::NoSuchResource);
        };
        let mut object = live.clone();
        let said = Condition {
            kind: &self.kind,
            status: &self.status,
            reason: &self.reason,
            message: &self.message,
        };
        let now = metadata::format_time(ctx.runtime.now());
        set_condition(&mut object, &now, said);
        Ok(object)
    }
}

/// A merge patch as a change.
struct Merge(String);

#[async_trait]
impl UpdatedObject for Merge {
    async fn apply(&self, _: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let Some(live) = live else {
            return Err(RegistryError::NoSuchResource);
        };
        // Patches work on free-form documents.
        let failed = |error: &dyn std::fmt::Display| RegistryError::Internal(error.to_string());
        let mut document = Tree::from_json(&live.root().to_json()).map_err(|error| failed(&error))?;
        merge_patch(&mut document, self.0.as_bytes(), Strictness::Ignore).map_err(|error| failed(&error))?;
        let text = document.root().to_json();
        let decoded = decode_json(live.schema(), live.ty(), text.as_bytes(), Strictness::Ignore);
        let mut object = decoded.map_err(|error| failed(&error))?.tree;
        apply_defaults(&mut object);
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconciles_rest_in_proportion_to_what_they_cost() {
        assert_eq!(rest_after(Duration::ZERO), Duration::ZERO);
        assert_eq!(rest_after(Duration::from_millis(50)), Duration::from_millis(200));
        assert_eq!(rest_after(Duration::from_secs(60)), LONGEST_REST);
    }
}
