//! The resources being served, by group, version and plural; rows come and go at run time.

use crate::engine::allocation::{Allocate, Allocators, BuiltIn};
use crate::engine::converted::ConvertedObjects;
use crate::engine::node_ports::NodePorts;
use crate::engine::row::ResourceRow;
use crate::engine::rows::Custom;
use crate::engine::store::{NodeGrowth, Store};
use crate::engine::stored::Stored;
use crate::engine::values::ObjectValues;
use crate::engine::version_webhook::ConversionCalls;
use apiserver_storage::Storage;
use arc_swap::ArcSwap;
use machinery_runtime::Runtime;
use machinery_schema::DisabledFields;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

pub use crate::engine::rows::{Group, Rows, Version, version_priority};

/// Everything served. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Registry(Arc<Inner>);

/// The registry, for what it holds itself and what so must not hold it.
#[derive(Debug, Clone)]
pub struct WeakRegistry(Weak<Inner>);

impl WeakRegistry {
    /// The registry; `None` once its server has ended.
    pub fn upgrade(&self) -> Option<Registry> {
        self.0.upgrade().map(Registry)
    }
}

#[derive(Debug)]
struct Inner {
    storage: Arc<dyn Storage>,
    runtime: Runtime,
    node_ports: NodePorts,
    node_growth: Arc<NodeGrowth>,
    converted: Arc<ConvertedObjects>,
    allocators: Allocators,
    /// Shared with the codec that reads stored values for storage.
    rows: Arc<ArcSwap<Rows>>,
    /// Those that clients see: without what [`Registry::serve_only`] leaves out.
    served: ArcSwap<Rows>,
    /// Set by a server that does not serve all built-in kinds.
    served_built_in: OnceLock<Vec<Arc<ResourceRow>>>,
    /// Time to live of events; set by a server that has another than the kind's.
    event_ttl: OnceLock<Option<Duration>>,
    /// Serialises changes of `rows`.
    changing: parking_lot::Mutex<()>,
    /// Set by the server.
    conversions: OnceLock<Arc<dyn ConversionCalls>>,
    /// Set by a server whose feature gates are not the defaults.
    disabled_fields: OnceLock<DisabledFields>,
}

impl Registry {
    /// Serves the built-in kinds from storage, with upstream's node ports.
    pub fn new(storage: Arc<dyn Storage>, runtime: Runtime, built_in: BuiltIn) -> Self {
        Self::with_node_ports(storage, runtime, built_in, NodePorts::default())
    }

    /// Serves the built-in kinds from storage; services get their node ports from this range.
    pub fn with_node_ports(
        storage: Arc<dyn Storage>,
        runtime: Runtime,
        built_in: BuiltIn,
        node_ports: NodePorts,
    ) -> Self {
        let built_in_rows = built_in.rows.into_iter().map(Arc::new).collect();
        let rows = Rows::rebuilt(built_in_rows, BTreeMap::new(), 1);
        let rows = Arc::new(ArcSwap::from_pointee(rows));
        if let Some(slot) = storage.codec() {
            slot.fill(Arc::new(ObjectValues::new(Arc::clone(&rows))));
        }
        let node_growth = Arc::new(NodeGrowth::new(&storage.usage().quota));
        Self(Arc::new(Inner {
            storage,
            runtime,
            node_ports,
            node_growth,
            converted: Arc::default(),
            allocators: built_in.allocators,
            served: ArcSwap::new(rows.load_full()),
            rows,
            served_built_in: OnceLock::new(),
            event_ttl: OnceLock::new(),
            changing: parking_lot::Mutex::new(()),
            conversions: OnceLock::new(),
            disabled_fields: OnceLock::new(),
        }))
    }

    /// A way to it that does not keep it.
    pub fn downgrade(&self) -> WeakRegistry {
        WeakRegistry(Arc::downgrade(&self.0))
    }

    /// Sets the way to conversion webhooks, which must not hold the registry, once, before custom resources are served.
    pub fn convert_by(&self, calls: Arc<dyn ConversionCalls>) {
        let _ = self.0.conversions.set(calls);
    }

    pub(crate) fn conversions(&self) -> Option<&Arc<dyn ConversionCalls>> {
        self.0.conversions.get()
    }

    /// Sets the fields of built-in kinds that are not stored, once, before anything is; else they follow from the defaults of
    /// feature gates.
    pub fn disable_fields(&self, fields: DisabledFields) {
        let _ = self.0.disabled_fields.set(fields);
    }

    pub(crate) fn disabled_fields(&self) -> &DisabledFields {
        let own = self.0.disabled_fields.get();
        own.unwrap_or_else(|| machinery_api::table().disabled_fields())
    }

    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        &self.0.storage
    }

    /// Returns the storage for reading only.
    pub fn stored(&self) -> Stored<'_> {
        Stored::new(&self.0.storage)
    }

    /// Lets go of the storage: watches end, and nothing is read or written any more.
    pub async fn close(&self) {
        self.0.storage.close().await;
    }

    pub fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// The ports that services may have on every node.
    pub fn node_ports(&self) -> NodePorts {
        self.0.node_ports
    }

    pub(crate) fn node_growth(&self) -> &Arc<NodeGrowth> {
        &self.0.node_growth
    }

    pub(crate) fn converted(&self) -> &Arc<ConvertedObjects> {
        &self.0.converted
    }

    pub(crate) fn allocator(&self, row: &ResourceRow) -> Option<Allocate> {
        self.0.allocators.find(row)
    }

    pub fn rows(&self) -> Arc<Rows> {
        self.0.rows.load_full()
    }

    /// Leaves built-in kinds out of what clients see, once, before anything is served: their objects stay, and the server's own
    /// parts go on to use them.
    pub fn serve_only(&self, is_served: impl Fn(&ResourceRow) -> bool) {
        let _changing = self.0.changing.lock();
        let rows = self.0.rows.load_full();
        let own = rows.built_in.iter().filter(|row| is_served(row.as_ref()));
        if self.0.served_built_in.set(own.cloned().collect()).is_ok() {
            self.show(rows);
        }
    }

    /// The resources that clients see.
    pub fn served(&self) -> Arc<Rows> {
        self.0.served.load_full()
    }

    /// The verbs of a resource, when clients see it.
    pub fn served_store(&self, group: &str, version: &str, plural: &str) -> Option<Store> {
        let row = Arc::clone(self.0.served.load().get(group, version, plural)?);
        Some(Store::new(row, self))
    }

    /// Shows these rows to clients.
    fn show(&self, rows: Arc<Rows>) {
        let served = match self.0.served_built_in.get() {
            None => rows,
            Some(own) => Arc::new(Rows::rebuilt(own.clone(), rows.custom.clone(), rows.generation)),
        };
        self.0.served.store(served);
    }

    /// Sets the time to live of events, once, before any is written; `None` keeps them.
    pub fn set_event_ttl(&self, ttl: Option<Duration>) {
        let _ = self.0.event_ttl.set(ttl);
    }

    /// The time to live of a kind's objects. Of the built-in kinds events alone have one.
    pub(crate) fn time_to_live(&self, row: &ResourceRow) -> Option<Duration> {
        let own = row.strategy.ttl()?;
        self.0.event_ttl.get().copied().unwrap_or(Some(own))
    }

    /// The verbs of a resource, when it is served.
    pub fn store(&self, group: &str, version: &str, plural: &str) -> Option<Store> {
        let row = Arc::clone(self.0.rows.load().get(group, version, plural)?);
        Some(Store::new(row, self))
    }

    /// The verbs of a resource in its preferred version.
    pub fn preferred_store(&self, group: &str, plural: &str) -> Option<Store> {
        let rows = self.0.rows.load();
        let versions = &rows.group(group)?.versions;
        let row = versions
            .iter()
            .find_map(|version| rows.get(group, &version.name, plural))?;
        Some(Store::new(Arc::clone(row), self))
    }

    /// Names of the CustomResourceDefinitions that are served.
    pub(crate) fn custom_definitions(&self) -> Vec<String> {
        self.0.rows.load().custom.keys().cloned().collect()
    }

    /// The verbs on the objects of a CustomResourceDefinition, in one of its served versions; objects are stored in one
    /// form, so that any of them reaches all. `None` for a definition that is not served, as one in a built-in group.
    pub(crate) fn custom_store(&self, definition: &str) -> Option<Store> {
        let rows = self.0.rows.load();
        let own = &rows.custom.get(definition)?.rows;
        // That which is stored needs no webhook.
        let row = own.iter().find(|row| row.is_stored_form()).or(own.first())?;
        let row = Arc::clone(row);
        Some(Store::new(row, self))
    }

    /// Replaces the rows of one CustomResourceDefinition, where what they are made of is not what it was. Says whether
    /// it was replaced.
    ///
    /// A row in a built-in group is left out, whatever its version: upstream's own handlers claim all addresses below
    /// `/apis/GROUP`, so that no definition replaces a kind of the server, adds one to its versions, or
    /// is preferred. Upstream's discovery prefers the definition's version nevertheless, at which nothing answers; here it has
    /// none.
    pub(crate) fn set_custom(
        &self,
        definition: &str,
        form: String,
        rows: impl FnOnce() -> Vec<ResourceRow>,
    ) -> bool {
        let _changing = self.0.changing.lock();
        let old = self.0.rows.load_full();
        if old.custom.get(definition).is_some_and(|known| known.form == form) {
            return false;
        }
        let rows = rows().into_iter();
        let rows = rows.filter(|row| !old.is_built_in_group(&row.gvk.group));
        let rows = rows.map(Arc::new).collect();
        let mut custom = old.custom.clone();
        let before = custom.insert(definition.to_owned(), Custom { form, rows });
        self.exchange(&old, custom, before);
        true
    }

    /// Takes the rows of a CustomResourceDefinition away.
    pub(crate) fn remove_custom(&self, definition: &str) {
        let _changing = self.0.changing.lock();
        let old = self.0.rows.load_full();
        let mut custom = old.custom.clone();
        if let Some(before) = custom.remove(definition) {
            self.exchange(&old, custom, Some(before));
        }
    }

    fn exchange(&self, old: &Rows, custom: BTreeMap<String, Custom>, before: Option<Custom>) {
        for row in before.iter().flat_map(|known| &known.rows) {
            row.superseded.cancel();
        }
        let rows = Arc::new(Rows::rebuilt(old.built_in.clone(), custom, old.generation + 1));
        self.0.rows.store(Arc::clone(&rows));
        self.show(rows);
    }

    /// No object of a CustomResourceDefinition is made any more.
    pub(crate) fn close_custom(&self, definition: &str) {
        let rows = self.0.rows.load();
        for row in rows.custom.get(definition).iter().flat_map(|known| &known.rows) {
            row.terminating.cancel();
        }
    }
}
