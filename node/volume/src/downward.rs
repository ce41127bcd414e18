//! The downward API: what a pod may learn about itself, as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use machinery_meta::Quantity;

use crate::{NodeResources, VolumeError};

/// The value of a field path that is part of the pod object itself; `None` for an unknown path.
///
/// Addresses and the node's name are not: they come from the agent, see `kubelet`'s environment.
pub fn metadata_field(pod: &Pod, path: &str) -> Option<String> {
    if let Some((map, key)) = subscripted(path) {
        let values = match map {
            "metadata.annotations" => pod.metadata.annotations.as_ref(),
            "metadata.labels" => pod.metadata.labels.as_ref(),
            _ => return None,
        };
        return Some(
            values
                .and_then(|values| values.get(key))
                .cloned()
                .unwrap_or_default(),
        );
    }
    let metadata = &pod.metadata;
    match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "metadata.annotations" => Some(format_map(metadata.annotations.as_ref())),
        "metadata.labels" => Some(format_map(metadata.labels.as_ref())),
        _ => None,
    }
}

/// `metadata.labels['key']` apart.
fn subscripted(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once("['")?;
    Some((map, rest.strip_suffix("']")?))
}

/// One `key="value"` a line, in order, values quoted as Go's `%q` does.
fn format_map(values: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> = values
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", go_quoted(value)))
        .collect();
    lines.join("\n")
}

fn go_quoted(value: &str) -> String {
    let mut out = String::from("\"");
    for letter in value.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            control if control.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// The value of a resource field: a container's request or limit in units of the divisor, rounded up.
/// A limit that is not set is what the node has to give.
pub fn resource_field(
    pod: &Pod,
    selector: &ResourceFieldSelector,
    container: Option<&Container>,
    node: &NodeResources,
) -> Result<String, VolumeError> {
    let named = |name: &str| {
        let spec = pod.spec.as_ref()?;
        spec.containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .find(|found| found.name == name)
    };
    let container = match selector.container_name.as_deref() {
        Some(name) if !name.is_empty() => named(name),
        _ => container,
    };
    let container = container.ok_or_else(|| {
        let name = selector.container_name.clone().unwrap_or_default();
        VolumeError::Invalid(format!("container {name} not found"))
    })?;
    let (kind, name) = selector.resource.split_once('.').ok_or_else(|| {
        VolumeError::Invalid(format!("unsupported container resource : {}", selector.resource))
    })?;
    let resources = container.resources.as_ref();
    let table = match kind {
        "limits" => resources.and_then(|resources| resources.limits.as_ref()),
        "requests" => resources.and_then(|resources| resources.requests.as_ref()),
        _ => {
            return Err(VolumeError::Invalid(format!(
                "unsupported container resource : {}",
                selector.resource
            )));
        }
    };
    let set = table
        .and_then(|table| table.get(name))
        .and_then(|value| value.0.parse::<Quantity>().ok());
    let value = set.filter(|value| !value.is_zero());
    let value = match (value, kind) {
        (Some(value), _) => value,
        (None, "limits") => node.of(name),
        (None, _) => Quantity::from_units(0),
    };
    let divisor = selector
        .divisor
        .as_ref()
        .and_then(|divisor| divisor.0.parse::<Quantity>().ok());
    let divisor = divisor
        .filter(|divisor| !divisor.is_zero())
        .unwrap_or(Quantity::from_units(1));
    Ok(divided(value, divisor, name == "cpu").to_string())
}

/// Rounded up; processors are counted in thousandths so that a divisor of `1m` works.
fn divided(value: Quantity, divisor: Quantity, in_thousandths: bool) -> i64 {
    let (value, divisor) = if in_thousandths {
        (value.millis(), divisor.millis())
    } else {
        (value.units(), divisor.units())
    };
    let divisor = divisor.max(1);
    value / divisor + i64::from(value % divisor > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        serde_json::from_str(
            r#"{"metadata":{"name":"p","namespace":"n","uid":"u","labels":{"b":"2","a":"x\"y"}},
                "spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1500m","memory":"64Mi"}}}]}}"#,
        )
        .unwrap()
    }

    #[test]
    fn fields_read_as_upstream_writes_them() {
        let pod = pod();
        assert_eq!(
            metadata_field(&pod, "metadata.labels").unwrap(),
            "a=\"x\\\"y\"\nb=\"2\""
        );
        assert_eq!(metadata_field(&pod, "metadata.labels['b']").unwrap(), "2");
        assert_eq!(metadata_field(&pod, "metadata.uid").unwrap(), "u");
        assert_eq!(metadata_field(&pod, "spec.nodeName"), None);
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let pod = pod();
        let node = NodeResources {
            cpu_millis: 2000,
            memory_bytes: 1 << 30,
            ephemeral_storage_bytes: 0,
        };
        let ask = |resource: &str, divisor: &str| {
            let selector = ResourceFieldSelector {
                container_name: Some("c".into()),
                divisor: Some(k8s_openapi::apimachinery::pkg::api::resource::Quantity(
                    divisor.into(),
                )),
                resource: resource.into(),
            };
            resource_field(&pod, &selector, None, &node).unwrap()
        };
        assert_eq!(ask("limits.cpu", "0"), "2");
        assert_eq!(ask("limits.cpu", "1m"), "1500");
        assert_eq!(ask("limits.memory", "1Mi"), "64");
        assert_eq!(ask("requests.memory", "1"), "0");
    }
}
