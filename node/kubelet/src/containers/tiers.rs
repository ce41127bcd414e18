//! The groups that all pods lie in: what they may use together, and how the classes share processor time.

use std::time::Duration;

use node_sys::cgroup::{CgroupDriver, CgroupError, CgroupResources, Cgroups};
use node_sys::machine::Machine;

use super::groups::PodGroups;
use super::resources::{MemoryFacts, Qos, shares};
use crate::config::SwapBehavior;
use crate::managers::ManagerContext;
use crate::node::reserve::Reserve;

/// Upstream's interval; a change of pods is followed at once.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// CPU shares of the BestEffort class, the kernel's minimum.
const BEST_EFFORT_SHARES: u64 = 2;

fn only_shares(shares: u64) -> CgroupResources {
    CgroupResources {
        cpu_shares: Some(shares),
        ..CgroupResources::default()
    }
}

/// Makes the three groups.
pub(crate) fn make(
    cgroups: &dyn Cgroups,
    groups: PodGroups<'_>,
    reserve: &Reserve,
    machine: &Machine,
) -> Result<(), CgroupError> {
    let root = groups.all();
    cgroups.apply(&root, &reserve.pods_limits(machine))?;
    let pages = machine.huge_pages.iter();
    let pages = pages.map(|(size, count)| (*size, size.saturating_mul(*count)));
    cgroups.limit_huge_pages(&root, &pages.collect())?;
    cgroups.apply(&groups.of_class(Qos::Burstable), &CgroupResources::default())?;
    cgroups.apply(
        &groups.of_class(Qos::BestEffort),
        &only_shares(BEST_EFFORT_SHARES),
    )
}

/// Limits the groups of other programs as `--enforce-node-allocatable` asks. They are made by others.
pub(crate) fn limit_others(
    cgroups: &dyn Cgroups,
    driver: CgroupDriver,
    reserve: &Reserve,
) -> Result<(), String> {
    for (words, group, limits) in reserve.others_limits() {
        let failed = |why: String| format!("Failed to enforce {words} Cgroup Limits on {group:?}: {why}");
        let path = driver.path_of_existing(group);
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", &path));
        if !cgroups.children(parent).iter().any(|found| found == name) {
            return Err(failed(format!("cgroup {group:?} does not exist")));
        }
        let applied = cgroups.apply(&path, &limits);
        applied.map_err(|error| failed(format!("{error}: {}", error.source)))?;
    }
    Ok(())
}

/// Reads the features of the memory controller from the pods' group.
pub(crate) fn memory_facts(
    cgroups: &dyn Cgroups,
    groups: PodGroups<'_>,
    machine: &Machine,
    behavior: SwapBehavior,
) -> MemoryFacts {
    let root = groups.all();
    let has = |version: u8, name: &str| cgroups.version() == version && cgroups.has_memory_file(&root, name);
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let swap_limit = has(2, "memory.swap.max");
    // As upstream: cgroup v1 has no limit of swap alone, and so no group has one.
    let shares_swap = behavior == SwapBehavior::LimitedSwap && swap_limit;
    MemoryFacts {
        capacity_bytes: signed(machine.memory_bytes),
        oom_group: has(2, "memory.oom.group"),
        swap_limit,
        memory_and_swap_limit: has(1, "memory.memsw.limit_in_bytes"),
        swap_bytes: shares_swap.then(|| signed(machine.swap_bytes)),
    }
}

/// Keeps the CPU weight of the Burstable class at the sum of its pods' requests, for ever.
pub(crate) async fn maintain_weights(context: ManagerContext) {
    let control = &context.workers.control;
    let group = context.config.groups().of_class(Qos::Burstable);
    let allocations = &context.workers.allocations;
    loop {
        let changed = allocations.changed();
        let wanted = only_shares(shares(allocations.burstable_cpu_millis()).unsigned_abs());
        let (cgroups, path) = (control.cgroups.clone(), group.clone());
        let applied = context
            .runtime
            .blocking(move || cgroups.apply(&path, &wanted))
            .await;
        if let Ok(Err(error)) = applied {
            tracing::warn!(%error, "the Burstable class keeps its old weight");
        }
        tokio::select! {
            biased;
            () = changed => {}
            () = context.runtime.sleep(LOOK_AGAIN_AFTER) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_weigh_what_their_pods_ask_for() {
        for (millis, expected) in [(0, 2), (1, 2), (1500, 1536), (1 << 40, 262_144)] {
            assert_eq!(shares(millis), expected, "{millis}");
        }
    }
}
