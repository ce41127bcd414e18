//! Pools of devices, by generation.
//!
//! A driver replaces a pool by slices of a higher generation, one after the other: until all of them are there the pool is
//! incomplete, and nothing is allocated of it. A node has the newest generation of which it reaches devices; an older one is
//! as good as none, unless the node reaches all of it. A pool whose slices contradict each other is invalid, but for a node whose
//! own slices are a whole pool by themselves.

use super::objects::{Amounts, Device, Nodes, Slice};
use crate::nodes::{NodeId, NodeTable};
use crate::selector::node_selector_matches;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// A pool's driver and name.
pub(crate) type PoolId = (Arc<str>, Arc<str>);

/// A generation of a pool.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Sorted by name.
    pub(crate) slices: Vec<Arc<Slice>>,
    /// Its slices contradict each other, as far as they are there.
    is_invalid: bool,
    /// Sets of counters that devices of the pool share.
    pub(crate) counters: BTreeMap<Box<str>, Amounts>,
    /// Selectors of nodes in it: of slices, or of each of their devices.
    steps: usize,
    /// Slices of each node by themselves, if they are as many as they say; filled if all of them contradict each other.
    alone: BTreeMap<Box<str>, Pool>,
}

/// A pool as a node has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NearPool<'a> {
    pub(crate) id: &'a PoolId,
    pub(crate) pool: &'a Pool,
    /// The node, where its slices stand by themselves.
    alone: Option<&'a str>,
    /// Slices of it are missing.
    pub(crate) is_incomplete: bool,
    /// Devices in the node's reach have conditions that pods wait for.
    pub(crate) has_conditions: bool,
}

impl NearPool<'_> {
    /// Reports whether the pool contradicts itself. One that is incomplete may not do so any more once it is there.
    pub(crate) fn is_invalid(&self) -> bool {
        self.pool.is_invalid && !self.is_incomplete
    }

    /// Distinguishes it from other pools of its id, which other nodes have.
    pub(crate) fn place(&self) -> (i64, Option<Box<str>>) {
        let generation = self.pool.slices.first().map_or(0, |own| own.generation);
        (generation, self.alone.map(Into::into))
    }

    /// Reports whether devices of it may be allocated.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_incomplete && !self.pool.is_invalid
    }
}

/// All pools, and the nodes that reach them.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    slices: HashMap<Box<str>, Arc<Slice>>,
    /// Names of all slices of a pool, old ones too.
    names: HashMap<PoolId, BTreeSet<Box<str>>>,
    pools: BTreeMap<PoolId, BTreeMap<i64, Pool>>,
    of_node: HashMap<Box<str>, BTreeSet<PoolId>>,
    /// Pools with slices that are of no single node.
    of_many: BTreeSet<PoolId>,
    /// Pools whose slices changed since they were made of them.
    changed: BTreeSet<PoolId>,
}

impl Pools {
    /// A slice changed; `None` when it is gone. Reports whether that changed anything. Its pool is as it was until
    /// [`Self::renew`].
    pub(crate) fn set(&mut self, name: &str, slice: Option<Arc<Slice>>) -> bool {
        if self.slices.get(name) == slice.as_ref() {
            return false;
        }
        if let Some(before) = self.slices.remove(name) {
            let id = id_of(&before);
            if let Some(names) = self.names.get_mut(&id) {
                names.remove(name);
            }
            self.changed.insert(id);
        }
        if let Some(slice) = slice {
            let id = id_of(&slice);
            self.names.entry(id.clone()).or_default().insert(name.into());
            self.slices.insert(name.into(), slice);
            self.changed.insert(id);
        }
        true
    }

    /// Makes the pools that changed anew, each once however many of its slices did. Returns the number of their devices.
    pub(crate) fn renew(&mut self) -> usize {
        let changed = std::mem::take(&mut self.changed);
        changed.iter().map(|id| self.renew_one(id)).sum()
    }

    fn renew_one(&mut self, id: &PoolId) -> usize {
        for before in self.pools.remove(id).into_iter().flat_map(BTreeMap::into_values) {
            self.file(id, &before, false);
        }
        let names = self.names.get(id).into_iter().flatten();
        let mut generations: BTreeMap<i64, Vec<Arc<Slice>>> = BTreeMap::new();
        for slice in names.filter_map(|name| self.slices.get(name)) {
            let slices = generations.entry(slice.generation).or_default();
            slices.push(Arc::clone(slice));
        }
        if generations.is_empty() {
            self.names.remove(id);
            return 0;
        }
        let pools = generations.into_iter();
        let pools: BTreeMap<i64, Pool> = pools
            .map(|(generation, slices)| (generation, Pool::of(slices).divided()))
            .collect();
        let mut made = 0;
        for pool in pools.values() {
            self.file(id, pool, true);
            made += pool.slices.iter().map(|own| own.devices.len()).sum::<usize>();
        }
        self.pools.insert(id.clone(), pools);
        made
    }

    /// Files a pool under the nodes that reach it, or takes it away from there.
    fn file(&mut self, id: &PoolId, pool: &Pool, comes: bool) {
        for slice in &pool.slices {
            match (&slice.nodes, comes) {
                (Nodes::Named(node), true) => {
                    self.of_node.entry(node.clone()).or_default().insert(id.clone());
                }
                (Nodes::Named(node), false) => {
                    if let Some(pools) = self.of_node.get_mut(node) {
                        pools.remove(id);
                        if pools.is_empty() {
                            self.of_node.remove(node);
                        }
                    }
                }
                (_, true) => drop(self.of_many.insert(id.clone())),
                (_, false) => drop(self.of_many.remove(id)),
            }
        }
    }

    /// Pools of which the node reaches devices, and the number of nodes' selectors that were looked at: sorted, and those
    /// with devices that pods must wait for come last.
    pub(crate) fn near(&self, nodes: &NodeTable, node: NodeId) -> (Vec<NearPool<'_>>, usize) {
        let own = self.of_node.get(&nodes.names[node]).into_iter().flatten();
        let ids: BTreeSet<&PoolId> = own.chain(&self.of_many).collect();
        let mut steps = 0;
        let near = ids.into_iter();
        let near = near.filter_map(|id| self.near_pool(id, nodes, node, &mut steps));
        let mut near: Vec<NearPool<'_>> = near.collect();
        near.sort_by_key(|own| own.has_conditions);
        (near, steps)
    }

    fn near_pool(
        &self,
        id: &PoolId,
        nodes: &NodeTable,
        node: NodeId,
        steps: &mut usize,
    ) -> Option<NearPool<'_>> {
        let (id, generations) = self.pools.get_key_value(id)?;
        let mut reached = |pool: &Pool| {
            *steps = steps.saturating_add(pool.steps);
            let near = pool.slices.iter().filter(|slice| slice.is_near(nodes, node));
            near.fold((0, false, 0), |(count, any, wanted), slice| {
                // What the first says that the node reaches counts (upstream's `GatherPools`).
                let wanted = if count == 0 { slice.slice_count } else { wanted };
                (count + 1, any || slice.has_conditions, wanted)
            })
        };
        let newest = generations.values().rev().enumerate();
        let mut newest = newest.map(|(age, pool)| (age, pool, reached(pool)));
        let (age, pool, (reached, has_conditions, wanted)) = newest.find(|(.., found)| found.0 > 0)?;
        let is_all = |count: usize| i64::try_from(count) == Ok(wanted);
        let is_reached = is_all(reached);
        let is_incomplete = !is_reached && !is_all(pool.slices.len());
        let alone = pool.alone.get_key_value(&nodes.names[node]);
        let alone = alone.filter(|(_, own)| own.slices.len() == reached);
        (is_reached || age == 0).then_some(NearPool {
            id,
            pool: alone.map_or(pool, |(_, own)| own),
            alone: alone.map(|(node, _)| &**node),
            is_incomplete,
            has_conditions: has_conditions && !is_incomplete,
        })
    }
}

fn id_of(slice: &Slice) -> PoolId {
    (Arc::clone(&slice.driver), Arc::clone(&slice.pool))
}

impl Pool {
    fn of(slices: Vec<Arc<Slice>>) -> Self {
        let mut pool = Self::default();
        let mut names = HashSet::new();
        for slice in &slices {
            pool.steps += if slice.per_device { slice.devices.len() } else { 1 };
            for device in &slice.devices {
                pool.is_invalid |= !names.insert(&device.id.device);
            }
            for set in &slice.counters {
                let before = pool.counters.insert(set.name.clone(), set.counters.clone());
                pool.is_invalid |= before.is_some();
            }
        }
        let consumes_unknown = |device: &Device| {
            device.consumes.iter().any(|own| {
                let set = pool.counters.get(&own.counter_set);
                set.is_none_or(|set| own.counters.keys().any(|name| !set.contains_key(name)))
            })
        };
        let mut devices = slices.iter().flat_map(|slice| &slice.devices);
        pool.is_invalid |= devices.any(consumes_unknown);
        pool.slices = slices;
        pool
    }

    /// A slice of another node does not make those of a node invalid that are a whole pool by themselves: a node writes
    /// those with its own name (decision 0126). Upstream too compares names of devices among slices near the node alone.
    fn divided(mut self) -> Self {
        if !self.is_invalid {
            return self;
        }
        let mut by_node: BTreeMap<&str, Vec<Arc<Slice>>> = BTreeMap::new();
        for slice in &self.slices {
            if let Nodes::Named(node) = &slice.nodes {
                by_node.entry(node).or_default().push(Arc::clone(slice));
            }
        }
        let is_whole = |slices: &Vec<Arc<Slice>>| i64::try_from(slices.len()) == Ok(slices[0].slice_count);
        let whole = by_node.into_iter().filter(|(_, slices)| is_whole(slices));
        self.alone = whole
            .map(|(node, slices)| (node.into(), Self::of(slices)))
            .collect();
        self
    }
}

impl Nodes {
    pub(crate) fn reach(&self, nodes: &NodeTable, node: NodeId) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Named(name) => *name == nodes.names[node],
            Self::Selected(selector) => {
                node_selector_matches(selector, &nodes.names[node], &nodes.labels[node])
            }
        }
    }
}

impl Slice {
    /// Reports whether the node may reach devices of the slice.
    pub(crate) fn is_near(&self, nodes: &NodeTable, node: NodeId) -> bool {
        if self.per_device {
            return self.devices.iter().any(|own| own.nodes.reach(nodes, node));
        }
        self.nodes.reach(nodes, node)
    }
}
