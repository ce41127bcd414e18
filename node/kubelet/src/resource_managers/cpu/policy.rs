//! Decisions of the static policy: which processors a container has for itself. Upstream's `policy_static`. Pure.
//!
//! A container of a Guaranteed pod that requests whole processors has them alone; all other containers share the rest. Of
//! that the reserved processors are always a part, unless they are kept from pods altogether.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::assignment::take_packed;
use super::distributed::take_distributed;
use super::options::CpuOptions;
use super::set::CpuSet;
use super::topology::{CpuPlaces, CpuTopology, Level};
use crate::containers::resources::{Qos, qos, request};
use crate::pods::{ContainerKind, all_containers, spec, uid};
use crate::resource_managers::hints::{Hint, NodeMask, preferring};
use crate::resource_managers::rejection::AllocationError;

/// Processors of containers by uid of the pod, and container.
pub(crate) type Assignments = BTreeMap<String, BTreeMap<String, CpuSet>>;

/// Processors of all containers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CpuTable {
    /// Processors of all containers that have none of their own.
    pub(crate) shared: CpuSet,
    /// Processors of the others.
    pub(crate) assignments: Assignments,
}

impl CpuTable {
    /// Processors that a container has for itself.
    pub(crate) fn own(&self, uid: &str, container: &str) -> Option<&CpuSet> {
        self.assignments.get(uid)?.get(container)
    }

    /// All processors that containers have for themselves.
    pub(crate) fn exclusive(&self) -> CpuSet {
        let all = self.assignments.values().flat_map(BTreeMap::values);
        all.fold(CpuSet::default(), |all, own| all.union(own))
    }

    /// Takes everything away from a container; what others of its pod have as well stays theirs. Returns the processors that
    /// are shared again.
    pub(crate) fn remove(&mut self, uid: &str, container: &str) -> Option<CpuSet> {
        let pod = self.assignments.get_mut(uid)?;
        let own = pod.remove(container)?;
        let freed = pod.values().fold(own, |freed, other| freed.difference(other));
        if pod.is_empty() {
            self.assignments.remove(uid);
        }
        self.shared = self.shared.union(&freed);
        Some(freed)
    }

    /// Processors that a container may share: those of init containers that have ended by the time it starts.
    fn reusable(&self, pod: &Pod, container: &str) -> CpuSet {
        let before = all_containers(pod).take_while(|(_, own)| own.name != container);
        let mut free = CpuSet::default();
        for (kind, before) in before {
            let Some(own) = self.own(uid(pod), &before.name) else {
                continue;
            };
            free = match kind {
                ContainerKind::Init => free.union(own),
                _ => free.difference(own),
            };
        }
        free
    }
}

/// The static policy of a machine.
#[derive(Debug, Clone)]
pub(crate) struct CpuPolicy {
    pub(crate) topology: CpuTopology,
    /// Processors that no container has for itself.
    pub(crate) reserved: CpuSet,
    pub(crate) options: CpuOptions,
}

impl CpuPolicy {
    /// Reserves these processors, or so many of the lowest cores.
    ///
    /// # Errors
    /// Upstream's sentence: the machine has fewer, or the options do not fit it.
    pub(crate) fn new(
        topology: CpuTopology,
        count: usize,
        named: CpuSet,
        options: CpuOptions,
    ) -> Result<Self, String> {
        options.check_machine(&topology)?;
        let mut own = Self {
            topology,
            reserved: named,
            options,
        };
        if own.reserved.is_empty() {
            own.reserved = own.take(&own.topology.places.cpus(), count).unwrap_or_default();
        }
        match own.reserved.len() == count {
            true => Ok(own),
            false => Err(format!(
                "[cpumanager] unable to reserve the required amount of CPUs (size of {} did not equal {count})",
                own.reserved
            )),
        }
    }

    /// Takes up what was saved, or begins with all processors shared.
    ///
    /// # Errors
    /// Upstream's sentence: what was saved does not fit the machine or the reservation.
    pub(crate) fn begin(&self, table: &mut CpuTable) -> Result<(), String> {
        let (shared, reserved) = (&table.shared, &self.reserved);
        let strict = self.options.strict_reservation;
        let mut all = self.topology.places.cpus();
        if strict {
            all = all.difference(reserved);
        }
        if shared.is_empty() {
            if !table.assignments.is_empty() {
                return Err("default cpuset cannot be empty".to_owned());
            }
            table.shared = all;
            return Ok(());
        }
        let both = reserved.intersection(shared);
        if strict && !both.is_empty() {
            return Err(format!(
                "some of strictly reserved cpus: \"{both}\" are present in defaultCpuSet: \"{shared}\""
            ));
        }
        if !strict && both != *reserved {
            return Err(format!(
                "not all reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{shared}\""
            ));
        }
        for (pod, containers) in &table.assignments {
            let overlapping = containers
                .iter()
                .find(|(_, own)| !shared.intersection(own).is_empty());
            if let Some((container, own)) = overlapping {
                return Err(format!(
                    "pod: {pod}, container: {container} cpuset: \"{own}\" overlaps with default cpuset \"{shared}\""
                ));
            }
        }
        let known = shared.union(&table.exclusive());
        match known == all {
            true => Ok(()),
            false => Err(format!(
                "current set of available CPUs \"{all}\" doesn't match with CPUs in state \"{known}\""
            )),
        }
    }

    /// Processors that containers can have for themselves.
    pub(crate) fn allocatable(&self) -> CpuSet {
        self.topology.places.cpus().difference(&self.reserved)
    }

    /// Processors that are shared, and that can be given.
    pub(crate) fn available(&self, table: &CpuTable) -> CpuSet {
        table.shared.difference(&self.reserved)
    }

    /// Gives a container its processors, of these NUMA nodes first. Returns those that it was given, or `None` where it has
    /// them already, or is to have none.
    ///
    /// # Errors
    /// There are not enough, or the request is no multiple of a core.
    pub(crate) fn allocate(
        &self,
        table: &mut CpuTable,
        pod: &Pod,
        container: &Container,
        nodes: Option<NodeMask>,
    ) -> Result<Option<CpuSet>, AllocationError> {
        let count = exclusive_cpus(pod, container);
        if count == 0 || table.own(uid(pod), &container.name).is_some() {
            return Ok(None);
        }
        self.check_cores(table, count)?;
        let reusable = table.reusable(pod, &container.name);
        let free = self.available(table).union(&reusable);
        let given = self
            .choose(&free, count, nodes)
            .map_err(AllocationError::Unexpected)?;
        table.shared = table.shared.difference(&given);
        let own = table.assignments.entry(uid(pod).to_owned()).or_default();
        own.insert(container.name.clone(), given.clone());
        Ok(Some(given))
    }

    fn choose(&self, free: &CpuSet, count: usize, nodes: Option<NodeMask>) -> Result<CpuSet, String> {
        let near = nodes.map_or_else(CpuSet::default, |nodes| self.near(free, nodes));
        let first = self.take(&near, count.min(near.len()))?;
        let rest = self.take(&free.difference(&first), count - first.len())?;
        Ok(first.union(&rest))
    }

    fn near(&self, free: &CpuSet, nodes: NodeMask) -> CpuSet {
        let places = self.topology.places.only(free);
        let parts = nodes.nodes().map(|node| places.cpus_in(Level::Node, node));
        parts.fold(CpuSet::default(), |all, own| all.union(&own))
    }

    fn take(&self, free: &CpuSet, count: usize) -> Result<CpuSet, String> {
        if !self.options.distribute_across_nodes {
            return take_packed(&self.topology, free, count, self.options.prefer_cache);
        }
        let group = match self.options.full_cores_only {
            true => self.topology.cpus_per_core(),
            false => 1,
        };
        take_distributed(&self.topology, free, count, group)
    }

    /// Refuses what would leave a core to two containers, where none may be shared.
    fn check_cores(&self, table: &CpuTable, requested: usize) -> Result<(), AllocationError> {
        if !self.options.full_cores_only {
            return Ok(());
        }
        let per_core = self.topology.cpus_per_core().max(1);
        if !requested.is_multiple_of(per_core) {
            return Err(AllocationError::SmtAlignment(format!(
                "SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}"
            )));
        }
        let reserved = self.topology.whole_cores(&self.reserved);
        let available = table.shared.difference(&reserved).len();
        match requested > available {
            true => Err(AllocationError::SmtAlignment(format!(
                "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, requested CPUs = \
                 {requested}, CPUs per core = {per_core}"
            ))),
            false => Ok(()),
        }
    }

    /// Possible places of a container's processors; `None` where any will do.
    pub(crate) fn container_hints(
        &self,
        table: &CpuTable,
        pod: &Pod,
        container: &Container,
    ) -> Option<Vec<Hint>> {
        let count = exclusive_cpus(pod, container);
        if count == 0 {
            return None;
        }
        Some(match table.own(uid(pod), &container.name) {
            Some(own) if own.len() != count => Vec::new(),
            Some(own) => self.hints(own, &CpuSet::default(), count),
            None => {
                let reusable = table.reusable(pod, &container.name);
                self.hints(&self.available(table), &reusable, count)
            }
        })
    }

    /// Possible places of all processors of a pod; `None` where any will do.
    pub(crate) fn pod_hints(&self, table: &CpuTable, pod: &Pod) -> Option<Vec<Hint>> {
        let count = exclusive_cpus_of_pod(pod);
        if count == 0 {
            return None;
        }
        let mut assigned = CpuSet::default();
        for (_, container) in all_containers(pod) {
            match table.own(uid(pod), &container.name) {
                Some(own) if own.len() != exclusive_cpus(pod, container) => return Some(Vec::new()),
                Some(own) => assigned = assigned.union(own),
                None => {}
            }
        }
        Some(match assigned.len() == count {
            true => self.hints(&assigned, &CpuSet::default(), count),
            false => self.hints(&self.available(table), &assigned, count),
        })
    }

    /// Sets of NUMA nodes that have so many processors: all that may be reused, and enough of the available ones.
    pub(crate) fn hints(&self, available: &CpuSet, reusable: &CpuSet, count: usize) -> Vec<Hint> {
        let places = &self.topology.places;
        let nodes: Vec<u32> = places.parts(Level::Node).into_iter().collect();
        let (available, reused) = (places.only(available), places.only(reusable));
        let count_in = |of: &CpuPlaces, mask: NodeMask| -> usize {
            mask.nodes().map(|node| of.count_in(Level::Node, node)).sum()
        };
        let mut fewest = nodes.len();
        let mut masks = Vec::new();
        for mask in NodeMask::all_of(&nodes) {
            if count_in(places, mask) >= count {
                fewest = fewest.min(mask.count());
            }
            let has_reused = count_in(&reused, mask) == reused.len();
            if has_reused && reused.len() + count_in(&available, mask) >= count {
                masks.push(mask);
            }
        }
        preferring(masks, fewest)
    }
}

/// Number of processors that a container is to have for itself.
pub(crate) fn exclusive_cpus(pod: &Pod, container: &Container) -> usize {
    // Upstream's gate for resources of whole pods (`PodLevelResourceManagers`) is off.
    if qos(pod) != Qos::Guaranteed || has_pod_resources(pod) {
        return 0;
    }
    let millis = request(container, "cpu").map_or(0, |request| request.millis());
    match millis % 1000 {
        0 => usize::try_from(millis / 1000).unwrap_or(0),
        _ => 0,
    }
}

/// Number of processors that the containers of a pod have for themselves at once.
fn exclusive_cpus_of_pod(pod: &Pod) -> usize {
    let (mut sidecars, mut inits, mut regular) = (0_usize, 0, 0_usize);
    for (kind, container) in all_containers(pod) {
        let own = exclusive_cpus(pod, container);
        match kind {
            ContainerKind::Sidecar => sidecars = sidecars.saturating_add(own),
            ContainerKind::Init => inits = inits.max(sidecars.saturating_add(own)),
            _ => regular = regular.saturating_add(own),
        }
    }
    inits.max(regular.saturating_add(sidecars))
}

/// Reports whether a pod has resources as a whole.
pub(crate) fn has_pod_resources(pod: &Pod) -> bool {
    let whole = spec(pod).resources.as_ref();
    let lists = whole.map(|whole| [whole.requests.as_ref(), whole.limits.as_ref()]);
    lists
        .into_iter()
        .flatten()
        .flatten()
        .flat_map(BTreeMap::keys)
        .any(|name| matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-"))
}
