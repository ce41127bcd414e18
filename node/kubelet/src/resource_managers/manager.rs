//! The managers of a node: what containers have for themselves, and what they could have.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use machinery_runtime::{Runtime, Watched};
use parking_lot::Mutex;

use super::config::{CpuManagerPolicy, MemoryManagerPolicy, ResourceManagersConfig, TopologyManagerPolicy};
use super::cpu::checkpoint::CpuState;
use super::cpu::options;
use super::cpu::policy::CpuPolicy;
use super::cpu::set::CpuSet;
use super::discovery;
use super::memory::checkpoint::MemoryState;
use super::memory::policy::MemoryPolicy;
use super::memory::reservation::machine;
use super::metrics::Metrics;
use super::topology::options::TopologyOptions;
use super::topology::policy::TopologyPolicy;
use crate::config::KubeletConfig;
use crate::saving::Saver;

pub(super) const CONTAINER: &str = "container";
pub(super) const POD: &str = "pod";
pub(super) const NUMA_NODE: &str = "numa_node";
pub(super) const PHYSICAL_CPU: &str = "physical_cpu";
pub(super) const UNCORE_CACHE: &str = "uncore_cache";

/// The managers of a node.
#[derive(Debug)]
pub(crate) struct ResourceManagers {
    pub(super) runtime: Runtime,
    /// `None` where all containers share all processors.
    pub(super) cpu: Option<CpuPolicy>,
    pub(super) cpu_state: Arc<Mutex<CpuState>>,
    pub(super) cpu_saver: Saver<CpuState>,
    /// `None` where all containers share the memory of all nodes.
    pub(super) memory: Option<MemoryPolicy>,
    pub(super) memory_state: Arc<Mutex<MemoryState>>,
    pub(super) memory_saver: Saver<MemoryState>,
    /// `None` where nothing is aligned.
    pub(super) topology: Option<TopologyPolicy>,
    /// One pod at a time is looked at and given what suits it, where that is to be aligned.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// Set once all pods that have something are known.
    pub(super) settled: Watched<bool>,
    /// Changes with the shared processors.
    pub(super) shared: Watched<u64>,
    /// Processors that running containers were given last, by the runtime's id.
    pub(super) applied: Mutex<BTreeMap<String, CpuSet>>,
    pub(super) metrics: Metrics,
}

impl ResourceManagers {
    /// Reads the machine where a policy needs it, and nothing that was saved yet.
    ///
    /// # Errors
    /// Upstream's sentence: the machine does not have what the configuration reserves.
    pub(crate) fn new(runtime: &Runtime, config: &KubeletConfig) -> Result<Self, String> {
        Self::on(runtime, config, Path::new(discovery::SYSTEM))
    }

    /// The managers of the machine with these files of the kernel.
    pub(super) fn on(runtime: &Runtime, config: &KubeletConfig, system: &Path) -> Result<Self, String> {
        let own = &config.resource_managers;
        let cpu_state = Arc::new(Mutex::new(CpuState::new(own.cpu_policy.name())));
        let memory_state = Arc::new(Mutex::new(MemoryState::new(own.memory_policy.name())));
        Ok(Self {
            runtime: runtime.clone(),
            cpu: cpu_policy(config, system)?,
            cpu_saver: Saver::new(runtime.clone(), config.data_dir.clone(), cpu_state.clone()),
            cpu_state,
            memory: memory_policy(config, system)?,
            memory_saver: Saver::new(runtime.clone(), config.data_dir.clone(), memory_state.clone()),
            memory_state,
            topology: topology_policy(own, system)?,
            turn: tokio::sync::Mutex::default(),
            settled: Watched::default(),
            shared: Watched::default(),
            applied: Mutex::default(),
            metrics: Metrics::new(runtime),
        })
    }

    /// Goes on with what the agent before this one has saved.
    ///
    /// # Errors
    /// Upstream's sentence: it is damaged, of another policy, or does not fit the machine.
    pub(crate) async fn load(&self, folder: &Path) -> Result<(), String> {
        self.load_cpu(folder).await?;
        self.load_memory(folder).await?;
        self.begin_figures();
        self.save().await
    }

    async fn load_cpu(&self, folder: &Path) -> Result<(), String> {
        let (name, place) = (self.cpu_state.lock().policy, folder.to_owned());
        let loaded = self.runtime.blocking(move || CpuState::load(&place, name)).await;
        let loaded = loaded.unwrap_or_else(|error| Err(error.to_string()))?;
        let mut state = self.cpu_state.lock();
        let (is_new, before) = (loaded.is_none(), loaded.unwrap_or_default());
        state.table = before.clone();
        if let Some(policy) = &self.cpu {
            let begun = policy.begin(&mut state.table);
            begun.map_err(|error| format!("start cpu manager error: {error}"))?;
        }
        state.generation += u64::from(is_new || state.table != before);
        Ok(())
    }

    async fn load_memory(&self, folder: &Path) -> Result<(), String> {
        let (name, place) = (self.memory_state.lock().policy, folder.to_owned());
        let loaded = self
            .runtime
            .blocking(move || MemoryState::load(&place, name))
            .await;
        let loaded = loaded.unwrap_or_else(|error| Err(error.to_string()))?;
        let mut state = self.memory_state.lock();
        let (is_new, before) = (loaded.is_none(), loaded.unwrap_or_default());
        state.table = before.clone();
        if let Some(policy) = &self.memory {
            let begun = policy.begin(&mut state.table);
            begun.map_err(|error| format!("start memory manager error: {error}"))?;
        }
        state.generation += u64::from(is_new || state.table != before);
        Ok(())
    }

    fn begin_figures(&self) {
        if self.topology.is_some() {
            for scope in [CONTAINER, POD] {
                self.metrics.aligned.of(&[scope, NUMA_NODE]);
                self.metrics.not_aligned.of(&[scope, NUMA_NODE]);
            }
        }
        if self.cpu.is_some() {
            self.metrics.not_aligned.of(&[CONTAINER, PHYSICAL_CPU]);
            self.metrics.aligned.of(&[CONTAINER, PHYSICAL_CPU]);
            self.metrics.aligned.of(&[CONTAINER, UNCORE_CACHE]);
            self.cpu_changed();
        }
    }

    /// Waits until all that was given is on the disk.
    ///
    /// # Errors
    /// Upstream's sentence. The next call tries again.
    pub(super) async fn save(&self) -> Result<(), String> {
        self.cpu_saver.save().await?;
        self.memory_saver.save().await
    }

    /// All pods are known: those have nothing any more of which the node knows nothing.
    pub(crate) fn settle(&self, is_known: impl Fn(&str) -> bool) {
        let pods: BTreeSet<String> = {
            let (cpu, memory) = (self.cpu_state.lock(), self.memory_state.lock());
            let all = cpu.table.assignments.keys().chain(memory.table.blocks.keys());
            all.cloned().collect()
        };
        for pod in pods.iter().filter(|pod| !is_known(pod)) {
            self.release(pod);
        }
        self.settled.replace(true);
    }

    /// Takes away what a pod has. The disk is not waited for: the next agent does the same for pods that it does not know.
    pub(crate) fn release(&self, uid: &str) {
        let containers: BTreeSet<String> = {
            let (cpu, memory) = (self.cpu_state.lock(), self.memory_state.lock());
            let with_cpus = cpu.table.assignments.get(uid);
            let with_memory = memory.table.blocks.get(uid);
            let with_cpus = with_cpus.into_iter().flat_map(BTreeMap::keys);
            let with_memory = with_memory.into_iter().flat_map(BTreeMap::keys);
            with_cpus.chain(with_memory).cloned().collect()
        };
        self.take_back(uid, &containers);
    }

    pub(super) fn take_back(&self, uid: &str, containers: &BTreeSet<String>) {
        if containers.is_empty() {
            return;
        }
        {
            let (mut cpu, mut memory) = (self.cpu_state.lock(), self.memory_state.lock());
            for container in containers {
                cpu.generation += u64::from(cpu.table.remove(uid, container).is_some());
                memory.generation += u64::from(memory.table.remove(uid, container));
            }
        }
        tracing::info!(uid, "processors and memory released");
        self.cpu_changed();
        self.cpu_saver.save_soon();
        self.memory_saver.save_soon();
    }

    pub(super) fn cpu_changed(&self) {
        if let Some(policy) = &self.cpu {
            self.metrics.cpu.show(policy, &self.cpu_state.lock().table);
        }
        self.shared.change(|changes| {
            *changes += 1;
            true
        });
    }
}

fn topology_policy(own: &ResourceManagersConfig, system: &Path) -> Result<Option<TopologyPolicy>, String> {
    if own.topology_policy == TopologyManagerPolicy::None {
        return Ok(None);
    }
    let options = TopologyOptions::parse(&own.topology_options)?;
    let nodes = discovery::nodes(system, options.prefer_closest)
        .map_err(|error| format!("cannot discover NUMA topology: {error}"))?;
    let policy = TopologyPolicy::new(own.topology_policy, own.topology_scope, options, nodes);
    policy.map(Some)
}

fn cpu_policy(config: &KubeletConfig, system: &Path) -> Result<Option<CpuPolicy>, String> {
    let own = &config.resource_managers;
    let named = CpuSet::parse(&own.reserved_cpus)?;
    if own.cpu_policy == CpuManagerPolicy::None && named.is_empty() {
        return Ok(None);
    }
    let topology = discovery::topology(system)
        .map_err(|error| format!("unable to discover CPU topology info: {error}"))?;
    let online = topology.places.cpus();
    if !named.difference(&online).is_empty() {
        return Err(format!(
            "reserved-cpus: {} is not a subset of online-cpus: {online}",
            own.reserved_cpus
        ));
    }
    if own.cpu_policy == CpuManagerPolicy::None {
        return Ok(None);
    }
    let millis = config.reserve.reserved("cpu");
    if millis == 0 {
        return Err(
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
                .to_owned(),
        );
    }
    let count = usize::try_from(millis.unsigned_abs().div_ceil(1000)).unwrap_or(usize::MAX);
    let options = options::parse(&own.cpu_options)?;
    let policy = CpuPolicy::new(topology, count, named, options);
    policy
        .map(Some)
        .map_err(|error| format!("new static policy error: {error}"))
}

fn memory_policy(config: &KubeletConfig, system: &Path) -> Result<Option<MemoryPolicy>, String> {
    let own = &config.resource_managers;
    if own.memory_policy == MemoryManagerPolicy::None {
        return Ok(None);
    }
    let nodes = discovery::capacities(system)?;
    if nodes.len() > discovery::MEMORY_NODES_MAX {
        return Err(format!(
            "the memory manager's policy Static is not supported on machines with more than {} NUMA nodes",
            discovery::MEMORY_NODES_MAX
        ));
    }
    let capacity = i64::try_from(node_sys::machine::memory_bytes().1).unwrap_or(i64::MAX);
    let kept = config.reserve.kept("memory", capacity).unsigned_abs();
    let empty = machine(&nodes, &own.reserved_memory, kept)?;
    Ok(Some(MemoryPolicy { empty }))
}
