//! Pods within the objects that make them, and the changes of a pod that are evaluated anew.

use k8s_openapi::api::core::v1::PodSpec;
use machinery_pod_security::Pod;
use machinery_schema::{Ref, Tree};
use std::collections::BTreeMap;

/// Group, resource and the path of the pod in its objects.
const RESOURCES: [(&str, &str, &[&str]); 9] = [
    ("", "pods", &[]),
    ("", "podtemplates", &["template"]),
    ("", "replicationcontrollers", &["spec", "template"]),
    ("apps", "replicasets", &["spec", "template"]),
    ("apps", "deployments", &["spec", "template"]),
    ("apps", "statefulsets", &["spec", "template"]),
    ("apps", "daemonsets", &["spec", "template"]),
    ("batch", "jobs", &["spec", "template"]),
    ("batch", "cronjobs", &["spec", "jobTemplate", "spec", "template"]),
];

/// Subresources of pods that leave the spec alone.
const IGNORED_SUBRESOURCES: [&str; 8] = [
    "exec",
    "attach",
    "binding",
    "eviction",
    "log",
    "portforward",
    "proxy",
    "status",
];

/// The path of the pod in objects of a resource; none of a resource or subresource that has no pod to look at.
pub(super) fn path(group: &str, resource: &str, subresource: &str) -> Option<&'static [&'static str]> {
    let row = RESOURCES.iter().find(|row| (row.0, row.1) == (group, resource));
    let (_, resource, path) = row?;
    let is_looked_at = match *resource {
        // Upstream looks at subresources that it does not know.
        "pods" => !IGNORED_SUBRESOURCES.contains(&subresource),
        _ => subresource.is_empty(),
    };
    is_looked_at.then_some(*path)
}

/// A pod or template, out of its tree.
#[derive(Debug)]
pub(super) struct Workload {
    annotations: BTreeMap<String, String>,
    pub(super) spec: PodSpec,
}

impl Workload {
    /// Reads a pod or template; `None` where the optional template is absent.
    ///
    /// # Errors
    /// Its spec has another form than a pod's.
    pub(super) fn read(object: &Tree, path: &[&str]) -> Result<Option<Self>, serde_json::Error> {
        let Some(pod) = object.at(path).filter(|pod| !pod.is_null()) else {
            return Ok(None);
        };
        let spec = pod.get("spec").map_or_else(|| "{}".to_owned(), Ref::to_json);
        let annotations = pod
            .at(&["metadata", "annotations"])
            .into_iter()
            .flat_map(Ref::entries);
        let text =
            |(key, value): (&str, Ref<'_>)| (key.to_owned(), value.as_str().unwrap_or_default().to_owned());
        Ok(Some(Self {
            annotations: annotations.map(text).collect(),
            spec: serde_json::from_str(&spec)?,
        }))
    }

    pub(super) fn pod(&self) -> Pod<'_> {
        Pod {
            annotations: Some(&self.annotations),
            spec: &self.spec,
        }
    }
}

/// Reports whether a pod runs another image than before, or another container. Nothing else of a pod that checks look at
/// can change.
pub(super) fn is_significant_update(pod: &Tree, old: &Tree) -> bool {
    let containers = |pod: &Tree, list| -> Vec<(String, String)> {
        let own = pod.at(&["spec", list]).into_iter().flat_map(Ref::items);
        own.map(|own| (own.str("name").to_owned(), own.str("image").to_owned()))
            .collect()
    };
    let differs = |list| {
        let (new, old) = (containers(pod, list), containers(old, list));
        let images = |list: &[(String, String)]| list.iter().map(|own| own.1.clone()).collect::<Vec<_>>();
        images(&new) != images(&old)
    };
    let old_ones = containers(old, "ephemeralContainers");
    let is_new = |own: &(String, String)| {
        let earlier = old_ones.iter().find(|earlier| earlier.0 == own.0);
        earlier.is_none_or(|earlier| earlier.1 != own.1)
    };
    differs("containers")
        || differs("initContainers")
        || containers(pod, "ephemeralContainers").iter().any(is_new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn significant(old: &str, new: &str, expected: bool) {
        let tree = |spec: &str| Tree::from_json(&format!(r#"{{"spec":{{{spec}}}}}"#)).unwrap();
        assert_eq!(
            is_significant_update(&tree(new), &tree(old)),
            expected,
            "{old} → {new}"
        );
    }

    /// Cases of upstream's `isSignificantPodUpdate`.
    #[test]
    fn updates_of_images_and_containers_are_significant() {
        let lists = |list: &str, images: &[(&str, &str)]| {
            let one = |(name, image): &(&str, &str)| format!(r#"{{"name":"{name}","image":"{image}"}}"#);
            format!(
                r#""{list}":[{}]"#,
                images.iter().map(one).collect::<Vec<_>>().join(",")
            )
        };
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            let one = lists(list, &[("a", "x")]);
            significant(&one, &one, false);
            significant(&one, &lists(list, &[("a", "y")]), true);
            significant(&one, &lists(list, &[("a", "x"), ("b", "x")]), true);
            // Ephemeral containers alone are known by their names.
            let renamed = lists(list, &[("b", "x")]);
            significant(&one, &renamed, list == "ephemeralContainers");
            significant(&one, "", list != "ephemeralContainers");
        }
        significant(r#""activeDeadlineSeconds":5"#, r#""hostNetwork":true"#, false);
    }

    #[test]
    fn paths_lead_to_the_pods_of_all_workloads() {
        for (group, resource, path_of) in RESOURCES {
            assert_eq!(path(group, resource, ""), Some(path_of));
            let seen = (resource == "pods").then_some(path_of);
            assert_eq!(path(group, resource, "scale"), seen);
            assert_eq!(path(group, resource, "status"), None);
        }
        assert_eq!(path("", "pods", "ephemeralcontainers"), Some(&[][..]));
        assert_eq!(path("", "pods", "resize"), Some(&[][..]));
        assert_eq!(path("", "pods", "binding"), None);
        assert_eq!(path("", "services", ""), None);
        assert_eq!(path("example.com", "deployments", ""), None);
    }
}
