//! Fields at the root of a schema whose status is a subresource: upstream validates a status by the root's property of that
//! name, so that nothing else of the root may speak of it.

use crate::shared::validation::present;
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, FieldPath};
use machinery_schema::Ref;

/// Fields that may not be there, in upstream's order, before and after the type.
const BEFORE_TYPE: [&str; 3] = ["id", "$schema", "$ref"];
const AFTER_TYPE: [&str; 19] = [
    "nullable",
    "default",
    "enum",
    "maxProperties",
    "minProperties",
    "allOf",
    "oneOf",
    "anyOf",
    "not",
    "additionalProperties",
    "patternProperties",
    "dependencies",
    "additionalItems",
    "definitions",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
];
const DETAIL: &str = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength \
    Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields \
    XValidations] fields are allowed at the root of the schema if the status subresource is enabled";

/// The problem of a schema's root, if any: upstream reports the first.
pub(super) fn problem(schema: Ref<'_>, path: &FieldPath) -> Option<FieldError> {
    let is_set = |name: &&str| {
        let own = present(schema, name).filter(|own| own.as_bool() != Some(false));
        // `$ref` is a pointer in Go, as the extensions are.
        own.is_some_and(|own| !["id", "$schema"].contains(name) || own.as_str() != Some(""))
    };
    let refused = || FieldError::invalid(path, Shown(schema.to_json()), DETAIL);
    if BEFORE_TYPE.iter().any(&is_set) {
        return Some(refused());
    }
    let own = schema.str("type");
    if !matches!(own, "" | "object") {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return Some(FieldError::invalid(&path.child("type"), own, detail));
    }
    AFTER_TYPE.iter().any(&is_set).then(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_schema::Tree;

    #[track_caller]
    fn check(schema: &str, expected: Option<&str>) {
        let schema = Tree::from_json(schema).unwrap();
        let found = problem(schema.root(), &FieldPath::new("s"));
        let found = found.map(|own| format!("{}: {}", own.path.as_str(), &own.detail[..14]));
        assert_eq!(found.as_deref(), expected);
    }

    /// Answers of kube-apiserver for these roots.
    #[test]
    fn root_of_a_schema_with_a_status_has_few_fields() {
        let plain =
            r#"{"type":"object","properties":{"a":{"not":{}}},"x-kubernetes-preserve-unknown-fields":true}"#;
        check(plain, None);
        check(r#"{"type":"object","nullable":false,"id":""}"#, None);
        check(r#"{"type":"object","not":{}}"#, Some("s: only [Descript"));
        check(r#"{"type":"array","not":{}}"#, Some("s.type: only \"object\" "));
        check(r#"{"type":"array","$ref":""}"#, Some("s: only [Descript"));
    }
}
