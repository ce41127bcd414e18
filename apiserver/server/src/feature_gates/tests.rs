use super::*;

#[track_caller]
fn parsed(values: &[&str]) -> FeatureGates {
    FeatureGates::parse(values.iter().copied()).unwrap()
}

/// The words of upstream's refusal, or of ours.
#[track_caller]
fn refused(values: &[&str], expected: &str) {
    let said = match FeatureGates::parse(values.iter().copied()) {
        Ok(gates) => gates.refusal(GateComponent::Server).unwrap(),
        Err(words) => words,
    };
    assert_eq!(said, expected);
}

#[test]
fn feature_gates_are_refused_in_upstreams_words() {
    refused(&["NoSuchGate=true"], "unrecognized feature gate: NoSuchGate");
    refused(&["EnvFiles"], "missing bool value for EnvFiles");
    refused(
        &["EnvFiles=yes"],
        r#"invalid value of EnvFiles=yes, err: strconv.ParseBool: parsing "yes": invalid syntax"#,
    );
    refused(
        &["ImageVolume=false"],
        "cannot set feature gate ImageVolume to false, feature is locked to true",
    );
    refused(
        &["ImageVolume=false,GitRepoVolumeDriver=true"],
        "[cannot set feature gate GitRepoVolumeDriver to true, feature is locked to false, \
         cannot set feature gate ImageVolume to false, feature is locked to true]",
    );
    refused(&["wardle:A=true"], "component not registered: wardle");
    refused(
        &["kube:EnvFiles=false", "WatchList=false"],
        "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use",
    );
}

#[test]
fn feature_gates_that_the_server_does_not_switch_are_refused_by_name() {
    refused(
        &["ContainerStopSignals=true"],
        "cannot set feature gate ContainerStopSignals to true, this server does not have the feature",
    );
    refused(
        &["PodLevelResources=false"],
        "cannot set feature gate PodLevelResources to false, this server always has the feature on",
    );
    let all = parsed(&["AllAlpha=true"]).refusal(GateComponent::Server).unwrap();
    assert!(all.contains("more gates"), "{all}");
}

#[test]
fn feature_gates_by_default_or_without_effect_are_taken() {
    for values in [
        &["AllAlpha=false"][..],
        &["AllAlpha=false,PodLevelResources=true,ImageVolume=1"],
        &["kube:WatchListClient=false", "kube:MemoryQoS=false"],
        &["WatchList=f,EnvFiles=false", ""],
    ] {
        assert_eq!(parsed(values).refusal(GateComponent::Server), None, "{values:?}");
    }
    assert!(parsed(&["AllAlpha=false,WatchList=true"]).are_defaults());
    assert!(!parsed(&["WatchList=false"]).are_defaults());
    let server_only = parsed(&["WatchList=false"]).refusal(GateComponent::Agent);
    assert_eq!(server_only, None);
    let agents = parsed(&["PodLevelResources=false"]).refusal(GateComponent::Agent);
    let words = "cannot set feature gate PodLevelResources to false, this agent always has the feature on";
    assert_eq!(agents.as_deref(), Some(words));
}

#[test]
fn feature_gates_of_a_stage_yield_to_those_that_are_named() {
    let gates = parsed(&["AllBeta=false,EnvFiles=true"]);
    assert!(gates.is_enabled("EnvFiles"));
    assert!(!gates.is_enabled("WatchList"));
    // Locked and of another stage.
    assert!(gates.is_enabled("ImageVolume") && gates.is_enabled("MutatingAdmissionPolicy"));
}

#[test]
fn feature_gates_have_upstreams_stages() {
    let gates = parsed(&["WatchList=false,AllAlpha=false"]);
    let all: Vec<_> = gates.all().collect();
    let of = |name: &str| all.iter().find(|own| own.0 == name).copied();
    assert_eq!(of("WatchList"), Some(("WatchList", "BETA", false)));
    assert_eq!(of("ImageVolume"), Some(("ImageVolume", "", true)));
    assert_eq!(of("AllAlpha"), Some(("AllAlpha", "ALPHA", false)));
    assert!(all.len() > 200, "{}", all.len());
}

#[test]
fn feature_gate_effects_name_gates_that_can_be_switched() {
    let gates = machinery_api::table().feature_gates();
    let mut names: Vec<&str> = Vec::new();
    for row in effects::rows() {
        let gate = gates.iter().find(|gate| gate.name == row.gate);
        assert!(gate.is_some_and(|gate| !gate.locked), "{}", row.gate);
        assert!(row.of.iter().any(|own| *own != "-"), "{}", row.gate);
        for own in row.of {
            assert!(["honoured", "elsewhere", "same", "-"].contains(&own), "{own}");
            let needs_reason = ["honoured", "same"].contains(&own);
            assert!(!needs_reason || !row.reason.is_empty(), "{}", row.gate);
        }
        names.push(row.gate);
    }
    assert!(names.is_sorted());
}
