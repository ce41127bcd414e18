//! Places of the machine's processors, as the kernel shows them below `/sys/devices/system`. Every file is read with a bound.

use std::collections::BTreeMap;
use std::path::Path;

use super::cpu::set::CpuSet;
use super::cpu::topology::{CpuPlace, CpuTopology};
use super::memory::reservation::NodeCapacity;
use super::topology::merging::Nodes;
use crate::containers::huge_pages;

/// Folder of the kernel's files.
pub(crate) const SYSTEM: &str = "/sys/devices/system";
/// Bytes of a file: a list of processors of the largest machine is shorter.
const BYTES_MAX: u64 = 64 << 10;
/// Caches of a processor, by index.
const CACHES_MAX: u32 = 16;
/// NUMA nodes of a machine whose memory is given: all sets of them are looked at, for each pod.
pub(crate) const MEMORY_NODES_MAX: usize = 12;
/// Level of the caches that several cores share, which upstream calls uncore caches.
const SHARED_CACHE_LEVEL: &str = "3";

/// Reads the topology of the processors that are online.
///
/// # Errors
/// The kernel does not show them.
pub(crate) fn topology(system: &Path) -> Result<CpuTopology, String> {
    let online = list(&system.join("cpu/online"))?;
    if online.is_empty() {
        return Err("could not detect number of cpus".to_owned());
    }
    let mut nodes: BTreeMap<u32, u32> = BTreeMap::new();
    for node in numa_nodes(system)?.iter() {
        let cpus = list(&system.join(format!("node/node{node}/cpulist")))?;
        nodes.extend(cpus.iter().map(|cpu| (cpu, node)));
    }
    let places: Result<BTreeMap<u32, CpuPlace>, String> = online
        .iter()
        .map(|cpu| Ok((cpu, place(system, cpu, nodes.get(&cpu).copied().unwrap_or(0))?)))
        .collect();
    Ok(CpuTopology::new(places?))
}

/// NUMA nodes that are online; a kernel without NUMA has one.
pub(crate) fn numa_nodes(system: &Path) -> Result<CpuSet, String> {
    let file = system.join("node/online");
    match file.try_exists().unwrap_or(false) {
        true => list(&file),
        false => Ok(CpuSet::from_iter([0])),
    }
}

/// Reads the NUMA nodes with their distances.
///
/// # Errors
/// The kernel does not show them.
pub(crate) fn nodes(system: &Path, prefer_closest: bool) -> Result<Nodes, String> {
    let numbers: Vec<u32> = numa_nodes(system)?.iter().collect();
    let mut distances = BTreeMap::new();
    for node in numbers.iter().filter(|_| prefer_closest) {
        let text = text(&system.join(format!("node/node{node}/distance")))?;
        let own = text.split_ascii_whitespace().map(str::parse);
        let own: Result<Vec<u64>, _> = own.collect();
        let own = own.map_err(|error| format!("reading the distances of NUMA node {node}: {error}"))?;
        // The kernel lists those that are online, in order.
        let mut by_number = vec![0; numbers.last().map_or(0, |last| *last as usize + 1)];
        for (other, distance) in numbers.iter().zip(own) {
            by_number[*other as usize] = distance;
        }
        distances.insert(*node, by_number);
    }
    Ok(Nodes {
        numbers,
        distances,
        prefer_closest,
    })
}

/// Reads the memory of the NUMA nodes, and the huge pages of each.
///
/// # Errors
/// The kernel does not show them.
pub(crate) fn capacities(system: &Path) -> Result<BTreeMap<u32, NodeCapacity>, String> {
    let nodes = numa_nodes(system)?;
    nodes
        .iter()
        .map(|node| Ok((node, capacity(&system.join(format!("node/node{node}")))?)))
        .collect()
}

fn capacity(folder: &Path) -> Result<NodeCapacity, String> {
    let file = folder.join("meminfo");
    let memory = match file.try_exists().unwrap_or(false) {
        true => total_memory(&text(&file)?)
            .ok_or_else(|| format!("reading {}: it has no MemTotal", file.display()))?,
        // A kernel without NUMA.
        false => node_sys::machine::memory_bytes().1,
    };
    let pages = node_sys::machine::huge_pages(&folder.join("hugepages"));
    let huge_pages = pages
        .into_iter()
        .map(|(size, count)| (huge_pages::resource(size), size.saturating_mul(count)))
        .collect();
    Ok(NodeCapacity { memory, huge_pages })
}

/// Reads `Node 0 MemTotal: 1024 kB`.
fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.contains("MemTotal:"))?;
    let kilobytes: u64 = line.split_ascii_whitespace().rev().nth(1)?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

fn place(system: &Path, cpu: u32, node: u32) -> Result<CpuPlace, String> {
    let folder = system.join(format!("cpu/cpu{cpu}"));
    let socket = text(&folder.join("topology/physical_package_id"))?;
    // Where the kernel does not know it says -1.
    let socket = socket.parse().unwrap_or(0);
    let siblings = list(&folder.join("topology/thread_siblings_list"))?;
    Ok(CpuPlace {
        node,
        socket,
        core: siblings.iter().next().unwrap_or(cpu),
        cache: cache(&folder).unwrap_or(socket),
    })
}

/// The shared cache of a processor; the lowest processor on it has its number where the kernel has none.
fn cache(folder: &Path) -> Option<u32> {
    (0..CACHES_MAX).find_map(|index| {
        let folder = folder.join(format!("cache/index{index}"));
        let level = text(&folder.join("level")).ok()?;
        if level != SHARED_CACHE_LEVEL {
            return None;
        }
        let id = text(&folder.join("id")).ok().and_then(|id| id.parse().ok());
        id.or_else(|| list(&folder.join("shared_cpu_list")).ok()?.iter().next())
    })
}

fn list(file: &Path) -> Result<CpuSet, String> {
    CpuSet::parse(&text(file)?).map_err(|error| format!("reading {}: {error}", file.display()))
}

pub(crate) fn text(file: &Path) -> Result<String, String> {
    let bytes = node_sys::fs::read_regular(file, BYTES_MAX)
        .map_err(|error| format!("reading {}: {error}", file.display()))?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of one core with two threads each; the kernel does not know the cache of the second.
    #[test]
    fn topology_is_read_of_the_kernels_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("cpu/online", "0-3\n");
        write("node/online", "0-1\n");
        write("node/node0/cpulist", "0,2\n");
        write("node/node1/cpulist", "1,3\n");
        for (cpu, socket, siblings) in [(0, "0", "0,2"), (2, "0", "0,2"), (1, "1", "1,3"), (3, "1", "1,3")] {
            write(&format!("cpu/cpu{cpu}/topology/physical_package_id"), socket);
            write(&format!("cpu/cpu{cpu}/topology/thread_siblings_list"), siblings);
        }
        write("cpu/cpu0/cache/index0/level", "1\n");
        for cpu in [0, 2] {
            write(&format!("cpu/cpu{cpu}/cache/index3/level"), "3\n");
            write(&format!("cpu/cpu{cpu}/cache/index3/id"), "7\n");
        }
        write("node/node0/distance", "10 21\n");
        write("node/node1/distance", "21 10\n");
        let distances = nodes(folder.path(), true).unwrap().distances;
        assert_eq!(distances[&1], [21, 10]);
        write(
            "node/node0/meminfo",
            "Node 0 MemTotal:       1024 kB\nNode 0 MemFree:  1 kB\n",
        );
        write("node/node1/meminfo", "Node 1 MemTotal:       2048 kB\n");
        write("node/node1/hugepages/hugepages-2048kB/nr_hugepages", "3\n");
        let capacities = capacities(folder.path()).unwrap();
        assert_eq!(capacities[&0].memory, 1 << 20);
        assert_eq!(
            capacities[&1].huge_pages,
            [("hugepages-2Mi".to_owned(), 6 << 20)].into()
        );
        let found = topology(folder.path()).unwrap();
        assert_eq!(
            (found.nodes, found.sockets, found.cores, found.caches),
            (2, 2, 2, 2)
        );
        let expected = CpuPlace {
            node: 0,
            socket: 0,
            core: 0,
            cache: 7,
        };
        assert_eq!(found.places.get(2), Some(&expected));
        let expected = CpuPlace {
            node: 1,
            socket: 1,
            core: 1,
            cache: 1,
        };
        assert_eq!(found.places.get(3), Some(&expected));
        write("cpu/online", "0-9999999\n");
        let refused = topology(folder.path()).unwrap_err();
        assert!(refused.contains("processor 9999999 is above 65535"), "{refused}");
    }
}
