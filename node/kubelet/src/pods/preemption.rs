//! Preemption of pods for a critical one: as few as possible, of the lowest class, with the smallest
//! requests, as upstream chooses them. Pure.

use super::resize::allocation::ResourceRequest;
use crate::containers::resources::Qos;

/// The reason and the message of a pod that was ended so.
pub(crate) const REASON: &str = "Preempting";
/// Its message.
pub(crate) const MESSAGE: &str = "Preempted in order to admit critical pod";

/// Amounts of resources that are missing.
pub(crate) type Requirements = Vec<(String, i64)>;

/// A pod that may be ended: its uid and what it has.
type Held<'a> = (&'a str, &'a ResourceRequest);

/// Chooses the victims whose end frees the missing resources; an error names a resource that no set of victims would free.
pub(crate) fn choose(
    preemptor: &ResourceRequest,
    held: &[Held<'_>],
    needed: &Requirements,
) -> Result<Vec<String>, String> {
    let of_class = |class: Qos| -> Vec<Held<'_>> {
        let fits = |(_, request): &&Held<'_>| request.class() == class && preemptor.may_preempt(request);
        held.iter().filter(fits).copied().collect()
    };
    let (best_effort, burstable) = (of_class(Qos::BestEffort), of_class(Qos::Burstable));
    let guaranteed = of_class(Qos::Guaranteed);
    let lower = [best_effort.clone(), burstable.clone()].concat();
    refuse(&without(needed, &[lower.clone(), guaranteed.clone()].concat()))?;
    // The highest class first, and only as much of it as all pods of lower classes could not free: so it keeps
    // as many as possible (upstream's `getPodsToPreempt`).
    let guaranteed = by_distance(guaranteed, without(needed, &lower))?;
    let with_guaranteed = [best_effort.clone(), guaranteed.clone()].concat();
    let burstable = by_distance(burstable, without(needed, &with_guaranteed))?;
    let with_both = [burstable.clone(), guaranteed.clone()].concat();
    let best_effort = by_distance(best_effort, without(needed, &with_both))?;
    let chosen = best_effort.into_iter().chain(burstable).chain(guaranteed);
    Ok(chosen.map(|(uid, _)| uid.to_owned()).collect())
}

fn refuse(missing: &Requirements) -> Result<(), String> {
    if missing.is_empty() {
        return Ok(());
    }
    let each = missing
        .iter()
        .map(|(name, amount)| format!("(res: {name}, q: {amount}), "));
    let text: String = each.collect();
    Err(format!(
        "no set of running pods found to reclaim resources: [{text}]"
    ))
}

/// Resources still missing once these pods have ended.
fn without(needed: &Requirements, ended: &[Held<'_>]) -> Requirements {
    let rest = needed.iter().map(|(name, amount)| {
        let freed: i64 = ended.iter().map(|(_, request)| request.amount(name)).sum();
        (name.clone(), amount - freed)
    });
    rest.filter(|(_, amount)| *amount > 0).collect()
}

/// Takes the pod that leaves least missing, again and again; of equal ones the smaller.
fn by_distance<'a>(mut pods: Vec<Held<'a>>, mut needed: Requirements) -> Result<Vec<Held<'a>>, String> {
    let mut chosen = Vec::new();
    while !needed.is_empty() {
        let mut best: Option<(usize, f64)> = None;
        for (at, (_, request)) in pods.iter().enumerate() {
            let found = distance(&needed, request);
            let nearer = best.is_none_or(|(other, least)| {
                found < least || (found <= least && is_smaller(request, pods[other].1))
            });
            if nearer {
                best = Some((at, found));
            }
        }
        let Some((at, _)) = best else {
            return refuse(&needed).map(|()| chosen);
        };
        let taken = pods.swap_remove(at);
        needed = without(&needed, &[taken]);
        chosen.push(taken);
    }
    Ok(chosen)
}

/// The squared parts that would still be missing.
#[expect(clippy::cast_precision_loss, reason = "parts of a whole are compared")]
fn distance(needed: &Requirements, request: &ResourceRequest) -> f64 {
    let parts = needed.iter().map(|(name, amount)| {
        let rest = (amount - request.amount(name)).max(0);
        (rest as f64 / *amount as f64).powi(2)
    });
    parts.sum()
}

fn is_smaller(one: &ResourceRequest, other: &ResourceRequest) -> bool {
    let sizes = |request: &ResourceRequest| (request.amount("memory"), request.amount("cpu"));
    sizes(one) <= sizes(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MI: i64 = 1 << 20;
    const CRITICAL: i64 = 2_000_000_000;

    fn request(name: &str) -> ResourceRequest {
        let amounts = |size: u32| json!({"cpu": format!("{size}m"), "memory": format!("{size}Mi")});
        let (resources, priority) = match name {
            "bestEffort" => (json!({}), None),
            "burstable" => (json!({"requests": amounts(100)}), None),
            "high-request-burstable" => (json!({"requests": amounts(300)}), None),
            "guaranteed" => (json!({"requests": amounts(100), "limits": amounts(100)}), None),
            "high-request-guaranteed" => (json!({"requests": amounts(300), "limits": amounts(300)}), None),
            "cluster-critical" => (json!({"requests": amounts(100)}), Some(CRITICAL)),
            "node-critical" => (json!({"requests": amounts(100)}), Some(CRITICAL + 100)),
            other => panic!("no pod {other}"),
        };
        let container = json!({"name": "c", "resources": resources});
        let pod = json!({"spec": {"containers": [container], "priority": priority}});
        ResourceRequest::of(&serde_json::from_value(pod).unwrap())
    }

    /// Amounts in thousandths, mebibytes and pods, as upstream's tables have them.
    fn needed(cpu: i64, memory: i64, pods: i64) -> Requirements {
        let all = [("cpu", cpu), ("memory", memory * MI), ("pods", pods)];
        let some = all.into_iter().filter(|(_, amount)| *amount > 0);
        some.map(|(name, amount)| (name.to_owned(), amount)).collect()
    }

    /// The preemptor, the pods that are there, what is needed, and the victims.
    type Case<'a> = (&'a str, &'a [&'a str], Requirements, Option<&'a [&'a str]>);

    /// Upstream's `TestGetPodsToPreempt` and `TestHandleAdmissionFailure`.
    #[test]
    fn preempted_pods_are_those_that_upstream_chooses() {
        let all = [
            "bestEffort",
            "burstable",
            "high-request-burstable",
            "guaranteed",
            "high-request-guaranteed",
        ];
        let with_critical = [
            "cluster-critical",
            "bestEffort",
            "burstable",
            "high-request-burstable",
            "guaranteed",
            "high-request-guaranteed",
        ];
        let of_cluster = "cluster-critical";
        let cases: &[Case<'_>] = &[
            (of_cluster, &[], needed(0, 0, 0), Some(&[])),
            (of_cluster, &[], needed(0, 0, 1), None),
            (
                of_cluster,
                &["burstable"],
                needed(100, 100, 1),
                Some(&["burstable"]),
            ),
            (of_cluster, &["burstable"], needed(200, 200, 2), None),
            (
                of_cluster,
                &["burstable", "bestEffort"],
                needed(0, 0, 1),
                Some(&["bestEffort"]),
            ),
            (
                of_cluster,
                &["burstable", "guaranteed"],
                needed(0, 0, 1),
                Some(&["burstable"]),
            ),
            (
                of_cluster,
                &["bestEffort", "high-request-burstable", "burstable"],
                needed(100, 100, 0),
                Some(&["burstable"]),
            ),
            (
                of_cluster,
                &["bestEffort", "burstable", "high-request-burstable"],
                needed(150, 150, 0),
                Some(&["high-request-burstable"]),
            ),
            (
                of_cluster,
                &all,
                needed(350, 350, 0),
                Some(&["burstable", "high-request-burstable"]),
            ),
            (
                of_cluster,
                &all,
                needed(0, 550, 0),
                Some(&["high-request-burstable", "high-request-guaranteed"]),
            ),
            (
                "node-critical",
                &["cluster-critical"],
                needed(100, 0, 0),
                Some(&["cluster-critical"]),
            ),
            (of_cluster, &["node-critical"], needed(100, 0, 0), None),
            (of_cluster, &["cluster-critical"], needed(0, 0, 1), None),
            (of_cluster, &["bestEffort"], needed(0, 1, 0), None),
            (
                of_cluster,
                &with_critical,
                needed(0, 550, 0),
                Some(&["high-request-burstable", "high-request-guaranteed"]),
            ),
        ];
        for (preemptor, names, needed, expected) in cases {
            let requests: Vec<ResourceRequest> = names.iter().map(|name| request(name)).collect();
            let held: Vec<Held<'_>> = names.iter().copied().zip(&requests).collect();
            let found = choose(&request(preemptor), &held, needed).map(|mut found| {
                found.sort();
                found
            });
            assert_eq!(
                found.ok().as_deref(),
                expected
                    .map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
                    .as_deref(),
                "{names:?} {needed:?}"
            );
        }
        let nobody = choose(&request(of_cluster), &[], &needed(0, 0, 1)).unwrap_err();
        assert_eq!(
            nobody,
            "no set of running pods found to reclaim resources: [(res: pods, q: 1), ]"
        );
    }

    /// Upstream's `TestAdmissionRequirementsDistance`.
    #[test]
    fn distances_are_upstreams() {
        let of = |needed: Requirements, name: &str| distance(&needed, &request(name));
        assert!(of(needed(0, 0, 0), "burstable") < 0.001);
        assert!((of(needed(100, 100, 1), "bestEffort") - 2.0).abs() < 0.001);
        assert!(of(needed(100, 100, 1), "burstable") < 0.001);
        assert!(of(needed(50, 50, 0), "burstable") < 0.001);
        assert_eq!(
            without(&needed(200, 200, 1), &[("b", &request("burstable"))]),
            needed(100, 100, 0)
        );
    }
}
