//! Conditions of a webhook: expressions about a SubjectAccessReview that must all be true (upstream's `authorization/cel`).

use crate::authz::attributes::{Attributes, AttributesTarget};
use crate::authz::webhook::review;
use machinery_cel::{Data, Env, ExpressionProblem, Limits, ObjectTypes, Program, Type, Variables};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

const REQUEST: &str = "request";

static ENV: LazyLock<Env> = LazyLock::new(|| {
    let (text, texts) = (Type::String, Type::list(Type::String));
    let own = |name: &str| Type::object(&format!("kubernetes.{name}"));
    let requirements = [
        ("rawSelector", text.clone()),
        ("requirements", Type::list(own("SelectorRequirement"))),
    ];
    let names = [
        "namespace",
        "verb",
        "group",
        "version",
        "resource",
        "subresource",
        "name",
    ];
    let mut resource: Vec<(&str, Type)> = names.iter().map(|name| (*name, Type::String)).collect();
    resource.push(("fieldSelector", own("FieldSelectorAttributes")));
    resource.push(("labelSelector", own("LabelSelectorAttributes")));
    let spec = [
        ("resourceAttributes", own("ResourceAttributes")),
        ("nonResourceAttributes", own("NonResourceAttributes")),
        ("user", text.clone()),
        ("groups", texts.clone()),
        ("extra", Type::map(Type::String, texts.clone())),
        ("uid", text.clone()),
    ];
    let types = ObjectTypes::new()
        .with("kubernetes.SubjectAccessReviewSpec", &spec)
        .with("kubernetes.ResourceAttributes", &resource)
        .with(
            "kubernetes.NonResourceAttributes",
            &[("path", text.clone()), ("verb", text.clone())],
        )
        .with("kubernetes.FieldSelectorAttributes", &requirements)
        .with("kubernetes.LabelSelectorAttributes", &requirements)
        .with(
            "kubernetes.SelectorRequirement",
            &[("key", text.clone()), ("operator", text), ("values", texts)],
        );
    Env::new()
        .types(Arc::new(types))
        .variable(REQUEST, own("SubjectAccessReviewSpec"))
        .for_stored()
});

/// See the module.
#[derive(Debug, Default)]
pub struct MatchConditions(Vec<(String, Program)>);

impl MatchConditions {
    /// Adds a condition.
    pub(crate) fn add(&mut self, text: &str) -> Result<(), ExpressionProblem> {
        let (program, _) = ENV.compile_as(text, &[Type::Bool])?;
        self.0.push((text.to_owned(), program));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reports whether all conditions hold. One that is false counts more than others that fail.
    ///
    /// # Errors
    /// Some fail, and none is false.
    pub(super) fn hold(&self, attributes: &Attributes<'_>) -> Result<bool, String> {
        if self.is_empty() {
            return Ok(true);
        }
        let request = request(attributes);
        let mut errors = Vec::new();
        for (text, program) in &self.0 {
            let variables = Variables::new().with(REQUEST, Data::Json(&request).value());
            match program.evaluate(&variables, &Limits::default()).value {
                Ok(value) => match value.as_bool() {
                    Some(true) => {}
                    Some(false) => return Ok(false),
                    None => errors.push(format!(
                        "cel evaluation error: expression '{text}' eval result type should be bool"
                    )),
                },
                Err(error) => errors.push(format!(
                    "cel evaluation error: expression '{text}' resulted in error: {error}"
                )),
            }
        }
        match crate::aggregated(errors) {
            None => Ok(true),
            Some(why) => Err(why),
        }
    }
}

/// The review's spec with all of its texts, those that are empty as well.
fn request(attributes: &Attributes<'_>) -> Value {
    let user = attributes.user;
    let mut request = json!({"user": user.name, "groups": user.groups, "uid": user.uid, "extra": user.extra});
    match &attributes.target {
        AttributesTarget::Path(path) => {
            request["nonResourceAttributes"] = json!({"path": path, "verb": attributes.verb});
        }
        AttributesTarget::Resource(target) => {
            let mut resource = json!({
                "namespace": target.namespace,
                "verb": attributes.verb,
                "group": target.group,
                "version": target.version,
                "resource": target.resource,
                "subresource": target.subresource,
                "name": target.name,
            });
            review::add_selectors(target, &mut resource);
            request["resourceAttributes"] = resource;
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::attributes::ResourceTarget;
    use machinery_meta::{FieldSelector, LabelSelector, UserInfo};

    fn of(text: &str) -> Result<MatchConditions, ExpressionProblem> {
        let mut conditions = MatchConditions::default();
        conditions.add(text).map(|()| conditions)
    }

    #[test]
    fn conditions_are_about_the_review() {
        let mut user = UserInfo::anonymous();
        user.name = "anna".to_owned();
        let (fields, labels) = (
            FieldSelector::parse("spec.nodeName=a").unwrap(),
            LabelSelector::parse("x in (a,b)").unwrap(),
        );
        let target = ResourceTarget {
            resource: "pods",
            namespace: "kube-system",
            field_selector: Some(&fields),
            label_selector: Some(&labels),
            ..ResourceTarget::default()
        };
        let attributes = |target| Attributes {
            asker: None,
            user: &user,
            verb: "list",
            target,
        };
        let resource = attributes(AttributesTarget::Resource(target));
        let path = attributes(AttributesTarget::Path("/healthz"));
        for (text, of_resource, of_path) in [
            ("has(request.resourceAttributes)", Some(true), Some(false)),
            (
                "request.user == 'anna' && request.groups.size() == 1",
                Some(true),
                Some(true),
            ),
            (
                "request.resourceAttributes.namespace == 'kube-system'",
                Some(true),
                None,
            ),
            ("request.resourceAttributes.name == ''", Some(true), None),
            (
                "request.nonResourceAttributes.path == '/healthz'",
                None,
                Some(true),
            ),
            ("!('kubernetes' in request.extra)", Some(true), Some(true)),
            (
                "request.resourceAttributes.fieldSelector.requirements.exists(r, r.key == 'spec.nodeName' && r.operator == 'In' && r.values == ['a'])",
                Some(true),
                None,
            ),
            (
                "request.?resourceAttributes.labelSelector.requirements[0].values.orValue([]) == ['a', 'b']",
                Some(true),
                Some(false),
            ),
        ] {
            let conditions = of(text).unwrap();
            assert_eq!(conditions.hold(&resource).ok(), of_resource, "{text}");
            assert_eq!(conditions.hold(&path).ok(), of_path, "{text}");
        }
    }

    #[test]
    fn condition_that_is_false_counts_more_than_one_that_fails() {
        let mut conditions = of("request.resourceAttributes.name == 'a'").unwrap();
        let user = UserInfo::anonymous();
        let attributes = Attributes {
            asker: None,
            user: &user,
            verb: "get",
            target: AttributesTarget::Path("/"),
        };
        let error = conditions.hold(&attributes).unwrap_err();
        assert!(error.contains("no such key: resourceAttributes"), "{error}");
        conditions.add("request.user == 'nobody'").unwrap();
        assert_eq!(conditions.hold(&attributes), Ok(false));
    }

    #[test]
    fn condition_is_of_bool() {
        let problem = of("request.user").unwrap_err().to_string();
        assert_eq!(problem, "must evaluate to bool but got string");
        assert!(
            of("request.unknown == 'a'")
                .unwrap_err()
                .to_string()
                .contains("undefined field 'unknown'")
        );
    }
}
