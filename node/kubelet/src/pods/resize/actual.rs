//! Actual resources of running containers in the status. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use machinery_meta::Quantity;
use node_sys::cgroup::CgroupResources;

use super::Resources;
use super::conditions::ResizeState;

/// The smallest quota is that of ten thousandths of a processor; less is shown as it was requested for.
const CPU_LIMIT_MIN_MILLIS: i64 = 10;

/// State of a pod's resources besides its specification.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceView<'a> {
    /// Resize conditions of the pod.
    pub(crate) state: &'a ResizeState,
    /// Resources that its containers were given last.
    pub(crate) actuated: &'a Resources,
    /// The limits of each running container's group, by the runtime's id.
    pub(crate) limits: &'a BTreeMap<String, CgroupResources>,
}

impl ResourceView<'_> {
    /// Resources of a running container: limits as its group has them, requests as they were given last.
    pub(crate) fn running(&self, container: &Container, id: &str) -> ResourceRequirements {
        let mut resources = container.resources.clone().unwrap_or_default();
        let given = self.actuated.containers.get(&container.name);
        if let (Some(own), Some(given)) = (
            &mut resources.requests,
            given.and_then(|given| given.requests.as_ref()),
        ) {
            for name in ["cpu", "memory"] {
                if let Some(amount) = given.get(name) {
                    own.insert(name.to_owned(), amount.clone());
                }
            }
        }
        if let (Some(own), Some(limits)) = (&mut resources.limits, self.limits.get(id)) {
            show_limits(own, limits);
        }
        resources
    }
}

fn show_limits(own: &mut BTreeMap<String, ApiQuantity>, limits: &CgroupResources) {
    let period = limits.cpu_period_us.and_then(|period| i64::try_from(period).ok());
    let millis = limits
        .cpu_quota_us
        .zip(period)
        .map(|(quota, period)| quota * 1000 / period.max(1));
    let smallest = |amount: Option<i64>| amount.is_some_and(|amount| amount <= CPU_LIMIT_MIN_MILLIS);
    let requested = own.get("cpu").and_then(|cpu| cpu.0.parse::<Quantity>().ok());
    // The kernel's smallest quota stands for all requests below it; shown as 10m, a request of 5m would look
    // changed for ever.
    if !(smallest(millis) && smallest(requested.map(Quantity::millis))) {
        show(own, "cpu", millis.map(Quantity::from_millis), Quantity::millis);
    }
    let bytes = limits.memory_limit_bytes.map(Quantity::from_bytes);
    show(own, "memory", bytes, Quantity::units);
}

/// Shows an actual amount in the spelling of the specification if both are equal.
fn show(
    own: &mut BTreeMap<String, ApiQuantity>,
    name: &str,
    actual: Option<Quantity>,
    number: fn(Quantity) -> i64,
) {
    let Some(actual) = actual else {
        own.remove(name);
        return;
    };
    let requested = own
        .get(name)
        .and_then(|requested| requested.0.parse::<Quantity>().ok());
    if requested.map(number) != Some(number(actual)) {
        own.insert(name.to_owned(), ApiQuantity(actual.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(cpu: &str, memory: &str) -> serde_json::Value {
        serde_json::json!({"cpu": cpu, "memory": memory})
    }

    #[track_caller]
    fn check(quota: Option<i64>, memory: Option<i64>, cpu_shown: Option<&str>, memory_shown: Option<&str>) {
        let resources =
            serde_json::json!({"limits": amounts("0.2", "64Mi"), "requests": amounts("0.2", "64Mi")});
        let container: Container =
            serde_json::from_value(serde_json::json!({"name": "c", "resources": resources})).unwrap();
        let given = serde_json::json!({"containers": {"c": {"requests": amounts("100m", "32Mi")}}});
        let limits = CgroupResources {
            cpu_quota_us: quota,
            cpu_period_us: Some(100_000),
            memory_limit_bytes: memory,
            ..CgroupResources::default()
        };
        let view = ResourceView {
            state: &ResizeState::default(),
            actuated: &serde_json::from_value(given).unwrap(),
            limits: &BTreeMap::from([("id".to_owned(), limits)]),
        };
        let shown = serde_json::to_value(view.running(&container, "id")).unwrap();
        assert_eq!(shown["limits"]["cpu"].as_str(), cpu_shown);
        assert_eq!(shown["limits"]["memory"].as_str(), memory_shown);
        assert_eq!(shown["requests"], amounts("100m", "32Mi"));
    }

    #[test]
    fn limits_are_those_of_the_group() {
        check(Some(20_000), Some(64 << 20), Some("0.2"), Some("64Mi"));
        check(Some(10_000), Some(32 << 20), Some("100m"), Some("32Mi"));
        check(None, None, None, None);
    }
}
