//! Definitions as upstream's server stores them to this day: in `v1beta1`, where what all versions share stands once.

use serde_json::{Map, Value, json};

/// Members that stand beside the versions when they are the same in each, with their names in a version of `v1`.
const SHARED: [(&str, &str); 4] = [
    ("validation", "schema"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// The same definition in `v1`.
pub(crate) fn to_v1(document: &[u8]) -> Result<Vec<u8>, String> {
    let mut document: Value = serde_json::from_slice(document).map_err(|error| error.to_string())?;
    document["apiVersion"] = json!("apiextensions.k8s.io/v1");
    if let Some(spec) = document.get_mut("spec").and_then(Value::as_object_mut) {
        versions(spec);
        conversion(spec);
        // Of old, fields that no schema names were kept unless the definition refused them.
        spec.entry("preserveUnknownFields").or_insert(json!(true));
    }
    serde_json::to_vec(&document).map_err(|error| error.to_string())
}

fn versions(spec: &mut Map<String, Value>) {
    let only = spec.remove("version");
    let versions = spec.entry("versions").or_insert_with(|| json!([]));
    if versions.as_array().is_none_or(Vec::is_empty)
        && let Some(name) = only
    {
        *versions = json!([{"name": name, "served": true, "storage": true}]);
    }
    let mut versions = versions.take();
    for (shared, own) in SHARED {
        let Some(value) = spec.remove(shared) else {
            continue;
        };
        for version in members(&mut versions) {
            version.entry(own).or_insert_with(|| value.clone());
        }
    }
    for version in members(&mut versions) {
        for column in version
            .get_mut("additionalPrinterColumns")
            .into_iter()
            .flat_map(members)
        {
            if let Some(path) = column.remove("JSONPath") {
                column.insert("jsonPath".to_owned(), path);
            }
        }
    }
    spec.insert("versions".to_owned(), versions);
}

/// The objects of a list.
fn members(list: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let items = list.as_array_mut().into_iter().flatten();
    items.filter_map(Value::as_object_mut)
}

fn conversion(spec: &mut Map<String, Value>) {
    let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) else {
        return;
    };
    let (client, reviews) = (
        conversion.remove("webhookClientConfig"),
        conversion.remove("conversionReviewVersions"),
    );
    if let Some(client) = client {
        let webhook = json!({"clientConfig": client, "conversionReviewVersions": reviews});
        conversion.insert("webhook".to_owned(), webhook);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spec: Value, expected: Value) {
        let document = json!({"apiVersion": "apiextensions.k8s.io/v1beta1", "spec": spec}).to_string();
        let made: Value = serde_json::from_slice(&to_v1(document.as_bytes()).unwrap()).unwrap();
        assert_eq!(made["spec"], expected);
    }

    #[test]
    fn crd_v1beta1_shared_fields_go_to_each_version() {
        check(
            json!({"group": "g", "version": "v1", "preserveUnknownFields": false,
                "validation": {"openAPIV3Schema": {"type": "object"}},
                "additionalPrinterColumns": [{"name": "A", "JSONPath": ".a"}],
                "versions": [{"name": "v1"}, {"name": "v2", "schema": {"openAPIV3Schema": {}}}]}),
            json!({"group": "g", "preserveUnknownFields": false, "versions": [
                {"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}},
                    "additionalPrinterColumns": [{"name": "A", "jsonPath": ".a"}]},
                {"name": "v2", "schema": {"openAPIV3Schema": {}},
                    "additionalPrinterColumns": [{"name": "A", "jsonPath": ".a"}]}]}),
        );
    }

    #[test]
    fn crd_v1beta1_single_version_becomes_list_of_one() {
        let hook = json!({"url": "https://x"});
        check(
            json!({"version": "v1", "conversion": {"strategy": "Webhook", "webhookClientConfig": hook, "conversionReviewVersions": ["v1"]}}),
            json!({"preserveUnknownFields": true, "versions": [{"name": "v1", "served": true, "storage": true}],
                "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": hook, "conversionReviewVersions": ["v1"]}}}),
        );
    }
}
