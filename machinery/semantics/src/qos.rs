//! The quality-of-service class of a pod (upstream's `helper/qos`).

use crate::resources::{ResourceList, is_pod_level_resource};
use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use machinery_meta::quantity::Quantity;
use std::collections::BTreeMap;
use std::fmt;

/// How hard a pod's resources are promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QosClass {
    /// Nothing is promised.
    BestEffort,
    /// Something is.
    Burstable,
    /// Every container has limits for cpu and memory, and asks for exactly them.
    Guaranteed,
}

impl QosClass {
    /// As `status.qosClass` writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "BestEffort",
            Self::Burstable => "Burstable",
            Self::Guaranteed => "Guaranteed",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The class of a pod. Only cpu and memory count; pod-level amounts, where set, decide alone.
pub fn pod_qos(spec: &PodSpec) -> QosClass {
    let pod_level = spec
        .resources
        .as_ref()
        .filter(|resources| names_pod_level(resources));
    if let Some(resources) = pod_level {
        return class_of(&mut [resources].into_iter(), 1);
    }
    let all = || {
        spec.containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
    };
    let count = all().count();
    class_of(
        &mut all().filter_map(|container| container.resources.as_ref()),
        count,
    )
}

fn names_pod_level(resources: &ResourceRequirements) -> bool {
    let amounts = [&resources.requests, &resources.limits];
    amounts
        .into_iter()
        .flatten()
        .flat_map(BTreeMap::keys)
        .any(|name| is_pod_level_resource(name))
}

fn class_of(all: &mut dyn Iterator<Item = &ResourceRequirements>, count: usize) -> QosClass {
    let mut requests: BTreeMap<String, Quantity> = BTreeMap::new();
    let mut limits: BTreeMap<String, Quantity> = BTreeMap::new();
    let mut fully_limited = 0;
    for resources in all {
        sum_into(
            &mut requests,
            &ResourceList::from_api(resources.requests.as_ref()),
        );
        let own = ResourceList::from_api(resources.limits.as_ref());
        sum_into(&mut limits, &own);
        let limited = |name: &str| own.get(name) > Quantity::default();
        fully_limited += usize::from(limited("cpu") && limited("memory"));
    }
    if requests.is_empty() && limits.is_empty() {
        return QosClass::BestEffort;
    }
    let exact = requests
        .iter()
        .all(|(name, amount)| limits.get(name) == Some(amount));
    if fully_limited == count && exact && requests.len() == limits.len() {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

fn sum_into(total: &mut BTreeMap<String, Quantity>, own: &ResourceList) {
    for (name, amount) in own.iter() {
        if matches!(name, "cpu" | "memory") && amount > Quantity::default() {
            let sum = total.get(name).copied().unwrap_or_default() + amount;
            total.insert(name.to_owned(), sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(resources: &[serde_json::Value], expected: QosClass) {
        let containers: Vec<_> = resources
            .iter()
            .map(|own| json!({"name": "c", "resources": own}))
            .collect();
        let spec = serde_json::from_value(json!({"containers": containers})).unwrap();
        assert_eq!(pod_qos(&spec), expected, "{resources:?}");
    }

    #[test]
    fn classes() {
        let both =
            json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
        check(&[json!({})], QosClass::BestEffort);
        check(
            &[json!({"requests": {"nvidia.com/gpu": "1"}})],
            QosClass::BestEffort,
        );
        check(&[json!({"requests": {"cpu": "0"}})], QosClass::BestEffort);
        check(std::slice::from_ref(&both), QosClass::Guaranteed);
        check(&[both.clone(), both.clone()], QosClass::Guaranteed);
        check(&[both.clone(), json!({})], QosClass::Burstable);
        check(
            &[json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}})],
            QosClass::Burstable,
        );
        let less =
            json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
        check(&[less], QosClass::Burstable);
    }
}
