//! Requests as upstream's `admission/admission_test.go` makes them, and what their writers and the audit log get to read.

use super::*;
use crate::Remarks;
use crate::plugins::tests::{Objects, block_on};
use machinery_meta::UserInfo;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Records warnings and annotations of a request.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) warnings: Mutex<Vec<String>>,
    pub(super) annotations: Mutex<Vec<(String, String)>>,
    pub(super) time_left: Option<Duration>,
}

#[async_trait]
impl Remarks for Said {
    fn warn(&self, warning: String) {
        self.warnings.lock().push(warning);
    }

    fn annotate(&self, key: String, value: String) {
        let key = key.strip_prefix(ANNOTATION).unwrap().to_owned();
        self.annotations.lock().push((key, value));
    }

    fn time_left(&self) -> Option<Duration> {
        self.time_left
    }

    async fn heavy_from(&self, _: usize) -> Result<(), AdmissionError> {
        Ok(())
    }
}

/// Each event as its labels, joined.
#[derive(Debug, Default)]
struct Counts(Mutex<Vec<String>>);

impl Recorder for Counts {
    fn evaluated(&self, labels: [&str; 7]) {
        self.0.lock().push(labels.join(" "));
    }

    fn exempted(&self, labels: [&str; 3]) {
        self.0.lock().push(format!("exempt {}", labels.join(" ")));
    }

    fn failed(&self, labels: [&str; 4]) {
        self.0.lock().push(format!("error {}", labels.join(" ")));
    }
}

const EXEMPT_USER: &str = "exempt-user";

pub(super) fn configuration() -> Configuration {
    let set = |name: &str| [name.to_owned()].into();
    Configuration {
        usernames: set(EXEMPT_USER),
        namespaces: set("exempt-ns"),
        runtime_classes: set("exempt-class"),
        ..Configuration::default()
    }
}

pub(super) fn namespace(labels: Value) -> String {
    let labels = labels.as_object().unwrap().iter();
    let labels: serde_json::Map<String, Value> = labels
        .map(|(key, value)| (format!("{ANNOTATION}{key}"), value.clone()))
        .collect();
    json!({"metadata": {"name": "test", "labels": labels}}).to_string()
}

fn namespaces() -> Objects {
    let all = |level: &str| namespace(json!({"enforce": level, "audit": level, "warn": level}));
    [
        ("exempt-ns", all("restricted")),
        ("implicit", namespace(json!({}))),
        ("privileged", all("privileged")),
        ("baseline", all("baseline")),
        ("baseline-warn", namespace(json!({"warn": "baseline"}))),
        ("baseline-audit", namespace(json!({"audit": "baseline"}))),
        ("restricted", all("restricted")),
        ("old", namespace(json!({"enforce": "baseline", "enforce-version": "v1.20", "audit": "privileged", "warn": "privileged"}))),
        ("future", namespace(json!({"enforce": "baseline", "enforce-version": "v1.99", "warn": "privileged"}))),
        ("invalid", namespace(json!({"enforce": "not-a-valid-level", "audit-version": "v1"}))),
    ]
    .into_iter()
    .fold(Objects::default(), |objects, (name, json)| objects.with("namespaces", "", name, &json))
}

/// A request and what came of it.
struct Case<'a> {
    user: &'a str,
    namespace: &'a str,
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
    object: Value,
    old: Option<Value>,
}

#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// Empty where the request is allowed.
    refused: String,
    warnings: Vec<String>,
    annotations: Vec<(String, String)>,
    counted: Vec<String>,
}

impl Case<'_> {
    fn run(&self) -> Outcome {
        let (said, counts) = (Said::default(), Arc::new(Counts::default()));
        let reader: Arc<dyn ObjectReader> = Arc::new(namespaces());
        let recorder: Arc<dyn Recorder> = counts.clone();
        let plugin = PodSecurity::new(&reader, configuration(), recorder, Arc::new(|| Duration::ZERO));
        let user = UserInfo::named(self.user, ["dev"]);
        let operation = if self.old.is_some() {
            Operation::Update
        } else {
            Operation::Create
        };
        let request = Request {
            user: &user,
            operation,
            group: self.group,
            kind: "",
            resource: self.resource,
            subresource: self.subresource,
            namespace: self.namespace,
            name: "x",
            dry_run: false,
            host: None,
            reinvocation: None,
            remarks: &said,
        };
        let tree = |own: &Value| Tree::from_json(&own.to_string()).unwrap();
        let old = self.old.as_ref().map(tree);
        let done = match plugin.handles(&request) {
            true => block_on(plugin.validate(&request, Some(&tree(&self.object)), old.as_ref())),
            false => Ok(()),
        };
        Outcome {
            refused: done.err().map(|error| error.to_string()).unwrap_or_default(),
            warnings: said.warnings.into_inner(),
            annotations: said.annotations.into_inner(),
            counted: std::mem::take(&mut *counts.0.lock()),
        }
    }
}

fn pod_spec(privileged: bool, class: Option<&str>, image: &str) -> Value {
    json!({"runtimeClassName": class, "containers": [{"name": "c", "image": image, "securityContext": {"privileged": privileged}}]})
}

fn restricted_spec() -> Value {
    json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]})
}

fn pod(namespace: &str, spec: Value) -> Case<'_> {
    Case {
        user: "jane",
        namespace,
        group: "",
        resource: "pods",
        subresource: "",
        object: json!({"metadata": {"name": "x"}, "spec": spec}),
        old: None,
    }
}

fn deployment(namespace: &str, spec: Value) -> Case<'_> {
    Case {
        group: "apps",
        resource: "deployments",
        object: json!({"spec": {"template": {"spec": spec}}}),
        ..pod(namespace, json!({}))
    }
}

const PRIVILEGED: &str = "privileged (container \"c\" must not set securityContext.privileged=true)";
const RESTRICTED: &str = "privileged (container \"c\" must not set securityContext.privileged=true), allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";

#[track_caller]
fn check(case: &Case<'_>, refused: &str, warnings: &[&str], annotations: &[(&str, &str)], counted: &[&str]) {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let annotations = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let expected = Outcome {
        refused: refused.to_owned(),
        warnings: owned(warnings),
        annotations: annotations.collect(),
        counted: owned(counted),
    };
    assert_eq!(case.run(), expected);
}

#[test]
fn pods_that_violate_are_refused_audited_and_warned_of_by_mode() {
    let bad = || pod_spec(true, None, "a");
    let violates = format!("violates PodSecurity \"baseline:latest\": {PRIVILEGED}");
    let would = format!("would {}", violates.replacen("violates", "violate", 1));
    check(
        &pod("baseline", bad()),
        &violates,
        &[],
        &[
            ("enforce-policy", "baseline:latest"),
            ("audit-violations", &would),
        ],
        &[
            "deny baseline latest enforce create pod ",
            "deny baseline latest audit create pod ",
        ],
    );
    check(
        &pod("baseline-warn", bad()),
        "",
        &[&would],
        &[("enforce-policy", "privileged:latest")],
        &[
            "allow privileged latest enforce create pod ",
            "deny baseline latest warn create pod ",
        ],
    );
    check(
        &pod("baseline-audit", bad()),
        "",
        &[],
        &[
            ("enforce-policy", "privileged:latest"),
            ("audit-violations", &would),
        ],
        &[
            "allow privileged latest enforce create pod ",
            "deny baseline latest audit create pod ",
        ],
    );
    let restricted = format!("violates PodSecurity \"restricted:latest\": {RESTRICTED}");
    assert_eq!(pod("restricted", bad()).run().refused, restricted);
    check(
        &pod("restricted", restricted_spec()),
        "",
        &[],
        &[("enforce-policy", "restricted:latest")],
        &["allow restricted latest enforce create pod "],
    );
    check(
        &pod("old", bad()),
        &violates.replace("latest", "v1.20"),
        &[],
        &[("enforce-policy", "baseline:v1.20")],
        &["deny baseline v1.20 enforce create pod "],
    );
    check(
        &pod("future", bad()),
        &violates.replace("latest", "v1.99"),
        &[],
        &[("enforce-policy", "baseline:v1.99")],
        &["deny baseline future enforce create pod "],
    );
}

#[test]
fn pods_of_privileged_namespaces_are_allowed_unread() {
    for own in ["implicit", "privileged"] {
        check(
            &pod(own, json!({"containers": 7})),
            "",
            &[],
            &[("enforce-policy", "privileged:latest")],
            &["allow privileged latest enforce create pod "],
        );
        check(&deployment(own, json!({"containers": 7})), "", &[], &[], &[]);
    }
}

#[test]
fn pods_of_an_invalid_level_are_held_to_the_strictest_one() {
    let label = "metadata.labels[pod-security.kubernetes.io/";
    let level = format!(
        "{label}enforce]: Invalid value: \"not-a-valid-level\": must be one of privileged, baseline, restricted"
    );
    let version = format!("{label}audit-version]: Invalid value: \"v1\": must be \"latest\" or \"v1.x\"");
    let error = format!("Failed to parse policy: [{level}, {version}]");
    check(
        &pod("invalid", pod_spec(true, None, "a")),
        &format!("violates PodSecurity \"restricted:latest\": {RESTRICTED}"),
        &[],
        &[("error", &error), ("enforce-policy", "restricted:latest")],
        &[
            "error false create pod ",
            "deny restricted latest enforce create pod ",
        ],
    );
    check(
        &deployment("invalid", pod_spec(true, None, "a")),
        "",
        &[],
        &[("error", &error)],
        &["error false create controller "],
    );
}

#[test]
fn exempt_requests_are_allowed_and_say_why() {
    let exempt = |case: Case<'_>, why: &str, resource: &str| {
        let counted = format!("exempt create {resource} ");
        check(&case, "", &[], &[("exempt", why)], &[&counted]);
    };
    let bad = || pod_spec(true, None, "a");
    let by_user = |case| Case {
        user: EXEMPT_USER,
        ..case
    };
    let class = || pod_spec(true, Some("exempt-class"), "a");
    exempt(pod("exempt-ns", bad()), "namespace", "pod");
    exempt(deployment("exempt-ns", bad()), "namespace", "controller");
    exempt(by_user(pod("restricted", bad())), "user", "pod");
    exempt(by_user(deployment("restricted", bad())), "user", "controller");
    exempt(pod("restricted", class()), "runtimeClass", "pod");
    exempt(deployment("restricted", class()), "runtimeClass", "controller");
    assert_ne!(
        pod("restricted", pod_spec(true, Some("other"), "a"))
            .run()
            .refused,
        ""
    );
    assert_ne!(pod("restricted", pod_spec(true, Some(""), "a")).run().refused, "");
}

#[test]
fn workloads_are_warned_of_and_audited_and_never_refused() {
    let would = format!("would violate PodSecurity \"baseline:latest\": {PRIVILEGED}");
    let counted = [
        "deny baseline latest audit create controller ",
        "deny baseline latest warn create controller ",
    ];
    let annotations = [("audit-violations", would.as_str())];
    check(
        &deployment("baseline", pod_spec(true, None, "a")),
        "",
        &[&would],
        &annotations,
        &counted,
    );
    let cron_job = Case {
        group: "batch",
        resource: "cronjobs",
        object: json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": pod_spec(true, None, "a")}}}}}),
        ..pod("baseline", json!({}))
    };
    check(&cron_job, "", &[&would], &annotations, &counted);
    let without_template = Case {
        resource: "replicationcontrollers",
        object: json!({"spec": {"replicas": 1}}),
        ..pod("baseline", json!({}))
    };
    check(&without_template, "", &[], &[], &[]);
    let scaled = Case {
        subresource: "scale",
        ..deployment("baseline", pod_spec(true, None, "a"))
    };
    check(&scaled, "", &[], &[], &[]);
    check(&deployment("restricted", restricted_spec()), "", &[], &[], &[]);
    // A namespace that only enforces warns of what it enforces.
    assert_eq!(
        deployment("old", pod_spec(true, None, "a")).run().warnings,
        Vec::<String>::new()
    );
}

#[test]
fn updates_are_evaluated_where_they_change_an_image_or_add_a_container() {
    let update = |old: Value, new: Value, subresource| Case {
        old: Some(json!({"spec": old})),
        subresource,
        ..pod("baseline", new)
    };
    let (a, b) = (|| pod_spec(true, None, "a"), || pod_spec(true, None, "b"));
    check(&update(a(), a(), ""), "", &[], &[], &[]);
    check(&update(a(), a(), "resize"), "", &[], &[], &[]);
    check(&update(a(), b(), "status"), "", &[], &[], &[]);
    let refused = update(a(), b(), "").run();
    assert!(refused.refused.starts_with("violates PodSecurity"), "{refused:?}");
    assert_eq!(refused.counted[0], "deny baseline latest enforce update pod ");
    let with_debugger = |privileged: bool| {
        let mut spec = pod_spec(false, None, "a");
        spec["ephemeralContainers"] =
            json!([{"name": "debug", "securityContext": {"privileged": privileged}}]);
        spec
    };
    let added = |privileged| {
        update(
            pod_spec(false, None, "a"),
            with_debugger(privileged),
            "ephemeralcontainers",
        )
        .run()
    };
    assert_eq!(added(false).refused, "");
    let refused = added(true);
    assert!(
        refused.refused.contains("container \"debug\" must not set"),
        "{refused:?}"
    );
    assert_eq!(
        refused.counted[0],
        "deny baseline latest enforce update pod ephemeralcontainers"
    );
    // A deployment's update is looked at whatever changes.
    let scaled = Case {
        old: Some(json!({})),
        ..deployment("baseline", a())
    };
    assert_eq!(scaled.run().warnings.len(), 1);
}

#[test]
fn pods_that_cannot_be_evaluated_are_refused_and_workloads_are_not() {
    let absent = "failed to lookup namespace \"absent\"";
    check(
        &pod("absent", pod_spec(true, None, "a")),
        absent,
        &[],
        &[(
            "error",
            &format!("Internal error occurred: {absent}: namespaces \"absent\" not found"),
        )],
        &["error true create pod "],
    );
    check(
        &deployment("absent", pod_spec(true, None, "a")),
        "",
        &[],
        &[("error", &format!("{absent}: namespaces \"absent\" not found"))],
        &["error true create controller "],
    );
    let unreadable = pod("baseline", json!({"containers": 7})).run();
    assert_eq!(unreadable.refused, "failed to decode object");
    assert_eq!(unreadable.counted, ["error true create pod "]);
    let unreadable = deployment("baseline", json!({"containers": 7})).run();
    assert_eq!((&*unreadable.refused, unreadable.annotations.len()), ("", 1));
}
