//! Decisions of the static policy: of which NUMA nodes a container has its memory. Upstream's `policy_static`. Pure.
//!
//! A container of a Guaranteed pod has its memory of as few NUMA nodes as possible; nodes from which memory is given together
//! form a group, and none of them gives any alone or with others.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use machinery_meta::Quantity;

use super::table::{Block, Machine, MemoryTable, amounts, take};
use crate::containers::resources::{Qos, qos};
use crate::pods::{ContainerKind, all_containers, uid};
use crate::resource_managers::cpu::policy::has_pod_resources;
use crate::resource_managers::hints::{Hint, Hints, NodeMask, preferring};

/// Memory in its regular form.
pub(crate) const MEMORY: &str = "memory";

/// Bytes by kind.
pub(crate) type Bytes = BTreeMap<String, u64>;

/// The static policy of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryPolicy {
    /// The machine with nothing given away.
    pub(crate) empty: Machine,
}

impl MemoryPolicy {
    /// Takes up what was saved, or begins with nothing given away.
    ///
    /// # Errors
    /// Upstream's sentence: what was saved does not fit the machine or the reservation.
    pub(crate) fn begin(&self, table: &mut MemoryTable) -> Result<(), String> {
        if table.machine.is_empty() {
            if !table.blocks.is_empty() {
                return Err(
                    "[memorymanager] machine state can not be empty when it has memory assignments"
                        .to_owned(),
                );
            }
            table.machine = self.empty.clone();
            return Ok(());
        }
        let mut expected = self.empty.clone();
        for (pod, containers) in &table.blocks {
            for (container, blocks) in containers {
                for block in blocks {
                    check(&expected, block).map_err(|why| {
                        format!("[memorymanager] (pod: {pod}, container: {container}) the memory assignment uses {why}")
                    })?;
                    take(&mut expected, &block.nodes, &block.kind, block.size);
                }
            }
        }
        match are_equal(&table.machine, &expected) {
            true => Ok(()),
            false => {
                Err("[memorymanager] the expected machine state is different from the real one".to_owned())
            }
        }
    }

    /// Gives a container its memory, of these NUMA nodes and no fewer than it needs. Reports whether it was given some.
    ///
    /// # Errors
    /// Upstream's sentence: no nodes have it.
    pub(crate) fn allocate(
        &self,
        table: &mut MemoryTable,
        pod: &Pod,
        container: &Container,
        hint: Hint,
    ) -> Result<bool, String> {
        let requested = requested(pod, container)?;
        if requested.is_empty() {
            return Ok(false);
        }
        if let Some(blocks) = table.own(uid(pod), &container.name).cloned() {
            reuse(table, pod, container, &blocks);
            return Ok(false);
        }
        let nodes = find(table, pod, &requested, hint)?;
        let numbers: Vec<u32> = nodes.nodes().collect();
        let mut blocks = Vec::new();
        for (kind, size) in requested {
            let needed = size.saturating_sub(table.reusable(uid(pod), nodes, &kind));
            take(&mut table.machine, &numbers, &kind, needed);
            blocks.push(Block {
                nodes: numbers.clone(),
                kind,
                size,
            });
        }
        reuse(table, pod, container, &blocks);
        let own = table.blocks.entry(uid(pod).to_owned()).or_default();
        own.insert(container.name.clone(), blocks.clone());
        shrink_inits(table, pod, container, &blocks);
        Ok(true)
    }

    /// Possible places of a container's memory.
    pub(crate) fn container_hints(&self, table: &MemoryTable, pod: &Pod, container: &Container) -> Hints {
        let requested = requested(pod, container).unwrap_or_default();
        match table.own(uid(pod), &container.name) {
            _ if requested.is_empty() => Hints::new(),
            Some(blocks) => again(blocks, &requested),
            None => by_kind(&requested, &hints(table, pod, &requested)),
        }
    }

    /// Possible places of all memory of a pod.
    pub(crate) fn pod_hints(&self, table: &MemoryTable, pod: &Pod) -> Hints {
        let requested = requested_of_pod(pod).unwrap_or_default();
        let mut containers = all_containers(pod);
        let own = containers.find_map(|(_, container)| table.own(uid(pod), &container.name));
        match own {
            _ if requested.is_empty() => Hints::new(),
            Some(blocks) => again(blocks, &requested),
            None => by_kind(&requested, &hints(table, pod, &requested)),
        }
    }
}

/// Memory of a container that is to have it for itself, by kind.
///
/// # Errors
/// Upstream's sentence: an amount is no whole number.
pub(crate) fn requested(pod: &Pod, container: &Container) -> Result<Bytes, String> {
    // Upstream's gate for resources of whole pods (`PodLevelResourceManagers`) is off.
    if qos(pod) != Qos::Guaranteed || has_pod_resources(pod) {
        return Ok(Bytes::new());
    }
    let requests = container.resources.as_ref().and_then(|own| own.requests.as_ref());
    let memory = requests.into_iter().flatten().filter(|(kind, _)| is_memory(kind));
    let amounts = memory.map(|(kind, quantity)| {
        let whole = whole(&quantity.0).ok_or("[memorymanager] failed to represent quantity as int64")?;
        Ok((kind.clone(), whole))
    });
    amounts.collect()
}

/// Reports whether a resource is memory of some kind.
pub(crate) fn is_memory(resource: &str) -> bool {
    resource == MEMORY || resource.starts_with("hugepages-")
}

fn whole(text: &str) -> Option<u64> {
    let quantity: Quantity = text.parse().ok()?;
    let units = quantity.units();
    let is_whole = units
        .checked_mul(1000)
        .is_none_or(|millis| millis == quantity.millis());
    u64::try_from(units).ok().filter(|_| is_whole)
}

/// Memory that the containers of a pod have at once.
fn requested_of_pod(pod: &Pod) -> Result<Bytes, String> {
    let (mut inits, mut sidecars, mut regular) = (Bytes::new(), Bytes::new(), Bytes::new());
    for (kind, container) in all_containers(pod) {
        for (name, bytes) in requested(pod, container)? {
            match kind {
                ContainerKind::Sidecar => *sidecars.entry(name).or_default() += bytes,
                ContainerKind::Init => {
                    let beside = sidecars.get(&name).copied().unwrap_or(0);
                    let most = inits.entry(name).or_default();
                    *most = (*most).max(bytes + beside);
                }
                _ => *regular.entry(name).or_default() += bytes,
            }
        }
    }
    let of = |from: &Bytes, name: &str| from.get(name).copied().unwrap_or(0);
    let all = regular.iter().map(|(name, bytes)| {
        let together = bytes + of(&sidecars, name);
        (name.clone(), together.max(of(&inits, name)))
    });
    Ok(all.collect())
}

/// NUMA nodes that have the memory: those of the hint, or more of them.
fn find(table: &MemoryTable, pod: &Pod, requested: &Bytes, hint: Hint) -> Result<NodeMask, String> {
    let mut best = hint;
    if hint.nodes.is_none() {
        let found = hints(table, pod, requested);
        best = narrowest(found.into_iter()).ok_or(
            "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
        )?;
        if hint.preferred && !best.preferred {
            return Err("[memorymanager] failed to find the default preferred hint".to_owned());
        }
    }
    let nodes = best.nodes.unwrap_or_default();
    if !is_enough(&table.machine, nodes, requested) {
        let found = hints(table, pod, requested).into_iter();
        let larger = found.filter(|own| own.nodes.is_some_and(|own| own.and(nodes) == nodes));
        let extended = narrowest(larger)
            .ok_or("[memorymanager] failed to find NUMA nodes to extend the current topology hint")?;
        if best.preferred && !extended.preferred {
            return Err("[memorymanager] failed to find the extended preferred hint".to_owned());
        }
        best = extended;
    }
    let nodes = best.nodes.unwrap_or_default();
    match is_violating(&table.machine, nodes) {
        true => Err("[memorymanager] preferred hint violates NUMA node allocation".to_owned()),
        false => Ok(nodes),
    }
}

/// The best of them: a preferred one, with as few nodes as possible.
fn narrowest(hints: impl Iterator<Item = Hint>) -> Option<Hint> {
    hints.reduce(|best, hint| {
        let (own, other) = (best.nodes.unwrap_or_default(), hint.nodes.unwrap_or_default());
        let is_better = match hint.preferred == best.preferred {
            true => other.is_narrower(own),
            false => hint.preferred,
        };
        if is_better { hint } else { best }
    })
}

/// Sets of NUMA nodes that have so much memory free, and in which no group is broken.
fn hints(table: &MemoryTable, pod: &Pod, requested: &Bytes) -> Vec<Hint> {
    let machine = &table.machine;
    let numbers: Vec<u32> = machine.keys().copied().collect();
    let sum = |mask: NodeMask, kind: &str, of: fn(super::table::Amounts) -> u64| -> u64 {
        mask.nodes().map(|node| of(amounts(machine, node, kind))).sum()
    };
    let mut fewest = numbers.len();
    let mut masks = Vec::new();
    for mask in NodeMask::all_of(&numbers) {
        let mut kinds = requested.iter();
        if kinds.any(|(kind, bytes)| sum(mask, kind, |own| own.allocatable) < *bytes) {
            continue;
        }
        fewest = fewest.min(mask.count());
        let is_short = |(kind, bytes): (&String, &u64)| {
            let reusable = table.reusable(uid(pod), mask, kind);
            sum(mask, kind, |own| own.free).saturating_add(reusable) < *bytes
        };
        if !breaks_group(machine, mask) && !requested.iter().any(is_short) {
            masks.push(mask);
        }
    }
    preferring(masks, fewest)
}

/// Reports whether nodes are used with others, or one of several alone.
fn breaks_group(machine: &Machine, mask: NodeMask) -> bool {
    let is_single = mask.count() == 1;
    mask.nodes()
        .filter_map(|node| machine.get(&node))
        .any(|node| match is_single {
            true => node.cells.len() > 1,
            false => {
                let cells: NodeMask = node.cells.iter().copied().collect();
                node.number_of_assignments > 0 && (node.cells.len() == 1 || cells != mask)
            }
        })
}

/// Upstream's `isAffinityViolatingNUMAAllocations`: a single node is taken even if it is in a group.
fn is_violating(machine: &Machine, mask: NodeMask) -> bool {
    mask.count() > 1 && breaks_group(machine, mask)
}

fn is_enough(machine: &Machine, nodes: NodeMask, requested: &Bytes) -> bool {
    requested.iter().all(|(kind, bytes)| {
        let free = nodes.nodes().map(|node| amounts(machine, node, kind).free);
        free.sum::<u64>() >= *bytes
    })
}

/// All kinds have the same hints, and none where there are none.
fn by_kind(requested: &Bytes, hints: &[Hint]) -> Hints {
    match hints.is_empty() {
        true => Hints::new(),
        false => requested
            .keys()
            .map(|kind| (kind.clone(), Some(hints.to_vec())))
            .collect(),
    }
}

/// The places that a container has; none where it has other amounts than it requests.
fn again(blocks: &[Block], requested: &Bytes) -> Hints {
    let is_as_before = |block: &Block| requested.get(&block.kind) == Some(&block.size);
    if blocks.len() != requested.len() || !blocks.iter().all(is_as_before) {
        return Hints::new();
    }
    let hint = |block: &Block| Hint {
        nodes: Some(block.mask()),
        preferred: true,
    };
    blocks
        .iter()
        .map(|block| (block.kind.clone(), Some(vec![hint(block)])))
        .collect()
}

/// Remembers what later containers may use again, or what this one does.
fn reuse(table: &mut MemoryTable, pod: &Pod, container: &Container, blocks: &[Block]) {
    let mut containers = all_containers(pod);
    let is_init = containers.any(|(kind, own)| own.name == container.name && kind == ContainerKind::Init);
    let own = match is_init {
        true => table.reusable.entry(uid(pod).to_owned()).or_default(),
        false => match table.reusable.get_mut(uid(pod)) {
            Some(own) => own,
            None => return,
        },
    };
    for block in blocks {
        if is_init {
            let kinds = own.entry(block.mask()).or_default();
            let most = kinds.entry(block.kind.clone()).or_default();
            *most = (*most).max(block.size);
        } else if let Some(left) = own
            .get_mut(&block.mask())
            .and_then(|own| own.get_mut(&block.kind))
        {
            *left = left.saturating_sub(block.size);
        }
    }
}

/// Takes memory that a container uses again off the blocks of its init containers.
fn shrink_inits(table: &mut MemoryTable, pod: &Pod, container: &Container, blocks: &[Block]) {
    let Some(own) = table.blocks.get_mut(uid(pod)) else {
        return;
    };
    let before = all_containers(pod).take_while(|(_, own)| own.name != container.name);
    let inits: Vec<&str> = before
        .filter(|(kind, _)| *kind == ContainerKind::Init)
        .map(|(_, own)| own.name.as_str())
        .collect();
    for block in blocks {
        let mut left = block.size;
        for name in &inits {
            let of_init = own.get_mut(*name).into_iter().flatten();
            let same = of_init.filter(|other| other.kind == block.kind && other.mask() == block.mask());
            for other in same {
                let used = other.size.min(left);
                other.size -= used;
                left -= used;
            }
        }
    }
}

fn check(machine: &Machine, block: &Block) -> Result<(), &'static str> {
    for node in &block.nodes {
        let node = machine.get(node).ok_or("the NUMA that does not exist")?;
        if !node.memory_map.contains_key(&block.kind) {
            return Err("memory resource that does not exist");
        }
    }
    Ok(())
}

/// Upstream's `areMachineStatesEqual`: of a group of nodes only the sums count.
fn are_equal(one: &Machine, two: &Machine) -> bool {
    let cells = |own: &[u32]| -> NodeMask { own.iter().copied().collect() };
    let group = |of: &Machine, numbers: &[u32], kind: &str| -> (u64, u64) {
        let all = numbers.iter().map(|node| amounts(of, *node, kind));
        all.fold((0, 0), |(free, reserved), own| {
            (free + own.free, reserved + own.reserved)
        })
    };
    let fixed = |own: super::table::Amounts| (own.total, own.system_reserved, own.allocatable);
    one.len() == two.len()
        && one.iter().all(|(number, own)| {
            let Some(other) = two.get(number) else {
                return false;
            };
            own.number_of_assignments == other.number_of_assignments
                && cells(&own.cells) == cells(&other.cells)
                && own.memory_map.len() == other.memory_map.len()
                && own.memory_map.iter().all(|(kind, amounts)| {
                    let found = other.memory_map.get(kind);
                    found.is_some_and(|found| fixed(*found) == fixed(*amounts))
                        && group(one, &own.cells, kind) == group(two, &own.cells, kind)
                })
        })
}
