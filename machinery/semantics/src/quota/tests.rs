use super::*;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn measure(kind: &str, object: &Value) -> Measured {
    fn typed<T: serde::de::DeserializeOwned>(object: &Value) -> T {
        serde_json::from_value(object.clone()).unwrap()
    }
    match kind {
        "Pod" => pod(&typed(object)),
        "Service" => service(&typed(object)),
        "PersistentVolumeClaim" => volume_claim(&typed(object)),
        "ResourceClaim" => resource_claim(&typed(object)),
        _ => Evaluator::of("", "configmaps").count(),
    }
}

fn list(amounts: &Value) -> ResourceList {
    let amounts: BTreeMap<String, String> = serde_json::from_value(amounts.clone()).unwrap();
    ResourceList(
        amounts
            .into_iter()
            .map(|(name, amount)| (name, amount.parse().unwrap()))
            .collect(),
    )
}

/// Cases of upstream's `TestPodEvaluatorUsage`, `TestServiceEvaluatorUsage`, `TestPersistentVolumeClaimEvaluatorUsage` and
/// `TestResourceClaimEvaluatorUsage`.
#[test]
fn quota_usage_is_upstreams() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../../testdata/quota_usage.json")).unwrap();
    for case in cases {
        let measured = measure(case["kind"].as_str().unwrap(), &case["object"]);
        assert_eq!(measured.usage(now()), list(&case["usage"]), "{}", case["name"]);
    }
}

fn quota(name: &str, scopes: &[ScopeSelector], hard: Value, used: Value) -> Quota {
    Quota {
        name: name.to_owned(),
        scopes: scopes.to_vec(),
        wanted: list(&hard),
        hard: Some(list(&hard)),
        used: Some(list(&used)),
        ..Quota::default()
    }
}

fn asked(kind: &str, object: &Value, old: Option<&Value>) -> Asked {
    let plural = match kind {
        "Pod" => "pods",
        "Service" => "services",
        "PersistentVolumeClaim" => "persistentvolumeclaims",
        _ => "configmaps",
    };
    let spec = (kind == "Pod").then(|| serde_json::from_value::<PodSpec>(object["spec"].clone()).unwrap());
    Asked {
        evaluator: Evaluator::of("", plural),
        is_update: old.is_some(),
        is_status: false,
        new: measure(kind, object),
        old: old.map(|old| measure(kind, old)),
        missing: spec.as_ref().map(missing_resources).unwrap_or_default(),
        classes: DeviceClasses::default(),
    }
}

fn run(quotas: &mut [Quota], asked: &Asked, limited: &[LimitedResource]) -> Result<bool, String> {
    let of = (
        "",
        if asked.evaluator == Evaluator::Pods {
            "pods"
        } else {
            "services"
        },
    );
    check_request(quotas, asked, of, limited, now()).map_err(|refusal| match refusal {
        Refusal::Forbidden(why) => why,
        Refusal::Error(why) => format!("error: {why}"),
    })
}

fn a_pod(requests: Value, limits: Value) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests, "limits": limits}}]}})
}

#[track_caller]
fn refused(quota: Quota, asked: &Asked, expected: &str) {
    let mut quotas = [quota];
    let before = quotas.clone();
    assert_eq!(run(&mut quotas, asked, &[]).unwrap_err(), expected);
    assert_eq!(quotas, before);
}

/// Cases of upstream's `resourcequota/admission_test.go`: within, beyond, unknown, unnamed, negative.
#[test]
fn quota_admission_answers_as_upstreams() {
    let hard = json!({"cpu": "3", "memory": "100Gi", "pods": "5"});
    let used = json!({"cpu": "1", "memory": "50Gi", "pods": "3"});
    let within = asked(
        "Pod",
        &a_pod(json!({"cpu": "100m", "memory": "2Gi"}), json!({})),
        None,
    );
    let mut quotas = [quota("quota", &[], hard.clone(), used.clone())];
    assert_eq!(run(&mut quotas, &within, &[]), Ok(true));
    assert_eq!(
        quotas[0].used,
        Some(list(&json!({"cpu": "1100m", "memory": "52Gi", "pods": "4"})))
    );
    let beyond = asked(
        "Pod",
        &a_pod(json!({"cpu": "3", "memory": "2Gi"}), json!({})),
        None,
    );
    refused(
        quota("quota", &[], hard.clone(), used),
        &beyond,
        "exceeded quota: quota, requested: cpu=3, used: cpu=1, limited: cpu=3",
    );
    refused(
        quota("quota", &[], hard.clone(), json!({"pods": "3"})),
        &within,
        "status unknown for quota: quota, resources: cpu,memory,pods",
    );
    let unnamed = json!({"spec": {"containers": [{"name": "b"}, {"name": "a", "resources": {"requests": {"cpu": "1"}}}]}});
    refused(
        quota("quota", &[], hard, json!({})),
        &asked("Pod", &unnamed, None),
        "failed quota: quota: must specify cpu for: b; memory for: a,b",
    );
    let negative = asked("Pod", &a_pod(json!({"cpu": "-1"}), json!({})), None);
    refused(
        quota("quota", &[], json!({"cpu": "1"}), json!({"cpu": "0"})),
        &negative,
        "quota usage is negative for resource(s): cpu,requests.cpu",
    );
}

/// `TestAdmitHandlesNegativePVCUpdates`, `TestAdmitHandlesResourceUpdate` and the update cases of services.
#[test]
fn quota_charges_updates_what_they_add() {
    let ports = |count: u16| json!({"spec": {"type": "NodePort", "ports": (0..count).map(|at| json!({"port": at})).collect::<Vec<_>>()}});
    let limits = json!({"services": "10", "services.nodeports": "3"});
    let mut quotas = [quota(
        "quota",
        &[],
        limits.clone(),
        json!({"services": "1", "services.nodeports": "2"}),
    )];
    assert_eq!(
        run(&mut quotas, &asked("Service", &ports(3), Some(&ports(2))), &[]),
        Ok(true)
    );
    assert_eq!(
        quotas[0].used,
        Some(list(&json!({"services": "1", "services.nodeports": "3"})))
    );
    assert_eq!(
        run(&mut quotas, &asked("Service", &ports(1), Some(&ports(3))), &[]),
        Ok(false)
    );
    assert_eq!(
        run(&mut quotas, &asked("Service", &ports(4), Some(&ports(3))), &[]).unwrap_err(),
        "exceeded quota: quota, requested: services.nodeports=1, used: services.nodeports=3, limited: services.nodeports=3"
    );
}

/// A pod that comes into a scope by an update is charged as a whole.
#[test]
fn quota_scopes_choose_what_is_charged() {
    let best = json!({"spec": {"containers": [{"name": "c"}]}});
    let burst = a_pod(json!({"cpu": "1"}), json!({}));
    let with = |pod: &Value, member: &str, value: Value| {
        let mut pod = pod.clone();
        pod["spec"][member] = value;
        pod
    };
    let ending = with(&burst, "activeDeadlineSeconds", json!(5));
    let critical = with(&burst, "priorityClassName", json!("critical"));
    let selector = |scope: &str, operator: &str, values: &[&str]| ScopeSelector {
        scope: scope.to_owned(),
        operator: operator.to_owned(),
        values: values.iter().map(|own| (*own).to_owned()).collect(),
    };
    let term = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "k", "namespaceSelector": {}}]}});
    let far = with(&burst, "affinity", term);
    for (scope, matching, other) in [
        (ScopeSelector::exists("BestEffort"), &best, &burst),
        (ScopeSelector::exists("NotBestEffort"), &burst, &best),
        (ScopeSelector::exists("Terminating"), &ending, &burst),
        (ScopeSelector::exists("NotTerminating"), &burst, &ending),
        (ScopeSelector::exists("CrossNamespacePodAffinity"), &far, &burst),
        (selector("PriorityClass", "Exists", &[]), &critical, &burst),
        (selector("PriorityClass", "In", &["critical"]), &critical, &burst),
        (
            selector("PriorityClass", "NotIn", &["critical"]),
            &burst,
            &critical,
        ),
        (selector("PriorityClass", "DoesNotExist", &[]), &burst, &critical),
    ] {
        let mut quotas = [quota(
            "q",
            std::slice::from_ref(&scope),
            json!({"pods": "1"}),
            json!({"pods": "1"}),
        )];
        assert!(
            run(&mut quotas, &asked("Pod", matching, None), &[]).is_err(),
            "{scope}"
        );
        assert_eq!(
            run(&mut quotas, &asked("Pod", other, None), &[]),
            Ok(false),
            "{scope}"
        );
    }
    let terminating = ScopeSelector::exists("Terminating");
    let mut quotas = [quota(
        "q",
        &[terminating],
        json!({"pods": "2"}),
        json!({"pods": "0"}),
    )];
    assert_eq!(
        run(&mut quotas, &asked("Pod", &ending, Some(&burst)), &[]),
        Ok(true)
    );
    assert_eq!(quotas[0].used, Some(list(&json!({"pods": "1"}))));
}

/// `TestAdmitLimitedResourceNoQuota`, `TestAdmitLimitedScopeWithCoverQuota` and their kin.
#[test]
fn quota_limits_by_default_what_is_configured() {
    let pod = a_pod(json!({"cpu": "1"}), json!({}));
    let limited = LimitedResource {
        resource: "pods".to_owned(),
        match_contains: vec!["requests.cpu".to_owned()],
        ..LimitedResource::default()
    };
    let one = asked("Pod", &pod, None);
    let told = run(&mut [], &one, std::slice::from_ref(&limited)).unwrap_err();
    assert_eq!(told, "insufficient quota to consume: requests.cpu");
    let mut covered = [quota(
        "q",
        &[],
        json!({"requests.cpu": "2"}),
        json!({"requests.cpu": "0"}),
    )];
    assert_eq!(run(&mut covered, &one, &[limited]), Ok(true));
    let scope = ScopeSelector {
        scope: "PriorityClass".to_owned(),
        operator: "In".to_owned(),
        values: vec!["critical".to_owned()],
    };
    let limited = [LimitedResource {
        resource: "pods".to_owned(),
        match_scopes: vec![scope.clone()],
        ..LimitedResource::default()
    }];
    let mut critical = pod.clone();
    critical["spec"]["priorityClassName"] = json!("critical");
    let critical = asked("Pod", &critical, None);
    assert_eq!(
        run(&mut [], &critical, &limited).unwrap_err(),
        "error: insufficient quota to match these scopes: [{PriorityClass In [critical]}]"
    );
    assert_eq!(run(&mut [], &one, &limited), Ok(false));
    let mut covered = [quota("q", &[scope], json!({"pods": "2"}), json!({"pods": "0"}))];
    assert_eq!(run(&mut covered, &critical, &limited), Ok(true));
}

#[test]
fn quota_is_looked_at_when_a_pod_frees_something() {
    let running = pod(&serde_json::from_value::<Pod>(a_pod(json!({"cpu": "2"}), json!({}))).unwrap());
    let mut ended = a_pod(json!({"cpu": "2"}), json!({}));
    ended["status"] = json!({"phase": "Failed"});
    let ended = measure("Pod", &ended);
    let mut placed = a_pod(json!({"cpu": "2"}), json!({}));
    placed["spec"]["nodeName"] = json!("n1");
    assert!(running.frees_by_becoming(&ended, now()));
    assert!(!running.frees_by_becoming(&measure("Pod", &placed), now()));
    assert!(!ended.frees_by_becoming(&ended, now()));
    assert!(running.frees_by_becoming(&measure("Pod", &a_pod(json!({"cpu": "1"}), json!({}))), now()));
}

#[test]
fn quota_names_lead_to_resources() {
    for (name, expected) in [
        ("count/deployments.apps", Some(("apps", "deployments"))),
        ("count/widgets.a.example.com", Some(("a.example.com", "widgets"))),
        ("count/pods", Some(("", "pods"))),
        ("secrets", Some(("", "secrets"))),
        ("pods", None),
        ("requests.cpu", None),
    ] {
        assert_eq!(counted_resource(name), expected, "{name}");
    }
    let none = DeviceClasses::default();
    assert!(Evaluator::Pods.matches_resource("requests.example.com/dongle", &none));
    assert!(!Evaluator::Pods.matches_resource("requests.storage", &none));
    assert!(
        Evaluator::VolumeClaims.matches_resource("gold.storageclass.storage.k8s.io/requests.storage", &none)
    );
    assert!(Evaluator::of("", "configmaps").matches_resource("configmaps", &none));
}
