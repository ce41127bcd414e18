//! The nodes as a table of columns, kept current by events.
//!
//! One row per node, one vector per thing a plugin asks about, so that filtering and scoring walk memory in
//! order. A change log names the rows that changed since a given moment; evaluations kept per pod shape catch up
//! with it instead of starting over. Pods may be known before their node is: such a row is not `present` yet.

use crate::declared_features::DeclaredFeatures;
use crate::devices::Devices;
pub use crate::node_id::NodeId;
use crate::node_state::NodeState;
use crate::object::{Labels, Node, Taint};
use crate::owner_selectors::OwnerSelectors;
use crate::placed::Placed;
use crate::pod::PodInfo;
use crate::resources::{Resources, value};
use crate::selector_counts::{CounterId, CounterKey, Namespaces, SelectorCounts};
use crate::topology::Topology;
use crate::usage::NodeUsages;
use crate::volumes::Volumes;
use machinery_meta::ObjectKey;
use machinery_semantics::host_ports::HostPort;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Changes remembered; an evaluation that fell further behind starts over.
const CHANGE_LOG: usize = 8192;

/// Labels that make a zone.
const ZONE_LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// Topology columns kept from one attempt to the next; the least recently used goes first.
const MAX_TOPOLOGIES: usize = 128;

/// The columns. Rows of removed nodes are used again.
#[derive(Debug, Default)]
pub struct NodeTable {
    index: HashMap<Box<str>, NodeId>,
    free: Vec<NodeId>,
    present_count: usize,
    pub names: Vec<Box<str>>,
    pub present: Vec<bool>,
    pub unschedulable: Vec<bool>,
    pub labels: Vec<Labels>,
    pub taints: Vec<Vec<Taint>>,
    pub declared_features: Vec<DeclaredFeatures>,
    /// Hashes of what no plugin looks at.
    conditions: Vec<u64>,
    annotations: Vec<u64>,
    pub allocatable_milli_cpu: Vec<i64>,
    pub allocatable_memory: Vec<i64>,
    pub allocatable_ephemeral_storage: Vec<i64>,
    pub allowed_pods: Vec<i64>,
    pub allocatable_scalars: Vec<BTreeMap<Box<str>, i64>>,
    pub requested_milli_cpu: Vec<i64>,
    pub requested_memory: Vec<i64>,
    pub requested_ephemeral_storage: Vec<i64>,
    pub requested_scalars: Vec<BTreeMap<Box<str>, i64>>,
    pub scored_milli_cpu: Vec<i64>,
    pub scored_memory: Vec<i64>,
    pub ports: Vec<Vec<HostPort>>,
    pub images: Vec<HashMap<Box<str>, i64>>,
    pub pods: Vec<Vec<Arc<PodInfo>>>,
    /// Number of nodes that have an image.
    pub image_nodes: HashMap<Box<str>, u32>,
    placed: Placed,
    /// Numbers of nodes by label key.
    label_keys: HashMap<Box<str>, usize>,
    topologies: HashMap<Box<str>, Topology>,
    topology_uses: u64,
    counts: SelectorCounts,
    owner_selectors: OwnerSelectors,
    pub volumes: Volumes,
    /// Devices, and the claims to them.
    pub devices: Devices,
    /// Usage of nodes, where the policy needs it.
    pub(crate) usage: NodeUsages,
    namespaces: Namespaces,
    /// Nodes in the order in which they are looked at, zone by turns; made anew where it is stale.
    order: Vec<NodeId>,
    order_is_current: bool,
    changes: Vec<NodeId>,
    changes_before: u64,
}

/// Changes of a node, as far as they matter for waiting pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeChange {
    pub added: bool,
    pub allocatable: bool,
    pub labels: bool,
    pub taints: bool,
    pub features: bool,
    pub conditions: bool,
    pub annotations: bool,
}

impl NodeChange {
    /// Reports whether a plugin may answer differently.
    fn is_of_answers(self) -> bool {
        self.added || self.allocatable || self.labels || self.taints || self.features
    }
}

impl NodeTable {
    /// Rows, used or not; ids are below it.
    pub fn rows(&self) -> usize {
        self.names.len()
    }

    /// Pods on nodes.
    pub fn pod_count(&self) -> usize {
        self.placed.len()
    }

    /// Nodes that exist.
    pub fn node_count(&self) -> usize {
        self.present_count
    }

    pub fn id(&self, name: &str) -> Option<NodeId> {
        self.index.get(name).copied().filter(|id| self.present[*id])
    }

    /// A node was added or changed.
    pub fn set_node(&mut self, node: &Node) -> NodeChange {
        let id = self.row(&node.metadata.name);
        let allocatable = Resources::of(&node.status.allocatable);
        let pods = node.status.allocatable.get("pods").map_or(0, value);
        let features = DeclaredFeatures::declared(&node.status.declared_features);
        let change = NodeChange {
            added: !self.present[id],
            allocatable: self.allocatable(id) != allocatable || self.allowed_pods[id] != pods,
            labels: self.labels[id] != node.metadata.labels,
            taints: self.taints[id] != node.spec.taints || self.unschedulable[id] != node.spec.unschedulable,
            features: self.declared_features[id] != features,
            conditions: self.conditions[id] != node.status.conditions,
            annotations: self.annotations[id] != node.metadata.annotations,
        };
        self.conditions[id] = node.status.conditions;
        self.annotations[id] = node.metadata.annotations;
        let images = self.images_changed(id, node);
        if !change.is_of_answers() && !images {
            return change;
        }
        self.present_count += usize::from(change.added);
        self.present[id] = true;
        self.unschedulable[id] = node.spec.unschedulable;
        self.taints[id].clone_from(&node.spec.taints);
        self.declared_features[id] = features;
        self.allocatable_milli_cpu[id] = allocatable.milli_cpu;
        self.allocatable_memory[id] = allocatable.memory;
        self.allocatable_ephemeral_storage[id] = allocatable.ephemeral_storage;
        self.allocatable_scalars[id] = allocatable.scalars;
        self.allowed_pods[id] = pods;
        if images {
            self.set_images(id, node);
        }
        if change.labels || change.added {
            self.order_is_current = false;
            self.count_label_keys(id, false);
            self.labels[id].clone_from(&node.metadata.labels);
            self.count_label_keys(id, true);
            for (key, topology) in &mut self.topologies {
                topology.set(id, self.labels[id].get(key));
            }
        }
        self.log(id);
        change
    }

    fn count_label_keys(&mut self, id: NodeId, came: bool) {
        for (key, _) in self.labels[id].iter() {
            if came {
                *self.label_keys.entry(key.into()).or_default() += 1;
            } else if let Some(count) = self.label_keys.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    self.label_keys.remove(key);
                }
            }
        }
    }

    /// Has all nodes looked at again: something changed that is no part of their rows.
    pub(crate) fn forget_answers(&mut self) {
        (0..self.names.len()).for_each(|id| self.log(id));
    }

    /// Nodes as [`Self::order_by_zone`] made their order.
    pub(crate) fn search_order(&self) -> &[NodeId] {
        &self.order
    }

    /// Brings the order of the search up to date: one node of each zone, then the next of each (upstream's `nodeTree`).
    pub(crate) fn order_by_zone(&mut self) {
        if std::mem::replace(&mut self.order_is_current, true) {
            return;
        }
        let mut zones: Vec<Vec<NodeId>> = Vec::new();
        let mut places: HashMap<[&str; 2], usize> = HashMap::new();
        for id in (0..self.names.len()).filter(|id| self.present[*id]) {
            let zone = ZONE_LABELS.map(|key| self.labels[id].get(key).unwrap_or(""));
            let place = *places.entry(zone).or_insert(zones.len());
            if place == zones.len() {
                zones.push(Vec::new());
            }
            zones[place].push(id);
        }
        let longest = zones.iter().map(Vec::len).max().unwrap_or(0);
        let turn = |at: usize| zones.iter().filter_map(move |zone| zone.get(at).copied());
        self.order = (0..longest).flat_map(turn).collect();
    }

    /// A node as it is.
    pub(crate) fn state(&self, name: &str) -> Option<NodeState> {
        let id = self.id(name)?;
        Some(NodeState {
            name: name.into(),
            labels: self.labels[id].clone(),
            taints: self.taints[id].clone(),
            unschedulable: self.unschedulable[id],
            allocatable: self.allocatable(id),
            allowed_pods: self.allowed_pods[id],
            features: self.declared_features[id],
        })
    }

    fn allocatable(&self, id: NodeId) -> Resources {
        Resources {
            milli_cpu: self.allocatable_milli_cpu[id],
            memory: self.allocatable_memory[id],
            ephemeral_storage: self.allocatable_ephemeral_storage[id],
            scalars: self.allocatable_scalars[id].clone(),
        }
    }

    fn images_changed(&self, id: NodeId, node: &Node) -> bool {
        let own = &self.images[id];
        let mut count = 0;
        for image in &node.status.images {
            for name in &image.names {
                count += 1;
                if own.get(name) != Some(&image.size_bytes) {
                    return true;
                }
            }
        }
        count != own.len()
    }

    fn set_images(&mut self, id: NodeId, node: &Node) {
        for name in std::mem::take(&mut self.images[id]).into_keys() {
            if let Some(count) = self.image_nodes.get_mut(&name) {
                *count -= 1;
                if *count == 0 {
                    self.image_nodes.remove(&name);
                }
            }
        }
        for image in &node.status.images {
            for name in &image.names {
                if self.images[id].insert(name.clone(), image.size_bytes).is_none() {
                    *self.image_nodes.entry(name.clone()).or_default() += 1;
                }
            }
        }
    }

    /// The node is gone; its pods may stay known for a while.
    pub fn remove_node(&mut self, name: &str) {
        let Some(id) = self.id(name) else { return };
        self.order_is_current = false;
        self.present[id] = false;
        self.present_count -= 1;
        self.set_images(id, &Node::default());
        self.count_label_keys(id, false);
        self.labels[id] = Labels::default();
        self.taints[id].clear();
        self.declared_features[id] = DeclaredFeatures::default();
        for topology in self.topologies.values_mut() {
            topology.set(id, None);
        }
        self.log(id);
        self.free_if_unused(id);
    }

    fn free_if_unused(&mut self, id: NodeId) {
        if !self.present[id] && self.pods[id].is_empty() {
            let name = std::mem::take(&mut self.names[id]);
            self.index.remove(&name);
            self.free.push(id);
        }
    }

    fn row(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.index.get(name) {
            return *id;
        }
        let id = self.free.pop().unwrap_or_else(|| self.grow());
        self.names[id] = name.into();
        self.index.insert(name.into(), id);
        id
    }

    fn grow(&mut self) -> NodeId {
        let id = self.names.len();
        self.names.push(Box::default());
        self.present.push(false);
        self.unschedulable.push(false);
        self.labels.push(Labels::default());
        self.taints.push(Vec::new());
        self.declared_features.push(DeclaredFeatures::default());
        self.conditions.push(0);
        self.annotations.push(0);
        for column in [
            &mut self.allocatable_milli_cpu,
            &mut self.allocatable_memory,
            &mut self.allocatable_ephemeral_storage,
            &mut self.allowed_pods,
            &mut self.requested_milli_cpu,
            &mut self.requested_memory,
            &mut self.requested_ephemeral_storage,
            &mut self.scored_milli_cpu,
            &mut self.scored_memory,
        ] {
            column.push(0);
        }
        self.allocatable_scalars.push(BTreeMap::new());
        self.requested_scalars.push(BTreeMap::new());
        self.ports.push(Vec::new());
        self.images.push(HashMap::new());
        self.pods.push(Vec::new());
        id
    }

    /// A pod on a node was added or changed, or is assumed there. Returns whether anything that filters or
    /// scores look at differs from before.
    pub fn set_pod(&mut self, pod: &Arc<PodInfo>, node: &str) -> bool {
        if let Some(id) = self.placed.node_of(&pod.key) {
            if *self.names[id] == *node && self.replace_equal(id, pod) {
                self.placed.insert(pod, id);
                return false;
            }
            self.remove_pod(&pod.key);
        }
        let id = self.row(node);
        self.placed.insert(pod, id);
        self.add_to_row(id, pod);
        self.log(id);
        true
    }

    fn replace_equal(&mut self, id: NodeId, pod: &Arc<PodInfo>) -> bool {
        let Some(own) = self.pods[id].iter_mut().find(|own| own.key == pod.key) else {
            return false;
        };
        let equal = own.pod.metadata.labels == pod.pod.metadata.labels
            && own.pod.is_deleting() == pod.pod.is_deleting()
            && own.uid() == pod.uid()
            && own.shape.requests == pod.shape.requests
            && own.shape.scored_milli_cpu == pod.shape.scored_milli_cpu
            && own.shape.scored_memory == pod.shape.scored_memory
            && own.shape.ports == pod.shape.ports
            && own.has_terms_of(pod);
        if equal {
            *own = Arc::clone(pod);
        }
        equal
    }

    /// The pod left its node.
    pub fn remove_pod(&mut self, key: &ObjectKey) -> Option<Arc<PodInfo>> {
        let id = self.placed.remove(key)?;
        let position = self.pods[id].iter().position(|own| own.key == *key)?;
        let pod = self.take_from_row(id, position);
        self.log(id);
        self.free_if_unused(id);
        Some(pod)
    }

    /// The pod of this key that is on a node.
    pub(crate) fn placed(&self, key: &ObjectKey) -> Option<&Arc<PodInfo>> {
        self.placed.get(key)
    }

    /// The node that the pod is on; `None` if it is on none.
    pub fn node_of(&self, key: &ObjectKey) -> Option<&str> {
        self.placed.node_of(key).map(|id| &*self.names[id])
    }

    /// Puts a pod on a row without remembering it by key; the dry run of preemption gives and takes this way.
    ///
    /// Invariant: a caller that is not [`Self::set_pod`] takes the pod off again before an evaluation looks at the row, which is
    /// why the row counts as unchanged.
    pub fn add_to_row(&mut self, id: NodeId, pod: &Arc<PodInfo>) {
        self.account(id, pod, true);
        self.pods[id].push(Arc::clone(pod));
    }

    /// The reverse of [`Self::add_to_row`].
    pub fn take_from_row(&mut self, id: NodeId, position: usize) -> Arc<PodInfo> {
        let pod = self.pods[id].swap_remove(position);
        self.account(id, &pod, false);
        pod
    }

    /// Steps that putting the pod on a row, or taking it off, takes: the counters, terms and claims to bring up to date.
    pub fn moving_costs(&self, pod: &PodInfo) -> usize {
        1 + self.counts.touched_by(&pod.pod.metadata) + pod.term_steps() + pod.claims.len()
    }

    fn account(&mut self, id: NodeId, pod: &PodInfo, came: bool) {
        let sign = if came { 1 } else { -1 };
        let shape = &pod.shape;
        self.requested_milli_cpu[id] += sign * shape.requests.milli_cpu;
        self.requested_memory[id] += sign * shape.requests.memory;
        self.requested_ephemeral_storage[id] += sign * shape.requests.ephemeral_storage;
        self.scored_milli_cpu[id] += sign * shape.scored_milli_cpu;
        self.scored_memory[id] += sign * shape.scored_memory;
        for (name, amount) in &shape.requests.scalars {
            *self.requested_scalars[id].entry(name.clone()).or_default() += sign * amount;
        }
        for port in &shape.ports {
            if came {
                self.ports[id].push(port.clone());
            } else if let Some(position) = self.ports[id].iter().position(|own| own == port) {
                self.ports[id].swap_remove(position);
            }
        }
        self.volumes.count_users(pod, came);
        self.counts
            .change(&pod.pod, &pod.terms(), id, came, &self.namespaces);
    }

    /// A namespace's labels, for namespace selectors; `None` when it is gone. Returns whether they changed.
    pub fn set_namespace(&mut self, name: &str, labels: Option<Labels>) -> bool {
        let changed = self.namespaces.get(name) != labels.as_ref();
        if changed {
            match labels {
                Some(labels) => self.namespaces.insert(name.into(), labels),
                None => self.namespaces.remove(name),
            };
            self.counts.forget_namespace_selectors();
        }
        changed
    }

    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    pub fn owner_selectors(&self) -> &OwnerSelectors {
        &self.owner_selectors
    }

    pub fn owner_selectors_mut(&mut self) -> &mut OwnerSelectors {
        &mut self.owner_selectors
    }

    pub fn counts(&self) -> &SelectorCounts {
        &self.counts
    }

    #[cfg(test)]
    pub(crate) fn topologies(&self) -> usize {
        self.topologies.len()
    }

    /// Forgets what earlier attempts needed beyond what is kept; called before an attempt makes its own.
    pub fn trim(&mut self) {
        self.counts.trim();
        let beyond = self.topologies.len().saturating_sub(MAX_TOPOLOGIES);
        if beyond > 0 {
            let mut uses: Vec<u64> = self.topologies.values().map(|one| one.last_used).collect();
            uses.sort_unstable();
            self.topologies.retain(|_, one| one.last_used > uses[beyond - 1]);
        }
    }

    /// Makes counters, all in one walk. Returns the steps as well.
    pub fn prepare_counters(&mut self, counters: Vec<CounterKey>) -> (Vec<CounterId>, usize) {
        self.counts.ensure(counters, &self.placed, &self.namespaces)
    }

    /// Makes a topology column, where a node has the label. Returns the nodes looked at.
    pub fn prepare_topology(&mut self, key: &str) -> usize {
        self.topology_uses += 1;
        if let Some(topology) = self.topologies.get_mut(key) {
            topology.last_used = self.topology_uses;
            return 0;
        }
        if !self.label_keys.contains_key(key) {
            return 0;
        }
        let mut topology = Topology::default();
        topology.last_used = self.topology_uses;
        for (id, labels) in self.labels.iter().enumerate() {
            topology.set(id, labels.get(key));
        }
        self.topologies.insert(key.into(), topology);
        self.labels.len()
    }

    /// The column of a topology key, once [`Self::prepare_topology`] made it; `None` where no node has the label.
    pub fn topology(&self, key: &str) -> Option<&Topology> {
        self.topologies.get(key)
    }

    fn log(&mut self, id: NodeId) {
        if self.changes.len() >= CHANGE_LOG {
            self.changes_before += self.changes.len() as u64;
            self.changes.clear();
        }
        self.changes.push(id);
    }

    /// The moment after the latest change.
    pub fn now(&self) -> u64 {
        self.changes_before + self.changes.len() as u64
    }

    /// Rows that changed since a moment, or `None` when that is too long ago to know.
    pub fn changed_since(&self, moment: u64) -> Option<&[NodeId]> {
        let skip = usize::try_from(moment.checked_sub(self.changes_before)?).ok()?;
        self.changes.get(skip..)
    }
}
