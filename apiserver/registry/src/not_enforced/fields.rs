//! Single fields, labels and annotations of kinds that work otherwise.

use super::stored_only;
use machinery_schema::Ref;

const POD_SECURITY: &str = "pod-security.kubernetes.io/";
const POD_SECURITY_MODES: [&str; 3] = ["enforce", "audit", "warn"];
/// Annotations of the class that objects without one get, with their older names.
const DEFAULT_STORAGE_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];
const DEFAULT_INGRESS_CLASS: [&str; 1] = ["ingressclass.kubernetes.io/is-default-class"];
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// The warnings for fields that an object has and its earlier state had not, or had otherwise.
pub fn warnings(group: &str, plural: &str, object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
    let of: fn(Ref<'_>) -> Vec<Field> = match (group, plural) {
        ("", "namespaces") => namespace,
        ("", "services") => service,
        ("networking.k8s.io", "ingressclasses") => ingress_class,
        ("storage.k8s.io", "storageclasses") => storage_class,
        _ => return Vec::new(),
    };
    let known = old.map(of).unwrap_or_default();
    let new = of(object).into_iter().filter(|field| !known.contains(field));
    new.map(|field| stored_only(&field.path, field.missing)).collect()
}

/// A field without effect.
#[derive(Debug, PartialEq, Eq)]
struct Field {
    path: String,
    /// As JSON.
    value: String,
    missing: &'static str,
}

fn field(path: impl Into<String>, value: Option<Ref<'_>>, missing: &'static str) -> Option<Field> {
    let value = value.filter(|value| !value.is_null())?;
    Some(Field {
        path: path.into(),
        value: value.to_json(),
        missing,
    })
}

fn namespace(object: Ref<'_>) -> Vec<Field> {
    let of = |mode: &str| {
        let name = format!("{POD_SECURITY}{mode}");
        let level = object.at(&["metadata", "labels", &name]);
        let level = level.filter(|level| level.as_str() != Some("privileged"));
        field(
            format!("metadata.labels[{name}]"),
            level,
            "pods are not checked against it",
        )
    };
    POD_SECURITY_MODES.into_iter().filter_map(of).collect()
}

fn service(object: Ref<'_>) -> Vec<Field> {
    let spec = |name: &str| object.at(&["spec", name]);
    let annotation = object.at(&["metadata", "annotations", SOURCE_RANGES]);
    let fields = [
        field(
            format!("metadata.annotations[{SOURCE_RANGES}]"),
            annotation,
            "clients are not filtered by their address",
        ),
        field(
            "spec.trafficDistribution",
            spec("trafficDistribution"),
            "endpoints are chosen by chance",
        ),
    ];
    fields.into_iter().flatten().collect()
}

fn ingress_class(object: Ref<'_>) -> Vec<Field> {
    let missing = "ingresses without a class do not get this one";
    default_class(object, &DEFAULT_INGRESS_CLASS, missing)
}

fn storage_class(object: Ref<'_>) -> Vec<Field> {
    let missing = "claims without a class do not get this one";
    default_class(object, &DEFAULT_STORAGE_CLASS, missing)
}

fn default_class(object: Ref<'_>, names: &[&str], missing: &'static str) -> Vec<Field> {
    let of = |name: &&str| {
        let value = object.at(&["metadata", "annotations", name]);
        let value = value.filter(|value| value.as_str() == Some("true"));
        field(format!("metadata.annotations[{name}]"), value, missing)
    };
    names.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_schema::{Strictness, Tree, decode_json};
    use serde_json::{Value, json};

    fn tree(group: &str, kind: &str, object: &Value) -> Tree {
        let (schema, ty) = machinery_api::schema_for(group, "v1", kind).unwrap();
        decode_json(schema, ty, object.to_string().as_bytes(), Strictness::Ignore)
            .unwrap()
            .tree
    }

    /// The paths of fields that are warned of.
    #[track_caller]
    fn check(group: &str, kind: &str, plural: &str, object: Value, expected: &[&str]) {
        let object = tree(group, kind, &object);
        let told = warnings(group, plural, object.root(), None);
        let paths: Vec<&str> = told
            .iter()
            .map(|text| text.split(": stored").next().unwrap())
            .collect();
        assert_eq!(paths, expected);
        let again = warnings(group, plural, object.root(), Some(object.root()));
        assert!(again.is_empty(), "fields that were there before: {again:?}");
    }

    #[test]
    fn warnings_name_fields_without_effect() {
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted",
            "pod-security.kubernetes.io/warn": "privileged"});
        let namespace = json!({"metadata": {"labels": labels}});
        let enforce = "metadata.labels[pod-security.kubernetes.io/enforce]";
        check("", "Namespace", "namespaces", namespace, &[enforce]);
        let service = json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"], "trafficDistribution": "PreferSameZone",
            "healthCheckNodePort": 30_123}});
        let distribution = "spec.trafficDistribution";
        check("", "Service", "services", service, &[distribution]);
        check(
            "",
            "Service",
            "services",
            json!({"spec": {"type": "ClusterIP"}}),
            &[],
        );
        let class = |name: &str, value: &str| json!({"metadata": {"annotations": {name: value}}});
        let name = "ingressclass.kubernetes.io/is-default-class";
        let path = format!("metadata.annotations[{name}]");
        check(
            "networking.k8s.io",
            "IngressClass",
            "ingressclasses",
            class(name, "true"),
            &[&path],
        );
        check(
            "networking.k8s.io",
            "IngressClass",
            "ingressclasses",
            class(name, "false"),
            &[],
        );
        let name = "storageclass.kubernetes.io/is-default-class";
        let path = format!("metadata.annotations[{name}]");
        check(
            "storage.k8s.io",
            "StorageClass",
            "storageclasses",
            class(name, "true"),
            &[&path],
        );
        let account_token = json!({"type": "kubernetes.io/service-account-token"});
        check("", "Secret", "secrets", account_token, &[]);
    }
}
