//! Warnings of objects with a pod template: of their name, of the template, and of a history without end.

use crate::kinds::core::pod::warnings;
use crate::validation::Path;
use machinery_schema::Ref;

/// Kinds whose name begins the names of their pods.
const NAME_PODS: [&str; 5] = [
    "deployments",
    "replicasets",
    "replicationcontrollers",
    "jobs",
    "cronjobs",
];

/// The warnings of a new or changed object of this resource, in upstream's order.
pub(crate) fn of(plural: &str, object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
    let mut all = Vec::new();
    if old.is_none() && NAME_PODS.contains(&plural) {
        all.extend(warnings::of_name(object, "Pod names and hostnames"));
    }
    let path: &[&str] = match plural {
        "cronjobs" => &["spec", "jobTemplate", "spec", "template"],
        "controllerrevisions" => return all,
        _ => &["spec", "template"],
    };
    let text = |object: Ref<'_>| object.at(path).map(Ref::to_json);
    if let Some(template) = object.at(path)
        && old.is_none_or(|old| text(old) != text(object))
    {
        let path = path.join(".");
        all.extend(warnings::of(&Path::of(&path), template));
    }
    let history = object.at(&["spec", "revisionHistoryLimit"]).and_then(Ref::as_i64);
    if plural == "statefulsets" && history.is_some_and(|limit| limit < 0) {
        let detail = "a negative value retains all historical revisions; a value >= 0 is recommended";
        all.push(format!("spec.revisionHistoryLimit: {detail}"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_schema::Tree;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(plural: &str, object: Value, old: Option<Value>, expected: &[&str]) {
        let tree = |value: &Value| Tree::from_json(&value.to_string()).unwrap();
        let (object, old) = (tree(&object), old.as_ref().map(tree));
        let found = of(plural, object.root(), old.as_ref().map(Tree::root));
        let begins = |(found, expected): (&String, &&str)| found.starts_with(expected);
        assert!(
            found.len() == expected.len() && found.iter().zip(expected).all(begins),
            "{found:?}"
        );
    }

    #[test]
    fn workloads_are_warned_of_names_templates_and_histories() {
        let name = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]";
        check("deployments", json!({"metadata": {"name": "a.b"}}), None, &[name]);
        check("daemonsets", json!({"metadata": {"name": "a.b"}}), None, &[]);
        let pods = json!({"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}, "containers": []}});
        let job = json!({"metadata": {"name": "a.b"}, "spec": {"jobTemplate": {"spec": {"template": pods}}}});
        let selector =
            "spec.jobTemplate.spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14";
        check("cronjobs", job.clone(), None, &[name, selector]);
        check("cronjobs", job.clone(), Some(job), &[]);
        let set = json!({"metadata": {"name": "a"}, "spec": {"revisionHistoryLimit": -1}});
        let history = "spec.revisionHistoryLimit: a negative value retains all";
        check("statefulsets", set.clone(), Some(set), &[history]);
    }
}
