//! Resources of a pod as a whole: what it leaves open follows from its containers (upstream's `DefaultPodLevelResources`).

use crate::shared::validation::quantity;
use machinery_meta::Quantity;
use machinery_schema::{Ref, Step, Tree};
use machinery_semantics::ResourceList;
use machinery_semantics::resources::{containers_limits, containers_requests, is_pod_level_resource};
use std::collections::BTreeMap;

/// Effective requests and limits of all containers of a pod.
pub(crate) struct Together {
    pub(crate) requests: ResourceList,
    pub(crate) limits: ResourceList,
}

impl Together {
    /// Sums over the containers of a spec that reads; another is refused for what it is.
    pub(crate) fn of(spec: Ref<'_>) -> Option<Self> {
        let spec = serde_json::from_str(&spec.to_json()).ok()?;
        Some(Self {
            requests: containers_requests(&spec),
            limits: containers_limits(&spec),
        })
    }
}

/// The amounts of a list of a pod's or a container's resources.
pub(crate) fn amounts(holder: Ref<'_>, list: &str) -> BTreeMap<String, Quantity> {
    let entries = holder.at(&["resources", list]).into_iter().flat_map(Ref::entries);
    entries
        .filter_map(|(name, value)| Some((name.to_owned(), quantity(value)?)))
        .collect()
}

/// Reports whether the pod sets resources for itself; the QoS class then ignores its containers' resources.
pub(crate) fn is_set(spec: Ref<'_>) -> bool {
    let named = ["requests", "limits"].map(|list| amounts(spec, list));
    named
        .iter()
        .flat_map(BTreeMap::keys)
        .any(|name| is_pod_level_resource(name))
}

/// Fills requests and limits that a pod with resources of its own leaves open.
pub(crate) fn set_defaults(pod: &mut Tree) {
    let Some(spec) = pod.get("spec") else { return };
    let (mut requests, mut limits) = (amounts(spec, "requests"), amounts(spec, "limits"));
    if requests.is_empty() && limits.is_empty() {
        return;
    }
    let Some(together) = Together::of(spec) else {
        return;
    };
    huge_page_limits(&requests, &mut limits, &together);
    fill_requests(&mut requests, &limits, &together);
    fill_limits(spec, &requests, &mut limits, &together);
    pod.with(&["spec"], |mut spec| {
        let mut resources = spec.entry("resources");
        for (list, amounts) in [("limits", limits), ("requests", requests)] {
            for (name, amount) in amounts {
                let mut list = resources.entry(list);
                if list.as_ref().get(&name).is_none() {
                    list.set(&name, amount.to_string().as_str());
                }
            }
        }
    });
}

/// A client that does not know resources of a pod as a whole leaves them out.
pub(crate) fn keep(pod: &mut Tree, old: &Tree) {
    const PLACE: [&str; 2] = ["spec", "resources"];
    let is_given = pod.at(&PLACE).is_some_and(|own| !own.is_null());
    if let Some(resources) = old.at(&PLACE).filter(|_| !is_given) {
        pod.set(&PLACE.map(Step::Name), resources);
    }
}

fn huge_page_limits(
    requests: &BTreeMap<String, Quantity>,
    limits: &mut BTreeMap<String, Quantity>,
    together: &Together,
) {
    for (name, amount) in together.limits.iter() {
        if is_huge_page(name) && !requests.contains_key(name) {
            limits.entry(name.to_owned()).or_insert(amount);
        }
    }
}

fn fill_requests(
    requests: &mut BTreeMap<String, Quantity>,
    limits: &BTreeMap<String, Quantity>,
    together: &Together,
) {
    for (name, amount) in together.requests.iter() {
        if is_pod_level_resource(name) && !is_huge_page(name) {
            requests.entry(name.to_owned()).or_insert(amount);
        }
    }
    for (name, amount) in limits.iter().filter(|(name, _)| is_pod_level_resource(name)) {
        requests.entry(name.clone()).or_insert(*amount);
    }
}

/// Sets the pod's limit of a resource that every container limits, at least as high as the pod's request.
fn fill_limits(
    spec: Ref<'_>,
    requests: &BTreeMap<String, Quantity>,
    limits: &mut BTreeMap<String, Quantity>,
    together: &Together,
) {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let is_limited = |name: &str| {
        let mut containers = lists.iter().flat_map(|list| spec.list(list));
        containers.all(|container| container.at(&["resources", "limits", name]).is_some())
    };
    for (name, request) in requests {
        if is_pod_level_resource(name) && !limits.contains_key(name) && is_limited(name) {
            let limit = together.limits.get(name).max(*request);
            limits.insert(name.clone(), limit);
        }
    }
}

pub(crate) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

#[cfg(test)]
mod tests {
    use super::super::{defaults, qos};
    use super::*;

    /// The spec of a pod; its resources and class as kube-apiserver 1.37 has them.
    #[track_caller]
    fn check(spec: &str, resources: &str, class: &str) {
        let mut pod = Tree::from_json(&format!(r#"{{"metadata":{{"name":"x"}},"spec":{spec}}}"#)).unwrap();
        defaults::pod(&mut pod);
        set_defaults(&mut pod);
        let told = pod
            .at(&["spec", "resources"])
            .map(Ref::to_json)
            .unwrap_or_default();
        assert_eq!(
            (told.as_str(), qos::class(pod.root())),
            (resources, class),
            "{spec}"
        );
    }

    fn one(container: &str, resources: &str) -> String {
        format!(
            r#"{{"containers":[{{"name":"c","image":"x","resources":{container}}}],"resources":{resources}}}"#
        )
    }

    #[test]
    fn pod_level_defaults_follow_limits_and_containers() {
        check(
            &one("{}", r#"{"limits":{"cpu":"1","memory":"1Gi"}}"#),
            r#"{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1","memory":"1Gi"}}"#,
            "Guaranteed",
        );
        let requests = r#"{"requests":{"cpu":"1","memory":"1Gi"}}"#;
        check(&one("{}", requests), requests, "Burstable");
        check(
            &one("{}", r#"{"limits":{"cpu":"1"}}"#),
            r#"{"limits":{"cpu":"1"},"requests":{"cpu":"1"}}"#,
            "Burstable",
        );
        check(&one("{}", "{}"), "{}", "BestEffort");
        check(&one(requests, "{}"), "{}", "Burstable");
        check(
            &one(r#"{"limits":{"cpu":"200m"}}"#, r#"{"requests":{"cpu":"1"}}"#),
            r#"{"limits":{"cpu":"1"},"requests":{"cpu":"1"}}"#,
            "Burstable",
        );
        let two = r#"{"containers":[
            {"name":"c","image":"x","resources":{"requests":{"cpu":"500m","memory":"1Gi"}}},
            {"name":"d","image":"x","resources":{"limits":{"cpu":"100m"}}}
        ],"resources":{"limits":{"cpu":"2","memory":"3Gi"}}}"#;
        check(
            two,
            r#"{"limits":{"cpu":"2","memory":"3Gi"},"requests":{"cpu":"600m","memory":"1Gi"}}"#,
            "Burstable",
        );
        let initial = r#"{"initContainers":[{"name":"i","image":"x","resources":{"requests":{"cpu":"3"}}}],
            "containers":[{"name":"c","image":"x","resources":{"requests":{"cpu":"1"}}}],"resources":{"limits":{"cpu":"4"}}}"#;
        check(
            initial,
            r#"{"limits":{"cpu":"4"},"requests":{"cpu":"3"}}"#,
            "Burstable",
        );
    }

    #[test]
    fn huge_pages_are_limited_as_the_containers_are() {
        let huge = r#"{"limits":{"hugepages-2Mi":"4Mi","memory":"1Gi"}}"#;
        check(
            &one(huge, r#"{"limits":{"cpu":"1"}}"#),
            r#"{"limits":{"cpu":"1","hugepages-2Mi":"4Mi","memory":"1Gi"},"requests":{"cpu":"1","hugepages-2Mi":"4Mi","memory":"1Gi"}}"#,
            "Guaranteed",
        );
        check(
            &one(huge, r#"{"requests":{"cpu":"1"}}"#),
            r#"{"limits":{"hugepages-2Mi":"4Mi","memory":"1Gi"},"requests":{"cpu":"1","hugepages-2Mi":"4Mi","memory":"1Gi"}}"#,
            "Burstable",
        );
    }
}
