//! Choice of processors for a container: upstream's `cpu_assignment`. Pure.
//!
//! Whole NUMA nodes and sockets first, then whole caches where that is wanted, whole cores, and single processors; of each the
//! part with the fewest free processors, so that large parts stay whole. [`distributed`](super::distributed) spreads evenly.

use super::set::CpuSet;
use super::topology::{CpuPlaces, CpuTopology, Level};

/// Chooses so many of the free processors; `by_cache`, of as few last-level caches as possible.
///
/// # Errors
/// Upstream's sentence: there are fewer.
pub(crate) fn take_packed(
    topology: &CpuTopology,
    free: &CpuSet,
    count: usize,
    by_cache: bool,
) -> Result<CpuSet, String> {
    let mut choice = Choice::new(topology, free, count);
    if choice.needed > choice.free.len() {
        return Err(too_few(count, free.len()));
    }
    let (outer, inner) = choice.outer_levels();
    choice.take_whole(outer);
    choice.take_whole(inner);
    if by_cache {
        choice.take_caches();
    }
    choice.take_whole(Level::Core);
    choice.take_single();
    match choice.needed {
        0 => Ok(choice.taken),
        _ => Err("failed to allocate cpus".to_owned()),
    }
}

pub(super) fn too_few(count: usize, free: usize) -> String {
    format!("not enough cpus available to satisfy request: requested={count}, available={free}")
}

/// A choice that goes on until nothing more is needed.
pub(super) struct Choice<'a> {
    topology: &'a CpuTopology,
    /// Processors that are free yet.
    pub(super) free: CpuPlaces,
    /// Number of processors that are needed yet.
    pub(super) needed: usize,
    /// Processors that were chosen.
    pub(super) taken: CpuSet,
}

impl<'a> Choice<'a> {
    pub(super) fn new(topology: &'a CpuTopology, free: &CpuSet, count: usize) -> Self {
        Self {
            topology,
            free: topology.places.only(free),
            needed: count,
            taken: CpuSet::default(),
        }
    }

    /// NUMA nodes and sockets, the larger ones first.
    fn outer_levels(&self) -> (Level, Level) {
        match self.topology.sockets >= self.topology.nodes {
            true => (Level::Node, Level::Socket),
            false => (Level::Socket, Level::Node),
        }
    }

    /// Free parts of a level, in the order of the larger parts that they are in, and then those with the fewest free processors.
    pub(super) fn ordered(&self, level: Level) -> Vec<u32> {
        let (outer, inner) = self.outer_levels();
        let around = match level {
            _ if level == outer => return self.fewest_first(level, self.free.parts(level)),
            Level::Cache => Level::Node,
            Level::Core => inner,
            Level::Node | Level::Socket => outer,
        };
        let mut ordered: Vec<u32> = Vec::new();
        for part in self.ordered(around) {
            let within = self.free.parts_within(level, around, part);
            let new = self.fewest_first(level, within);
            ordered.extend(
                new.into_iter()
                    .filter(|part| !ordered.contains(part))
                    .collect::<Vec<_>>(),
            );
        }
        ordered
    }

    fn fewest_first(&self, level: Level, parts: impl IntoIterator<Item = u32>) -> Vec<u32> {
        let mut parts: Vec<(usize, u32)> = parts
            .into_iter()
            .map(|part| (self.free.count_in(level, part), part))
            .collect();
        parts.sort_unstable();
        parts.into_iter().map(|(_, part)| part).collect()
    }

    pub(super) fn take(&mut self, cpus: &CpuSet) {
        self.free.remove(cpus);
        self.needed = self.needed.saturating_sub(cpus.len());
        self.taken = self.taken.union(cpus);
    }

    /// Takes parts that are free as a whole, as long as at least so much is needed. Upstream compares sockets and cores with
    /// the mean size, by which a machine of uneven cores would give away what others have.
    fn take_whole(&mut self, level: Level) {
        for part in self.ordered(level) {
            let whole = self.topology.places.cpus_in(level, part);
            let is_free = self.free.count_in(level, part) == whole.len();
            if is_free && self.needed > 0 && self.needed >= whole.len() {
                self.take(&whole);
            }
        }
    }

    fn take_caches(&mut self) {
        let size = self.topology.cpus_per_cache();
        for cache in self.ordered(Level::Cache) {
            if self.needed >= size {
                self.take_whole(Level::Cache);
            }
            if self.needed == 0 {
                return;
            }
            self.take_within(cache);
        }
    }

    /// Takes all that is needed of one cache, core by core, where it has as much.
    fn take_within(&mut self, cache: u32) {
        let per_core = self.topology.cpus_per_core().max(1);
        let cores = self.free.parts_within(Level::Core, Level::Cache, cache);
        let cores = cores.into_iter().take(self.needed.div_ceil(per_core));
        let of_cores = cores.map(|core| self.free.cpus_in(Level::Core, core));
        let mut cpus = of_cores.fold(CpuSet::default(), |all, own| all.union(&own));
        let is_odd = !self.needed.is_multiple_of(2) && per_core > 1;
        if is_odd && cpus.len() > self.needed {
            cpus = cpus.iter().take(cpus.len() - 1).collect();
        }
        if cpus.len() == self.needed {
            self.take(&cpus);
        }
    }

    fn take_single(&mut self) {
        let cores = self.ordered(Level::Core).into_iter();
        let cpus: Vec<u32> = cores
            .flat_map(|core| self.free.cpus_in(Level::Core, core).iter().collect::<Vec<_>>())
            .collect();
        for cpu in cpus.into_iter().take(self.needed) {
            self.take(&CpuSet::from_iter([cpu]));
        }
    }
}
