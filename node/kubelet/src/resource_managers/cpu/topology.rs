//! Places of the machine's processors: NUMA nodes, sockets, cores and caches; upstream's `topology`. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::set::CpuSet;

/// Place of a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuPlace {
    /// Its NUMA node.
    pub(crate) node: u32,
    /// Its socket.
    pub(crate) socket: u32,
    /// Its core: the lowest number of the processors on it.
    pub(crate) core: u32,
    /// The last-level cache that it shares.
    pub(crate) cache: u32,
}

/// Part of the machine that has processors in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Node,
    Socket,
    Core,
    Cache,
}

impl CpuPlace {
    /// Number of the part of this level in which it is.
    pub(crate) fn at(&self, level: Level) -> u32 {
        match level {
            Level::Node => self.node,
            Level::Socket => self.socket,
            Level::Core => self.core,
            Level::Cache => self.cache,
        }
    }
}

/// Processors with their places: all of the machine's, or those that are free.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CpuPlaces(BTreeMap<u32, CpuPlace>);

impl CpuPlaces {
    pub(crate) fn cpus(&self) -> CpuSet {
        self.0.keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[cfg(test)]
    pub(crate) fn get(&self, cpu: u32) -> Option<&CpuPlace> {
        self.0.get(&cpu)
    }

    /// Only the processors of a set.
    pub(crate) fn only(&self, cpus: &CpuSet) -> Self {
        let kept = self.0.iter().filter(|(cpu, _)| cpus.contains(**cpu));
        Self(kept.map(|(cpu, place)| (*cpu, *place)).collect())
    }

    pub(crate) fn remove(&mut self, cpus: &CpuSet) {
        self.0.retain(|cpu, _| !cpus.contains(*cpu));
    }

    /// Numbers of the parts of a level that have processors here, lowest first.
    pub(crate) fn parts(&self, level: Level) -> BTreeSet<u32> {
        self.0.values().map(|place| place.at(level)).collect()
    }

    /// Numbers of the parts of a level that have processors in a part of another.
    pub(crate) fn parts_within(&self, level: Level, outer: Level, part: u32) -> BTreeSet<u32> {
        let within = self.0.values().filter(|place| place.at(outer) == part);
        within.map(|place| place.at(level)).collect()
    }

    /// The processors in a part.
    pub(crate) fn cpus_in(&self, level: Level, part: u32) -> CpuSet {
        let within = self.0.iter().filter(|(_, place)| place.at(level) == part);
        within.map(|(cpu, _)| *cpu).collect()
    }

    /// Number of processors in a part.
    pub(crate) fn count_in(&self, level: Level, part: u32) -> usize {
        self.0.values().filter(|place| place.at(level) == part).count()
    }
}

/// All processors of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CpuTopology {
    /// The processors.
    pub(crate) places: CpuPlaces,
    /// Numbers of the parts.
    pub(crate) nodes: usize,
    pub(crate) sockets: usize,
    pub(crate) cores: usize,
    pub(crate) caches: usize,
}

impl CpuTopology {
    /// Counts the parts of these processors.
    pub(crate) fn new(places: BTreeMap<u32, CpuPlace>) -> Self {
        let places = CpuPlaces(places);
        let count = |level| places.parts(level).len();
        Self {
            nodes: count(Level::Node),
            sockets: count(Level::Socket),
            cores: count(Level::Core),
            caches: count(Level::Cache),
            places,
        }
    }

    pub(crate) fn cpus_per_core(&self) -> usize {
        self.places.len().checked_div(self.cores).unwrap_or(0)
    }

    pub(crate) fn cpus_per_cache(&self) -> usize {
        self.places.len().checked_div(self.caches).unwrap_or(0)
    }

    /// The cores of these processors, with all processors on them.
    pub(crate) fn whole_cores(&self, cpus: &CpuSet) -> CpuSet {
        let cores = self.places.only(cpus).parts(Level::Core);
        let on_them = cores
            .into_iter()
            .map(|core| self.places.cpus_in(Level::Core, core));
        on_them.fold(CpuSet::default(), |all, own| all.union(&own))
    }

    /// Reports whether processors share one last-level cache.
    pub(crate) fn share_cache(&self, cpus: &CpuSet) -> bool {
        let places = self.places.only(cpus);
        cpus.len() <= 1 || (places.len() == cpus.len() && places.parts(Level::Cache).len() == 1)
    }
}
