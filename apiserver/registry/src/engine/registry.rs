//! The resources being served, by group, version and plural; rows come and go at run time.

use crate::engine::converted::ConvertedObjects;
use crate::engine::node_ports::NodePorts;
use crate::engine::row::ResourceRow;
use crate::engine::store::{NodeGrowth, Store};
use crate::engine::stored::Stored;
use crate::engine::values::ObjectValues;
use crate::engine::version_webhook::ConversionCalls;
use apiserver_storage::Storage;
use arc_swap::ArcSwap;
use machinery_runtime::Runtime;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock, Weak};

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
    /// Shared with whoever reads stored values for storage.
    rows: Arc<ArcSwap<Rows>>,
    /// Serialises changes of `rows`.
    changing: parking_lot::Mutex<()>,
    /// Set by the server.
    conversions: OnceLock<Arc<dyn ConversionCalls>>,
}

/// A group as discovery shows it.
#[derive(Debug, Clone, Default)]
pub struct Group {
    pub name: String,
    /// In order of preference.
    pub versions: Vec<Version>,
}

/// A version of a group.
#[derive(Debug, Clone, Default)]
pub struct Version {
    pub name: String,
    /// Sorted by plural.
    pub resources: Vec<Arc<ResourceRow>>,
}

/// Parts of a prefix after `/registry`: `pods`, `services/specs`, `knarr.test/boats`.
const PREFIX_PARTS: usize = 2;

/// One moment's rows. `generation` grows with every change.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    pub generation: u64,
    pub groups: Vec<Group>,
    by_resource: HashMap<String, HashMap<String, HashMap<String, Arc<ResourceRow>>>>,
    by_prefix: HashMap<String, Arc<ResourceRow>>,
    built_in: Vec<Arc<ResourceRow>>,
    custom: BTreeMap<String, Custom>,
}

/// The rows that a CustomResourceDefinition is served as.
#[derive(Debug, Clone)]
pub(crate) struct Custom {
    /// All that the rows are made of, as text.
    form: String,
    rows: Vec<Arc<ResourceRow>>,
}

/// Positions of groups and versions among the others, while rows are added.
#[derive(Default)]
struct Places {
    groups: HashMap<String, usize>,
    versions: HashMap<(usize, String), usize>,
}

impl Rows {
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceRow>> {
        self.by_resource.get(group)?.get(version)?.get(plural)
    }

    /// The group belongs to the server itself, whatever else is defined in it.
    pub fn is_built_in_group(&self, group: &str) -> bool {
        self.built_in.iter().any(|row| row.gvk.group == group)
    }

    /// The objects of a built-in resource lie below this prefix.
    pub(crate) fn is_built_in_prefix(&self, prefix: &str) -> bool {
        self.by_prefix.get(prefix).is_some_and(|row| !row.custom)
    }

    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<ResourceRow>> {
        self.groups
            .iter()
            .flat_map(|group| &group.versions)
            .flat_map(|version| &version.resources)
    }

    /// Other rows of the same objects that have a subresource too, where one is named.
    pub fn equivalents<'a>(
        &'a self,
        row: &'a ResourceRow,
        subresource: &'a str,
    ) -> impl Iterator<Item = &'a Arc<ResourceRow>> {
        self.all().filter(move |other| {
            let is_same = other.gvk == row.gvk && other.plural == row.plural;
            let has_part = subresource.is_empty() || other.subresource(subresource).is_some();
            !is_same && has_part && row.has_store && other.stored.prefix == row.stored.prefix
        })
    }

    /// A row of the kind whose objects lie where this key does; the stored version's where that is served.
    pub(crate) fn at_key(&self, key: &str) -> Option<&Arc<ResourceRow>> {
        let slashes = key.match_indices('/').skip(2).take(PREFIX_PARTS);
        let prefixes = slashes.map(|(at, _)| &key[..=at]);
        prefixes.filter_map(|prefix| self.by_prefix.get(prefix)).last()
    }

    pub(crate) fn rebuilt(
        built_in: Vec<Arc<ResourceRow>>,
        custom: BTreeMap<String, Custom>,
        generation: u64,
    ) -> Self {
        let mut rows = Self {
            generation,
            built_in,
            custom,
            ..Self::default()
        };
        let all: Vec<Arc<ResourceRow>> = rows
            .built_in
            .iter()
            .chain(rows.custom.values().flat_map(|known| &known.rows))
            .cloned()
            .collect();
        let mut places = Places::default();
        for row in all {
            rows.add(row, &mut places);
        }
        rows.sort();
        rows
    }

    fn add(&mut self, row: Arc<ResourceRow>, places: &mut Places) {
        let (group, version) = (&row.gvk.group, &row.gvk.version);
        let at = *places.groups.entry(group.clone()).or_insert_with(|| {
            self.groups.push(Group {
                name: group.clone(),
                versions: Vec::new(),
            });
            self.groups.len() - 1
        });
        let versions = &mut self.groups[at].versions;
        let at = *places.versions.entry((at, version.clone())).or_insert_with(|| {
            versions.push(Version {
                name: version.clone(),
                resources: Vec::new(),
            });
            versions.len() - 1
        });
        versions[at].resources.push(Arc::clone(&row));
        if row.has_store {
            let stored = self.by_prefix.entry(row.stored.prefix.clone());
            let stored = stored.or_insert_with(|| Arc::clone(&row));
            if row.is_stored_form() {
                *stored = Arc::clone(&row);
            }
        }
        let plurals = self
            .by_resource
            .entry(group.clone())
            .or_default()
            .entry(version.clone())
            .or_default();
        plurals.insert(row.plural.clone(), row);
    }

    fn sort(&mut self) {
        for group in &mut self.groups {
            // Built-in groups come in upstream's order already; custom versions sort by stability.
            let custom = group
                .versions
                .iter()
                .flat_map(|v| &v.resources)
                .any(|row| row.custom);
            if custom {
                group
                    .versions
                    .sort_by_key(|version| std::cmp::Reverse(version_priority(&version.name)));
            }
            for version in &mut group.versions {
                version.resources.sort_by(|a, b| a.plural.cmp(&b.plural));
            }
        }
    }
}

/// Upstream's order of versions: GA, beta, alpha, each newest first, then others by name.
pub fn version_priority(version: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let parsed = || -> Option<(u8, u64, u64)> {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major = rest[..digits].parse().ok()?;
        let rest = &rest[digits..];
        if rest.is_empty() {
            return Some((3, major, 0));
        }
        if let Some(minor) = rest.strip_prefix("beta") {
            return Some((2, major, minor.parse().ok()?));
        }
        Some((1, major, rest.strip_prefix("alpha")?.parse().ok()?))
    };
    let (stage, major, minor) = parsed().unwrap_or((0, 0, 0));
    let name = if stage == 0 {
        version.to_owned()
    } else {
        String::new()
    };
    (stage, major, minor, std::cmp::Reverse(name))
}

impl Registry {
    /// Serves the built-in kinds from storage, with upstream's node ports.
    pub fn new(storage: Arc<dyn Storage>, runtime: Runtime, built_in: Vec<ResourceRow>) -> Self {
        Self::with_node_ports(storage, runtime, built_in, NodePorts::default())
    }

    /// Serves the built-in kinds from storage; services get their node ports from this range.
    pub fn with_node_ports(
        storage: Arc<dyn Storage>,
        runtime: Runtime,
        built_in: Vec<ResourceRow>,
        node_ports: NodePorts,
    ) -> Self {
        let built_in = built_in.into_iter().map(Arc::new).collect();
        let rows = Rows::rebuilt(built_in, BTreeMap::new(), 1);
        let rows = Arc::new(ArcSwap::from_pointee(rows));
        storage.interpret_with(Arc::new(ObjectValues::new(Arc::clone(&rows))));
        let node_growth = Arc::new(NodeGrowth::new(&storage.usage().quota));
        Self(Arc::new(Inner {
            storage,
            runtime,
            node_ports,
            node_growth,
            converted: Arc::default(),
            rows,
            changing: parking_lot::Mutex::new(()),
            conversions: OnceLock::new(),
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

    pub fn rows(&self) -> Arc<Rows> {
        self.0.rows.load_full()
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
        let rows = Rows::rebuilt(old.built_in.clone(), custom, old.generation + 1);
        self.0.rows.store(Arc::new(rows));
    }

    /// No object of a CustomResourceDefinition is made any more.
    pub(crate) fn close_custom(&self, definition: &str) {
        let rows = self.0.rows.load();
        for row in rows.custom.get(definition).iter().flat_map(|known| &known.rows) {
            row.terminating.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::version_priority;

    #[test]
    fn versions_sort_by_stability() {
        let mut versions = vec![
            "foo1",
            "v1alpha1",
            "v10",
            "v2",
            "v1beta2",
            "v11beta2",
            "v12alpha1",
            "foo10",
        ];
        versions.sort_by_key(|version| std::cmp::Reverse(version_priority(version)));
        assert_eq!(
            versions,
            [
                "v10",
                "v2",
                "v11beta2",
                "v1beta2",
                "v12alpha1",
                "v1alpha1",
                "foo1",
                "foo10"
            ]
        );
    }
}
