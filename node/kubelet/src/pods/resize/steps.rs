//! Order of the changes of limits in a resize. Pure.
//!
//! Memory first, then processor time, as upstream. A growing amount grows in the pod's group before the container;
//! a shrinking one shrinks in the containers first. Of the containers those that give go before those that take.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use node_cri::v1::LinuxContainerResources;
use node_sys::cgroup::CgroupResources;

use super::{Record, Resize};
use crate::containers::resources::{MemoryFacts, container_limits, pod_limits};
use crate::pods::container_named::container_named;

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// The pod's group gets these limits.
    Group(CgroupResources),
    /// Sends the limits of a container to the runtime.
    Container {
        /// The runtime's id of it.
        id: String,
        /// Limits of the container.
        limits: Box<LinuxContainerResources>,
    },
}

/// Returns the steps from the limits of `record` to those of the allocated pod.
pub(crate) fn steps(
    pod: &Arc<Pod>,
    record: &Record,
    resizes: &[Resize],
    memory_facts: MemoryFacts,
) -> Vec<Step> {
    let before = pod_limits(&record.group.put_into(pod), None);
    let after = pod_limits(pod, None);
    let mut steps = Vec::new();
    let memory = |to: &CgroupResources| CgroupResources {
        memory_limit_bytes: to.memory_limit_bytes,
        ..CgroupResources::default()
    };
    let quota = |to: &CgroupResources| CgroupResources {
        cpu_quota_us: to.cpu_quota_us,
        cpu_period_us: to.cpu_period_us,
        ..CgroupResources::default()
    };
    let shares = |to: &CgroupResources| CgroupResources {
        cpu_shares: to.cpu_shares,
        ..CgroupResources::default()
    };
    let changes = |part: &dyn Fn(&CgroupResources) -> CgroupResources, grows: Option<bool>| {
        let (old, new) = (part(&before), part(&after));
        grows
            .filter(|_| old != new)
            .map(|grows| (grows, Step::Group(new)))
    };
    let memory_change = changes(
        &memory,
        after
            .memory_limit_bytes
            .map(|new| grows(before.memory_limit_bytes, new)),
    );
    let quota_change = changes(
        &quota,
        after.cpu_quota_us.map(|new| grows(before.cpu_quota_us, new)),
    );
    let shares_change = changes(
        &shares,
        after
            .cpu_shares
            .map(|new| before.cpu_shares.is_some_and(|old| new > old)),
    );
    let of_memory = containers(pod, record, resizes, memory_facts, Part::Memory);
    around(&mut steps, vec![memory_change], of_memory);
    let of_cpu = containers(pod, record, resizes, memory_facts, Part::Cpu);
    around(&mut steps, vec![quota_change, shares_change], of_cpu);
    steps
}

/// No limit, or a negative one, is more than any.
fn grows(old: Option<i64>, new: i64) -> bool {
    match old.filter(|old| *old >= 0) {
        None => false,
        Some(old) => new < 0 || new > old,
    }
}

fn around(steps: &mut Vec<Step>, group: Vec<Option<(bool, Step)>>, containers: Vec<Step>) {
    let (first, last): (Vec<_>, Vec<_>) = group.into_iter().flatten().partition(|(grows, _)| *grows);
    steps.extend(first.into_iter().map(|(_, step)| step));
    steps.extend(containers);
    // Requests shrink before limits do.
    steps.extend(last.into_iter().rev().map(|(_, step)| step));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Memory,
    Cpu,
}

fn containers(
    pod: &Arc<Pod>,
    record: &Record,
    resizes: &[Resize],
    memory_facts: MemoryFacts,
    part: Part,
) -> Vec<Step> {
    let pair = |resize: &Resize| match part {
        Part::Memory => (resize.from.memory, resize.to.memory),
        Part::Cpu => (resize.from.cpu, resize.to.cpu),
    };
    let mut differing: Vec<&Resize> = resizes
        .iter()
        .filter(|resize| pair(resize).0 != pair(resize).1)
        .collect();
    // False sorts before true: containers whose limit shrinks free what the others take, within the pod's
    // limit.
    differing.sort_by_key(|resize| {
        let ((from_request, from_limit), (to_request, to_limit)) = pair(resize);
        match from_limit == to_limit {
            true => to_request > from_request,
            false => to_limit > from_limit,
        }
    });
    let changed = differing.into_iter().filter_map(|resize| {
        let (_, container) = container_named(pod, &resize.name)?;
        let container = match part {
            // Of the processor it keeps what it has until its turn comes.
            Part::Memory => with_cpu_of(&container, &record.actuated.put_into_container(&container)),
            Part::Cpu => container.into_owned(),
        };
        Some(Step::Container {
            id: resize.id.clone(),
            limits: Box::new(container_limits(pod, &container, memory_facts)),
        })
    });
    changed.collect()
}

fn with_cpu_of(container: &Container, other: &Container) -> Container {
    let mut mixed = container.clone();
    let own = mixed.resources.get_or_insert_default();
    let theirs = other.resources.clone().unwrap_or_default();
    take_cpu(own.requests.get_or_insert_default(), theirs.requests.as_ref());
    take_cpu(own.limits.get_or_insert_default(), theirs.limits.as_ref());
    mixed
}

fn take_cpu(own: &mut BTreeMap<String, Quantity>, theirs: Option<&BTreeMap<String, Quantity>>) {
    match theirs.and_then(|list| list.get("cpu").cloned()) {
        Some(cpu) => drop(own.insert("cpu".to_owned(), cpu)),
        None => drop(own.remove("cpu")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Amounts, Resources};
    use super::*;

    /// `name=cpu/memory` of each container, limits and requests alike.
    fn pod(containers: &[(&str, &str, &str)]) -> Arc<Pod> {
        let containers: Vec<_> = containers
            .iter()
            .map(|(name, cpu, memory)| {
                serde_json::json!({"name": name, "resources": {
                    "limits": {"cpu": cpu, "memory": memory}, "requests": {"cpu": cpu, "memory": memory}}})
            })
            .collect();
        let pod = serde_json::json!({"metadata": {"uid": "u"}, "spec": {"containers": containers}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    /// Steps in short: limits and their new values.
    fn changed(before: &[(&str, &str, &str)], after: &[(&str, &str, &str)]) -> Vec<String> {
        let (before, after) = (pod(before), pod(after));
        let record = Record {
            allocated: Resources::of(&after),
            ..Record::new(&before)
        };
        let amounts = |pod: &Pod, name: &str| Amounts::of(&container_named(pod, name).unwrap().1);
        let resizes = record.allocated.containers.keys().map(|name| Resize {
            name: name.clone(),
            id: name.clone(),
            from: amounts(&before, name),
            to: amounts(&after, name),
        });
        let resizes: Vec<Resize> = resizes.filter(|resize| resize.from != resize.to).collect();
        let memory = MemoryFacts {
            capacity_bytes: 1 << 30,
            ..MemoryFacts::default()
        };
        let words = steps(&after, &record, &resizes, memory)
            .into_iter()
            .map(|step| match step {
                Step::Group(CgroupResources {
                    memory_limit_bytes: Some(bytes),
                    ..
                }) => {
                    format!("pod memory {}Mi", bytes >> 20)
                }
                Step::Group(CgroupResources {
                    cpu_quota_us: Some(quota),
                    ..
                }) => format!("pod quota {quota}"),
                Step::Group(group) => format!("pod shares {}", group.cpu_shares.unwrap_or_default()),
                Step::Container { id, limits } => {
                    format!(
                        "{id} {}Mi {}",
                        limits.memory_limit_in_bytes >> 20,
                        limits.cpu_quota
                    )
                }
            });
        words.collect()
    }

    #[test]
    fn resize_order_grows_pod_first_and_shrinks_it_last() {
        assert_eq!(
            changed(&[("a", "100m", "64Mi")], &[("a", "200m", "128Mi")]),
            [
                "pod memory 128Mi",
                "a 128Mi 10000",
                "pod quota 20000",
                "pod shares 204",
                "a 128Mi 20000"
            ]
        );
        assert_eq!(
            changed(&[("a", "200m", "128Mi")], &[("a", "100m", "128Mi")]),
            ["a 128Mi 10000", "pod shares 102", "pod quota 10000"]
        );
        // What one gives another takes: the group stays, and the giver goes first.
        assert_eq!(
            changed(
                &[("a", "100m", "64Mi"), ("b", "100m", "128Mi")],
                &[("a", "100m", "128Mi"), ("b", "100m", "64Mi")]
            ),
            ["b 64Mi 10000", "a 128Mi 10000"]
        );
        assert_eq!(changed(&[("a", "1", "64Mi")], &[("a", "1", "64Mi")]), [""; 0]);
    }
}
