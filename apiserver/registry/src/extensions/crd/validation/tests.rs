//! What the real server said of whole definitions.

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
