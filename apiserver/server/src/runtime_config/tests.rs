use super::*;

/// `group/version/resource` of what is not served.
#[track_caller]
fn off(values: &str) -> Vec<String> {
    let config = RuntimeConfig::parse([values]).unwrap();
    let rows = kinds::built_in_rows()
        .into_iter()
        .filter(|row| !config.serves(row));
    let mut off: Vec<String> = rows
        .map(|row| format!("{}/{}/{}", row.gvk.group, row.gvk.version, row.plural))
        .collect();
    off.sort();
    assert_eq!(off.is_empty(), config.serves_all(), "{values}");
    off
}

#[test]
fn runtime_config_switches_versions_and_resources() {
    assert!(off("").is_empty());
    assert!(off("api/all=true,apps/v1,storage.k8s.io/v1beta1=false").is_empty());
    let autoscaling = ["autoscaling/v2/horizontalpodautoscalers"];
    assert_eq!(off("autoscaling/v2=false"), autoscaling);
    assert_eq!(off("batch/v1/cronjobs=false"), ["batch/v1/cronjobs"]);
    let batch = off("batch/v1=false,batch/v1/cronjobs=true");
    assert_eq!(batch, ["batch/v1/jobs"]);
    // The API's own group has to be named, and that of priority and fairness.
    let named = "apiregistration.k8s.io/v1=true,flowcontrol.apiserver.k8s.io/v1=true,/v1=true";
    let rest = off(&format!("api/all=false,{named}"));
    assert!(
        rest.iter()
            .all(|own| !own.starts_with("/v1/") && !own.starts_with("metrics"))
    );
    assert!(rest.contains(&"apps/v1/deployments".to_owned()));
    // A later key of many goes before an earlier one.
    assert!(off("api/all=false,api/ga=true").is_empty());
}

#[track_caller]
fn refused(values: &str, expected: &str) {
    assert_eq!(RuntimeConfig::parse([values]).unwrap_err(), expected);
}

#[test]
fn runtime_config_is_refused_in_upstreams_words() {
    refused("api/all=false", "invalid runtime-config with only api/all=false");
    refused("api/beta=yes", "invalid value api/beta=yes");
    refused("v1=true", "runtime-config invalid key v1");
    refused("a/b/c/d", "runtime-config invalid key a/b/c/d");
    refused(
        "boats.test/v1=true,a.test/v1",
        "unknown api groups a.test/v1,boats.test/v1",
    );
    refused(
        "apps/v9=true",
        "group version apps/v9 that has not been registered",
    );
    refused(
        "apps/v1=maybe",
        r#"invalid value of apps/v1: maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax"#,
    );
    refused(
        "apps/v1/Deployments=false",
        r#"invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not "Deployments""#,
    );
    refused(
        "apiregistration.k8s.io/v1=false",
        "API group/version apiregistration.k8s.io/v1 must be enabled",
    );
    refused(
        "storage.k8s.io/v1beta1=true",
        "this server does not have storage.k8s.io/v1beta1",
    );
}

/// Upstream's `TestValidateAPIPriorityAndFairness` (controlplane/apiserver/options/validation_test.go), and rows of ours.
#[test]
fn runtime_config_leaves_priority_and_fairness_its_configurations() {
    let conflict = |key: &str| format!("{key}=false conflicts with --enable-priority-and-fairness=true");
    for (values, key) in [
        ("api/all=false,apps/v1=true", "api/all"),
        ("api/ga=false,apps/v1=true", "api/ga"),
        ("api/all=true,api/ga=false", "api/ga"),
        (
            "flowcontrol.apiserver.k8s.io/v1=false",
            "flowcontrol.apiserver.k8s.io/v1",
        ),
        (
            "api/ga=true,flowcontrol.apiserver.k8s.io/v1=false",
            "flowcontrol.apiserver.k8s.io/v1",
        ),
    ] {
        refused(values, &conflict(key));
    }
    for values in [
        "",
        "api/beta=false",
        "api/all=false,api/ga=true",
        "flowcontrol.apiserver.k8s.io/v1beta3=false",
        "api/ga=false,flowcontrol.apiserver.k8s.io/v1=true,apiregistration.k8s.io/v1=true",
        "flowcontrol.apiserver.k8s.io/v1=true",
    ] {
        assert_eq!(RuntimeConfig::parse([values]).err(), None, "{values}");
    }
}

#[test]
fn runtime_config_names_versions_that_are_absent() {
    let absent = |values: &str| RuntimeConfig::parse([values]).unwrap().absent().len();
    assert_eq!(absent("apps/v1=true"), 0);
    assert_eq!(absent("api/all=true"), ABSENT.len());
    let alpha = ABSENT
        .iter()
        .filter(|(_, version)| version.contains("alpha"))
        .count();
    assert_eq!(absent("api/alpha=true"), alpha);
    assert_eq!(absent("api/all=true,api/beta=false"), alpha);
}

#[test]
fn runtime_config_knows_no_version_as_absent_that_is_there() {
    let present = present();
    for (group, version) in ABSENT {
        assert!(
            !present.contains(&(group.to_owned(), version.to_owned())),
            "{group}/{version}"
        );
    }
}
