//! The SubjectAccessReview of a request, and the answer to it.

use crate::authz::attributes::{Attributes, AttributesTarget, ResourceTarget};
use machinery_meta::label_selector::Operator;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The status of a review that is answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    #[serde(deserialize_with = "crate::configuration::or_default")]
    pub(super) allowed: bool,
    #[serde(deserialize_with = "crate::configuration::or_default")]
    pub(super) denied: bool,
    #[serde(deserialize_with = "crate::configuration::or_default")]
    pub(super) reason: String,
}

/// The spec of a request; `v1beta1` has the groups under another name.
pub(super) fn spec(attributes: &Attributes<'_>, version: &str) -> Value {
    let user = attributes.user;
    let mut spec = Map::new();
    match &attributes.target {
        AttributesTarget::Resource(target) => {
            let resource = resource(attributes.verb, target);
            spec.insert("resourceAttributes".to_owned(), resource);
        }
        AttributesTarget::Path(path) => {
            let own = present(&[("path", path), ("verb", attributes.verb)]);
            spec.insert("nonResourceAttributes".to_owned(), own);
        }
    }
    let Value::Object(texts) = present(&[("user", &user.name), ("uid", &user.uid)]) else {
        return Value::Object(spec);
    };
    spec.extend(texts);
    if !user.groups.is_empty() {
        let name = if version == "v1beta1" { "group" } else { "groups" };
        spec.insert(name.to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(user.extra));
    }
    Value::Object(spec)
}

/// The texts that are not empty.
fn present(texts: &[(&str, &str)]) -> Value {
    let texts = texts.iter().filter(|(_, text)| !text.is_empty());
    let texts = texts.map(|(name, text)| ((*name).to_owned(), json!(text)));
    Value::Object(texts.collect())
}

fn resource(verb: &str, target: &ResourceTarget<'_>) -> Value {
    let mut resource = present(&[
        ("namespace", target.namespace),
        ("verb", verb),
        ("group", target.group),
        ("version", target.version),
        ("resource", target.resource),
        ("subresource", target.subresource),
        ("name", target.name),
    ]);
    add_selectors(target, &mut resource);
    resource
}

/// The requirements of selectors; those that the API does not know are left out, which only widens the question.
pub(super) fn add_selectors(target: &ResourceTarget<'_>, resource: &mut Value) {
    let fields = target.field_selector.into_iter().flat_map(|own| own.terms());
    let fields: Vec<Value> = fields
        .map(|term| {
            let operator = if term.equal { "In" } else { "NotIn" };
            json!({"key": term.field, "operator": operator, "values": [term.value]})
        })
        .collect();
    if !fields.is_empty() {
        resource["fieldSelector"] = json!({"requirements": fields});
    }
    let labels = target
        .label_selector
        .into_iter()
        .flat_map(|own| own.requirements());
    let labels: Vec<Value> = labels
        .filter_map(|own| {
            let operator = match own.operator {
                Operator::Equals | Operator::DoubleEquals | Operator::In => "In",
                Operator::NotEquals | Operator::NotIn => "NotIn",
                Operator::Exists => "Exists",
                Operator::DoesNotExist => "DoesNotExist",
                Operator::GreaterThan | Operator::LessThan => return None,
            };
            let mut requirement = json!({"key": own.key, "operator": operator});
            if !own.values.is_empty() {
                requirement["values"] = json!(own.values);
            }
            Some(requirement)
        })
        .collect();
    if !labels.is_empty() {
        resource["labelSelector"] = json!({"requirements": labels});
    }
}
