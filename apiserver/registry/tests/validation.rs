//! Objects that upstream's server refused, and the sentences with which it did (`testdata/validation/cases.json`).
//!
//! The objects are in defaulted form, as validation sees them. Each list of problems was given by kube-apiserver 1.37.

use apiserver_registry::{apps, batch, coordination, core, discovery, rbac};
use machinery_meta::FieldError;
use machinery_schema::{Ref, Strictness, decode_json};

type Validate = fn(Ref<'_>) -> Vec<FieldError>;

fn rule_of(kind: &str) -> Validate {
    match kind {
        "Pod" => core::pod::validation::validate,
        "Service" => core::service::validation::validate,
        "ConfigMap" => core::config_map::validation::validate,
        "Secret" => core::secret::validation::validate,
        "Event" => core::event::validation::validate_core,
        "Deployment" => apps::deployment::validation::validate,
        "ReplicaSet" => apps::replica_set::validation::validate,
        "Job" => batch::job::validation::validate,
        "Lease" => coordination::lease::validation::validate,
        "EndpointSlice" => discovery::endpoint_slice::validation::validate,
        "Role" => rbac::validation::validate_role,
        other => panic!("no rule for {other}"),
    }
}

#[test]
fn problems_are_upstreams() {
    let cases: serde_json::Value =
        serde_json::from_str(include_str!("../testdata/validation/cases.json")).expect("the cases are JSON");
    for case in cases.as_array().expect("a list") {
        let named = case["kind"].as_str().expect("a kind");
        let (version, kind) = named.split_once(' ').expect("apiVersion and kind");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let (schema, ty) = machinery_api::schema_for(group, version, kind).expect("a built-in kind");
        let text = case["object"].to_string();
        let decoded = decode_json(schema, ty, text.as_bytes(), Strictness::Report).expect(named);
        assert_eq!(decoded.strict_errors, Vec::<String>::new(), "{named}");
        let problems: Vec<String> = rule_of(kind)(decoded.tree.root())
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected: Vec<&str> = case["problems"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|p| p.as_str())
            .collect();
        assert_eq!(problems, expected, "{named}");
    }
}
