//! Huge pages of pods and containers, by their size. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use machinery_meta::Quantity;
use machinery_semantics::resources::pod_requests;
use node_cri::v1::HugepageLimit;
use node_sys::cgroup::{HugePageLimits, huge_page_name};

use crate::pods::spec;

/// Prefix of the names of these resources.
const PREFIX: &str = "hugepages-";

/// Name of the resource of pages of a size in bytes: `hugepages-2Mi`.
pub(crate) fn resource(page_bytes: u64) -> String {
    let size = Quantity::from_bytes(i64::try_from(page_bytes).unwrap_or(i64::MAX));
    format!("{PREFIX}{size}")
}

/// Reports whether a resource is of huge pages.
pub(crate) fn is_one(resource: &str) -> bool {
    resource.starts_with(PREFIX)
}

/// The size of a page of a resource, in bytes; `None` where it is none of huge pages.
fn page_bytes(resource: &str) -> Option<u64> {
    let size: Quantity = resource.strip_prefix(PREFIX)?.parse().ok()?;
    u64::try_from(size.units()).ok().filter(|bytes| *bytes > 0)
}

fn bytes(amount: Quantity) -> u64 {
    u64::try_from(amount.units()).unwrap_or(0)
}

/// Limits of a pod's group: what the pod requests, which limits equal.
pub(crate) fn pod_limits(pod: &Pod) -> HugePageLimits {
    let requests = pod_requests(spec(pod));
    let mut limits = HugePageLimits::new();
    for (name, amount) in requests.iter() {
        if let Some(size) = page_bytes(name) {
            let limit: &mut u64 = limits.entry(size).or_default();
            *limit = limit.saturating_add(bytes(amount));
        }
    }
    limits
}

/// Limits of a container for each size that the machine has: its own, or those of the pod as a whole; without any it may have
/// none.
pub(crate) fn container_limits(pod: &Pod, container: &Container, sizes: &[u64]) -> Vec<HugepageLimit> {
    let of = |table: Option<&BTreeMap<String, ApiQuantity>>, size: u64| {
        let amounts = table.into_iter().flatten();
        let named = amounts.filter(|(name, _)| page_bytes(name) == Some(size));
        let last = named.filter_map(|(_, amount)| amount.0.parse().ok()).next_back();
        last.map(bytes)
    };
    let own = container.resources.as_ref().and_then(|own| own.limits.as_ref());
    let whole = spec(pod).resources.as_ref().and_then(|own| own.limits.as_ref());
    let limit = |size: u64| HugepageLimit {
        page_size: huge_page_name(size),
        limit: of(own, size).or_else(|| of(whole, size)).unwrap_or(0),
    };
    sizes.iter().copied().map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn huge_pages_of_a_pod_are_limited_by_size() {
        let container = |name: &str, limits: serde_json::Value| json!({"name": name, "resources": {"limits": limits, "requests": limits}});
        let pod: Pod = serde_json::from_value(json!({"spec": {
        "initContainers": [container("first", json!({"hugepages-1Gi": "2Gi"}))],
        "containers": [
            container("a", json!({"cpu": "1", "hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"})),
            container("b", json!({"hugepages-2Mi": "6Mi"})),
            container("c", json!({})),
        ]}}))
        .unwrap();
        assert_eq!(pod_limits(&pod), [(2 << 20, 10 << 20), (1 << 30, 2 << 30)].into());
        let limits = |place: usize, pod: &Pod| {
            let limits = container_limits(pod, &spec(pod).containers[place], &[2 << 20, 1 << 30]);
            let limits = limits.into_iter().map(|own| (own.page_size, own.limit));
            limits.collect::<Vec<_>>()
        };
        let of = |small: u64, large: u64| vec![("2MB".to_owned(), small), ("1GB".to_owned(), large)];
        assert_eq!(limits(0, &pod), of(4 << 20, 1 << 30));
        assert_eq!(limits(1, &pod), of(6 << 20, 0));
        assert_eq!(limits(2, &pod), of(0, 0));
        let mut whole = pod.clone();
        let given = json!({"limits": {"hugepages-2Mi": "20Mi"}, "requests": {"hugepages-2Mi": "20Mi"}});
        whole.spec.as_mut().unwrap().resources = serde_json::from_value(given).unwrap();
        assert_eq!(limits(0, &whole), of(4 << 20, 1 << 30));
        assert_eq!(limits(2, &whole), of(20 << 20, 0), "the pod's as a whole");
        assert_eq!(pod_limits(&whole)[&(2 << 20)], 20 << 20);
    }

    #[test]
    fn huge_pages_are_named_as_resources() {
        for (bytes, name) in [
            (2 << 20, "hugepages-2Mi"),
            (1 << 30, "hugepages-1Gi"),
            (64 << 10, "hugepages-64Ki"),
        ] {
            assert_eq!(resource(bytes), name);
            assert_eq!(page_bytes(name), Some(bytes));
        }
        for other in [
            "memory",
            "hugepages-",
            "hugepages-0",
            "hugepages--1",
            "hugepages-x",
        ] {
            assert_eq!(page_bytes(other), None, "{other}");
        }
    }
}
