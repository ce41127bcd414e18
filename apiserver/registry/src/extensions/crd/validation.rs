//! What is wrong with a CustomResourceDefinition.

use crate::custom::json_path::JsonPath;
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, FieldPath, syntax};
use machinery_schema::{Ref, structural};

pub(super) fn validate(object: Ref<'_>) -> Vec<FieldError> {
    let mut problems = Vec::new();
    let Some(spec) = object.get("spec") else {
        return problems;
    };
    let path = FieldPath::new("spec");
    let wanted = format!("{}.{}", spec.str_at(&["names", "plural"]), spec.str("group"));
    for field in ["generateName", "name"] {
        let name = object.str_at(&["metadata", field]);
        if !name.is_empty() && name != wanted {
            let detail = "must be spec.names.plural+\".\"+spec.group";
            let path = FieldPath::new("metadata").child(field);
            problems.push(FieldError::invalid(&path, name, detail));
        }
    }
    validate_group(spec, &path, &mut problems);
    if !matches!(spec.str("scope"), "Namespaced" | "Cluster") {
        let supported = ["Cluster", "Namespaced"];
        problems.push(match spec.str("scope") {
            "" => FieldError::required(&path.child("scope"), ""),
            scope => FieldError::not_supported(&path.child("scope"), scope, &supported),
        });
    }
    validate_versions(spec, &path, &mut problems);
    validate_names(spec.get("names"), &path.child("names"), &mut problems);
    validate_conversion(spec, &path, &mut problems);
    if spec.get("preserveUnknownFields").and_then(Ref::as_bool) == Some(true) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        problems.push(FieldError::invalid(
            &path.child("preserveUnknownFields"),
            true,
            detail,
        ));
    }
    problems
}

fn validate_group(spec: Ref<'_>, path: &FieldPath, problems: &mut Vec<FieldError>) {
    let (group, path) = (spec.str("group"), path.child("group"));
    if group.is_empty() {
        problems.push(FieldError::required(&path, ""));
        return;
    }
    for detail in syntax::dns1123_subdomain(group) {
        problems.push(FieldError::invalid(&path, group, detail));
    }
    if group.split('.').count() < 2 {
        problems.push(FieldError::invalid(
            &path,
            group,
            "should be a domain with at least one dot",
        ));
    }
}

fn validate_versions(spec: Ref<'_>, path: &FieldPath, problems: &mut Vec<FieldError>) {
    let versions_path = path.child("versions");
    let mut stored = 0;
    let mut seen: Vec<&str> = Vec::new();
    for (at, version) in spec.list("versions").enumerate() {
        let path = versions_path.index(at);
        let name = version.str("name");
        for detail in syntax::dns1035_label(name) {
            problems.push(FieldError::invalid(&path.child("name"), name, detail));
        }
        if seen.contains(&name) {
            problems.push(FieldError::invalid(
                &versions_path,
                "",
                "must contain unique version names",
            ));
        }
        seen.push(name);
        stored += usize::from(version.get("storage").and_then(Ref::as_bool) == Some(true));
    }
    if stored != 1 {
        let detail = "must have exactly one version marked as storage version";
        problems.push(FieldError::invalid(
            &versions_path,
            Shown(spec.get("versions").map(Ref::to_json).unwrap_or_default()),
            detail,
        ));
    }
    validate_schemas(spec, path, problems);
    validate_columns(spec, path, problems);
}

/// Where upstream looks for a member of the versions: in one place when it is the same in all of them.
fn places<'a>(spec: Ref<'a>, path: &FieldPath, member: &str, shared: &str) -> Vec<(FieldPath, Ref<'a>)> {
    let versions: Vec<Ref<'a>> = spec.list("versions").collect();
    let first = versions.first().and_then(|version| version.get(member));
    if versions.iter().all(|version| version.get(member) == first) {
        return first.map(|own| (path.child(shared), own)).into_iter().collect();
    }
    let own = versions.into_iter().enumerate();
    own.filter_map(|(at, version)| {
        let place = path.child("versions").index(at).child(member);
        Some((place, version.get(member)?))
    })
    .collect()
}

fn validate_schemas(spec: Ref<'_>, path: &FieldPath, problems: &mut Vec<FieldError>) {
    for (at, version) in spec.list("versions").enumerate() {
        if version.at(&["schema", "openAPIV3Schema"]).is_none() {
            let place = path.child("versions").index(at);
            let place = place.child("schema").child("openAPIV3Schema");
            problems.push(FieldError::required(&place, ""));
        }
    }
    for (place, schema) in places(spec, path, "schema", "validation") {
        if let Some(schema) = schema.get("openAPIV3Schema") {
            let place = place.child("openAPIV3Schema");
            let before = problems.len();
            problems.extend(structural::check_structural(schema, &place));
            if problems.len() == before {
                problems.extend(structural::check_defaults(schema, &place));
            }
            problems.extend(structural::check_openapi(schema, &place));
        }
    }
}

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

fn validate_columns(spec: Ref<'_>, path: &FieldPath, problems: &mut Vec<FieldError>) {
    let member = "additionalPrinterColumns";
    for (place, columns) in places(spec, path, member, member) {
        for (at, column) in columns.items().enumerate() {
            validate_column(column, &place.index(at), problems);
        }
    }
}

fn validate_column(column: Ref<'_>, path: &FieldPath, problems: &mut Vec<FieldError>) {
    if column.str("name").is_empty() {
        problems.push(FieldError::required(&path.child("name"), ""));
    }
    let mut one_of = |name: &str, known: &[&str]| {
        let value = column.str(name);
        if !value.is_empty() && !known.contains(&value) {
            let detail = format!("must be one of {}", known.join(","));
            problems.push(FieldError::invalid(&path.child(name), value, detail));
        }
        value.is_empty()
    };
    let untyped = one_of("type", &COLUMN_TYPES);
    one_of("format", &COLUMN_FORMATS);
    if untyped {
        let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
        problems.push(FieldError::required(&path.child("type"), detail));
    }
    let (place, json_path) = (path.child("JSONPath"), column.str("jsonPath"));
    if json_path.is_empty() {
        problems.push(FieldError::required(&place, ""));
    } else if !json_path.starts_with('.') || JsonPath::parse(json_path).is_none() {
        let detail = "must be a simple json path starting with .";
        problems.push(FieldError::invalid(&place, json_path, detail));
    }
}

/// How versions become each other.
fn validate_conversion(spec: Ref<'_>, path: &FieldPath, problems: &mut Vec<FieldError>) {
    let path = path.child("conversion");
    let Some(conversion) = spec.get("conversion") else {
        return;
    };
    let webhook = conversion.get("webhook").filter(|own| !own.is_null());
    let strategy = conversion.str("strategy");
    match strategy {
        "Webhook" => {
            let client = webhook.and_then(|own| own.get("clientConfig"));
            if client.is_none_or(Ref::is_null) {
                let detail = "required when strategy is set to Webhook";
                problems.push(FieldError::required(&path.child("webhookClientConfig"), detail));
            }
            if webhook.is_none_or(|own| own.list("conversionReviewVersions").len() == 0) {
                problems.push(FieldError::required(&path.child("conversionReviewVersions"), ""));
            }
        }
        "None" => {
            let detail = "should not be set when strategy is not set to Webhook";
            for (member, name) in [
                ("clientConfig", "webhookClientConfig"),
                ("conversionReviewVersions", "conversionReviewVersions"),
            ] {
                let own = webhook.and_then(|own| own.get(member));
                if own.is_some_and(|own| !own.is_null() && !own.is_empty()) {
                    problems.push(FieldError::forbidden(&path.child(name), detail));
                }
            }
        }
        other => {
            let known = ["None", "Webhook"];
            problems.push(FieldError::not_supported(&path.child("strategy"), other, &known));
        }
    }
}

fn validate_names(names: Option<Ref<'_>>, path: &FieldPath, problems: &mut Vec<FieldError>) {
    let text = |field: &str| names.map_or("", |names| names.str(field));
    for field in ["plural", "singular", "kind", "listKind"] {
        let value = text(field);
        if value.is_empty() {
            problems.push(FieldError::required(&path.child(field), ""));
            continue;
        }
        for detail in syntax::dns1035_label(&value.to_lowercase()) {
            problems.push(FieldError::invalid(&path.child(field), value, detail));
        }
    }
    for (at, short) in names
        .into_iter()
        .flat_map(|names| names.list("shortNames"))
        .enumerate()
    {
        let short = short.as_str().unwrap_or_default();
        for detail in syntax::dns1035_label(short) {
            problems.push(FieldError::invalid(
                &path.child("shortNames").index(at),
                short,
                detail,
            ));
        }
    }
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        let detail = "kind and listKind may not be the same";
        problems.push(FieldError::invalid(
            &path.child("listKind"),
            text("listKind"),
            detail,
        ));
    }
}

/// Group, plural and scope are the address of stored objects.
pub(super) fn validate_update(object: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut problems = validate(object);
    let established = old
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("conditions"));
    let established = established
        .into_iter()
        .any(|c| c.str("type") == "Established" && c.str("status") == "True");
    let mut fixed = vec![vec!["spec", "group"], vec!["spec", "names", "plural"]];
    if established {
        fixed.extend([vec!["spec", "scope"], vec!["spec", "names", "kind"]]);
    }
    for path in fixed {
        let (new, was) = (object.str_at(&path), old.str_at(&path));
        if new != was {
            problems.push(FieldError::invalid(
                &FieldPath::new(&path.join(".")),
                new,
                "field is immutable",
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use machinery_schema::Tree;

    /// A definition with these members in its spec and in its one version; what the real server said of it.
    #[track_caller]
    fn check(spec: &str, version: &str, expected: &[&str]) {
        let object = format!(
            r#"{{"metadata":{{"name":"boats.t.dev"}},"spec":{{"group":"t.dev","scope":"Namespaced",
            "names":{{"plural":"boats","singular":"boat","kind":"Boat","listKind":"BoatList"}},
            "versions":[{{"name":"v1","served":true,"storage":true{version}}}]{spec}}}}}"#
        );
        let object = Tree::from_json(&object).unwrap();
        let problems: Vec<String> = super::validate(object.root())
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(problems, expected);
    }

    const SCHEMA: &str = r#","schema":{"openAPIV3Schema":{"type":"object"}}"#;

    #[test]
    fn definitions() {
        check("", SCHEMA, &[]);
        check(
            "",
            "",
            &["spec.versions[0].schema.openAPIV3Schema: Required value"],
        );
        check(
            "",
            r#","schema":{"openAPIV3Schema":{"properties":{"a":{}}}}"#,
            &[
                "spec.validation.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields",
                "spec.validation.openAPIV3Schema.type: Required value: must not be empty at the root",
            ],
        );
        let defaults = r#","schema":{"openAPIV3Schema":{"type":"object","properties":{
            "a":{"type":"object","default":{"unknown":1,"count":"x"},"properties":{
                "count":{"type":"integer","default":"three"},
                "list":{"type":"array","items":{"type":"string","default":5},"default":["a",1]},
                "embedded":{"type":"object","x-kubernetes-embedded-resource":true,
                    "x-kubernetes-preserve-unknown-fields":true,"default":{"metadata":{}}},
                "pick":{"type":"string","enum":["a","b"],"default":"c"},
                "must":{"type":"object","required":["it"],"properties":{"it":{"type":"string"}},"default":{}},
                "null":{"type":"string","default":null},
                "open":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"default":{"a":1}},
                "short":{"type":"string","maxLength":3,"default":"long"}}}}}}"#;
        check(
            "",
            &defaults.replace('\n', ""),
            &[
                r#"spec.validation.openAPIV3Schema.properties[a].default: Invalid value: {"count":"x","unknown":1}: must not have unknown fields"#,
                r#"spec.validation.openAPIV3Schema.properties[a].default.count: Invalid value: "string": count in body must be of type integer: "string""#,
                r#"spec.validation.openAPIV3Schema.properties[a].properties[count].default: Invalid value: "string":  in body must be of type integer: "string""#,
                "spec.validation.openAPIV3Schema.properties[a].properties[embedded].default.apiVersion: Required value",
                "spec.validation.openAPIV3Schema.properties[a].properties[embedded].default.kind: Required value",
                r#"spec.validation.openAPIV3Schema.properties[a].properties[list].default.[1]: Invalid value: "integer": [1] in body must be of type string: "integer""#,
                r#"spec.validation.openAPIV3Schema.properties[a].properties[list].items.default: Invalid value: "integer":  in body must be of type string: "integer""#,
                "spec.validation.openAPIV3Schema.properties[a].properties[must].default.it: Required value",
                r#"spec.validation.openAPIV3Schema.properties[a].properties[pick].default: Unsupported value: "c": supported values: "a", "b""#,
                "spec.validation.openAPIV3Schema.properties[a].properties[short].default: Too long: may not be more than 3 bytes",
            ],
        );
        let forbidden = r#","schema":{"openAPIV3Schema":{"type":"object","nullable":true,"properties":{
            "both":{"type":"object","properties":{"x":{"type":"string"}},"additionalProperties":{"type":"string"}},
            "keys":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a","b"],
                "items":{"type":"object","properties":{"a":{"type":"string"}}}},
            "metadata":{"type":"object","properties":{"name":{"type":"string","default":"x"}}},
            "rule":{"type":"string","x-kubernetes-validations":[{"rule":" ","reason":"Because"}]},
            "set":{"type":"object","x-kubernetes-list-type":"bag"},
            "strin":{"type":"strin"},
            "unique":{"type":"array","uniqueItems":true,"items":{"type":"string"}}}}}"#;
        check(
            "",
            &forbidden.replace('\n', ""),
            &[
                "spec.validation.openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root",
                "spec.validation.openAPIV3Schema.properties[both].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
                "spec.validation.openAPIV3Schema.properties[keys].items.properties[a].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                r#"spec.validation.openAPIV3Schema.properties[keys].x-kubernetes-list-map-keys: Invalid value: ["a","b"]: entries must all be names of item properties"#,
                "spec.validation.openAPIV3Schema.properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata",
                "spec.validation.openAPIV3Schema.properties[rule].x-kubernetes-validations[0].rule: Required value: rule is not specified",
                r#"spec.validation.openAPIV3Schema.properties[rule].x-kubernetes-validations[0].reason: Unsupported value: "Because": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired""#,
                r#"spec.validation.openAPIV3Schema.properties[set].type: Invalid value: "object": must be array if x-kubernetes-list-type is specified"#,
                r#"spec.validation.openAPIV3Schema.properties[set].x-kubernetes-list-type: Unsupported value: "bag": supported values: "atomic", "set", "map""#,
                r#"spec.validation.openAPIV3Schema.properties[strin].type: Unsupported value: "strin": supported values: "array", "boolean", "integer", "number", "object", "string""#,
                "spec.validation.openAPIV3Schema.properties[unique].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ],
        );
        check(
            r#","conversion":{"strategy":"Webhook"}"#,
            SCHEMA,
            &[
                "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
                "spec.conversion.conversionReviewVersions: Required value",
            ],
        );
        check(
            "",
            &format!(r#"{SCHEMA},"additionalPrinterColumns":[{{"name":"","type":"foo","jsonPath":"x"}}]"#),
            &[
                "spec.additionalPrinterColumns[0].name: Required value",
                r#"spec.additionalPrinterColumns[0].type: Invalid value: "foo": must be one of boolean,date,integer,number,string"#,
                r#"spec.additionalPrinterColumns[0].JSONPath: Invalid value: "x": must be a simple json path starting with ."#,
            ],
        );
        check(
            r#","preserveUnknownFields":true"#,
            SCHEMA,
            &[
                "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
            ],
        );
    }
}
