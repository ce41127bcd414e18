//! The loop over definitions: names, conditions, rows, cleanup.
//!
//! It is woken by changes of definitions only, and of the objects of definitions that are going.

use super::cleanup;
use super::definition;
use super::names::{self, Taken};
use crate::engine::admission::{Door, SystemWriter};
use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use crate::engine::metadata;
use crate::engine::options::{ListOptions, UpdateOptions};
use crate::engine::registry::Registry;
use crate::engine::scope::Scope;
use crate::engine::store::{Followed, ObjectChange, Store, Target, UpdatedObject};
use crate::engine::strategy::ObjectPart;
use apiserver_storage::Entry;
use async_trait::async_trait;
use machinery_meta::{Predicate, UserInfo};
use machinery_schema::{Ref, Tree};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Delay after an error, and between checks of objects whose finalizers block a definition's deletion.
const RETRY: Duration = Duration::from_secs(1);
/// The longest wait of a cleanup after errors in a row, each of which doubles it.
const MAX_RETRY: Duration = Duration::from_mins(5);

/// Serves all stored definitions, then goes on in a task of its own.
pub async fn start(registry: &Registry) -> Result<(), RegistryError> {
    let definitions = Definitions::new(registry)?;
    let page = definitions
        .store
        .list(&Scope::Cluster, &ListOptions::default())
        .await?;
    for entry in &page.entries {
        let object = definitions.store.decode(entry)?;
        definitions.serve(&object);
    }
    let run = move || definitions.clone().run();
    registry
        .runtime()
        .keep("custom resource definitions", run)
        .detach();
    Ok(())
}

/// The loop.
#[derive(Clone)]
pub(super) struct Definitions {
    registry: Registry,
    store: Store,
    ctx: RequestContext,
    /// Definitions whose objects are being deleted.
    cleaning: Arc<Mutex<BTreeSet<String>>>,
}

impl Definitions {
    pub(super) fn new(registry: &Registry) -> Result<Self, RegistryError> {
        let store = registry
            .store("apiextensions.k8s.io", "v1", "customresourcedefinitions")
            .ok_or_else(|| RegistryError::Internal("definitions are not served".into()))?;
        let user = UserInfo::named("system:apiserver", [UserInfo::MASTERS]);
        let ctx = RequestContext::internal(user, registry.runtime().clone());
        Ok(Self {
            registry: registry.clone(),
            store,
            ctx,
            cleaning: Arc::default(),
        })
    }

    async fn run(self) {
        let mut follower = self.store.follow(Scope::Cluster, Predicate::default(), RETRY);
        loop {
            let followed = follower.next().await;
            if let Err(error) = self.take(followed).await {
                tracing::warn!(%error, "serving CustomResourceDefinitions failed");
                follower.begin_again();
            }
        }
    }

    pub(super) async fn take(&self, followed: Followed) -> Result<(), RegistryError> {
        match followed {
            Followed::All(entries) => {
                self.remove_all_but(&entries).await;
                for entry in entries {
                    self.changed(&self.store.decode(&entry)?).await;
                }
            }
            Followed::Changes(changes) => {
                for change in changes {
                    match change {
                        ObjectChange::Set(entry) => self.changed(&self.store.decode(&entry)?).await,
                        ObjectChange::Gone(entry) => self.removed(&entry.record.header.key.name).await,
                    }
                }
            }
        }
        Ok(())
    }

    /// Definitions that were deleted while they were not watched.
    async fn remove_all_but(&self, entries: &[Arc<Entry>]) {
        let present = entries.iter().map(|entry| &*entry.record.header.key.name);
        let present: BTreeSet<&str> = present.collect();
        for name in self.registry.custom_definitions() {
            if !present.contains(&*name) {
                self.removed(&name).await;
            }
        }
    }

    async fn removed(&self, name: &str) {
        self.registry.remove_custom(name);
        self.settle_others(names::group_of(name)).await;
    }

    async fn changed(&self, definition: &Tree) {
        let name = metadata::name(definition).to_owned();
        if metadata::time(definition, "deletionTimestamp").is_some() {
            self.serve(definition);
            self.registry.close_custom(&name);
            self.start_cleaning(name);
            return;
        }
        if let Err(error) = self.settle(&name).await {
            tracing::warn!(%error, definition = name, "accepting the names of a CustomResourceDefinition failed");
        }
        if self.serve(definition) {
            self.renew_objects(definition);
        }
    }

    /// Starts to clean, once, in a task of its own.
    fn start_cleaning(&self, name: String) {
        if !self.cleaning.lock().insert(name.clone()) {
            return;
        }
        let this = self.clone();
        let runtime = self.ctx.runtime.clone();
        let cleaning = async move {
            runtime
                .again_after_panics("definition cleanup", || this.clean(&name))
                .await;
            this.cleaning.lock().remove(&name);
        };
        self.ctx.runtime.spawn("definition cleanup", cleaning).detach();
    }

    /// Puts the rows of an established definition into the registry; says whether that changed anything.
    fn serve(&self, definition: &Tree) -> bool {
        let name = metadata::name(definition);
        if !names::is_true(definition, "Established") {
            self.registry.remove_custom(name);
            return false;
        }
        let form = definition::form(definition);
        self.registry.set_custom(name, form, || {
            definition::rows(definition, self.registry.conversions())
        })
    }

    /// Brings the objects into the form they have from now on: once, here, rather than at the first read of each. Other
    /// definitions do not wait for it, and it ends where the next form of this one begins.
    fn renew_objects(&self, definition: &Tree) {
        let name = metadata::name(definition).to_owned();
        let Some(store) = self.registry.custom_store(&name) else {
            return;
        };
        if store.row.stored.webhook.is_some() {
            return;
        }
        let renewal = async move {
            if let Err(error) = store.renew_all().await {
                tracing::warn!(%error, definition = name, "objects are converted when they are read");
            }
        };
        self.ctx.runtime.spawn("definition renewal", renewal).detach();
    }

    pub(super) async fn taken(&self, name: &str, group: &str) -> Result<Taken, RegistryError> {
        let page = self.store.list(&Scope::Cluster, &ListOptions::default()).await?;
        let mut taken = Taken::default();
        for entry in page
            .entries
            .iter()
            .filter(|entry| entry.record.header.key.name != name && in_group(entry, group))
        {
            let other = self.store.decode(entry)?;
            if let Some(accepted) = other.at(&["status", "acceptedNames"]) {
                taken.add(accepted);
            }
        }
        Ok(taken)
    }

    /// Accepts or refuses a definition's names; writes only what changes.
    async fn settle(&self, name: &str) -> Result<(), RegistryError> {
        let change = Settle {
            definitions: self,
            name: name.to_owned(),
        };
        let target = Target {
            scope: &Scope::Cluster,
            name,
            part: ObjectPart::Status,
        };
        match self
            .store
            .update(
                &self.ctx,
                target,
                &change,
                &UpdateOptions::default(),
                Door::system(SystemWriter::CustomResources),
            )
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Names that a definition of this group waited for may be free now.
    async fn settle_others(&self, group: &str) {
        let Ok(page) = self.store.list(&Scope::Cluster, &ListOptions::default()).await else {
            return;
        };
        for entry in page.entries.iter().filter(|entry| in_group(entry, group)) {
            if let Err(error) = self.settle(&entry.record.header.key.name).await {
                tracing::warn!(%error, "accepting the names of a CustomResourceDefinition failed");
            }
        }
    }

    /// Deletes the objects of a definition that is going, then lets it go.
    async fn clean(&self, name: &str) {
        let mut failures = 0;
        loop {
            match self.clean_once(name).await {
                Ok(true) => return,
                Ok(false) => failures = 0,
                Err(error) => {
                    tracing::warn!(%error, definition = name, "cleaning up after a definition failed");
                    failures += 1;
                }
            }
            self.ctx.runtime.sleep(pause(failures)).await;
        }
    }

    async fn clean_once(&self, name: &str) -> Result<bool, RegistryError> {
        let key = self.store.key(&Scope::Cluster, name)?;
        let Some(entry) = self.store.read_entry(&key).await? else {
            return Ok(true);
        };
        let definition = self.store.decode(&entry)?;
        let holds = metadata::finalizers(&definition)
            .iter()
            .any(|own| own == cleanup::FINALIZER);
        if !holds {
            return Ok(true);
        }
        cleanup::advance(&self.ctx, &self.store, name, cleanup::IN_PROGRESS).await?;
        let Some(end) = self.delete_objects(&definition).await? else {
            return Ok(false);
        };
        cleanup::advance(&self.ctx, &self.store, name, end).await?;
        Ok(true)
    }

    /// Deletes the objects of a definition; how that ended, or `None` while some remain.
    async fn delete_objects(&self, definition: &Tree) -> Result<Option<cleanup::Progress>, RegistryError> {
        let prefix = definition::prefix(definition);
        if self.registry.rows().is_built_in_prefix(&prefix) {
            return Ok(Some(cleanup::OVERLAPPING));
        }
        if !names::is_true(definition, "Established") {
            return Ok(Some(cleanup::NEVER_ESTABLISHED));
        }
        if let Some(store) = self.registry.custom_store(metadata::name(definition))
            && !cleanup::delete_objects(&self.ctx, &store).await?
        {
            return Ok(None);
        }
        Ok(Some(cleanup::COMPLETED))
    }
}

/// Returns whether a definition is of this group. Names compete within a group alone, and definitions are large: the loop
/// decodes none of another group for them.
fn in_group(entry: &Entry, group: &str) -> bool {
    names::group_of(&entry.record.header.key.name) == group
}

/// The wait after so many errors in a row.
fn pause(failures: u32) -> Duration {
    let doubled = failures.saturating_sub(1).min(MAX_RETRY.as_secs().ilog2() + 1);
    (RETRY * (1 << doubled)).min(MAX_RETRY)
}

/// The status that other definitions' names allow.
struct Settle<'a> {
    definitions: &'a Definitions,
    name: String,
}

#[async_trait]
impl UpdatedObject for Settle<'_> {
    async fn apply(&self, ctx: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let resource = self.definitions.store.row.group_resource();
        let Some(live) = live else {
            return Err(RegistryError::not_found(&resource, &self.name));
        };
        let group = live
            .root()
            .get("spec")
            .map_or("", |spec: Ref<'_>| spec.str("group"));
        let taken = self.definitions.taken(&self.name, group).await?;
        let mut object = live.clone();
        names::settle(&mut object, &taken, &metadata::format_time(ctx.runtime.now()));
        Ok(object)
    }
}
