//! Requests as upstream's `admission/admission_test.go` makes them, and what their writers and the audit log get to read.

use super::*;
use crate::Remarks;
use crate::plugins::tests::{Objects, block_on};
use machinery_meta::UserInfo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};

/// Takes what is said of a request.
#[derive(Debug, Default)]
struct Said {
    warnings: Mutex<Vec<String>>,
    annotations: Mutex<Vec<(String, String)>>,
    time_left: Option<Duration>,
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

fn configuration() -> Configuration {
    let set = |name: &str| [name.to_owned()].into();
    Configuration {
        usernames: set(EXEMPT_USER),
        namespaces: set("exempt-ns"),
        runtime_classes: set("exempt-class"),
        ..Configuration::default()
    }
}

fn namespace(labels: Value) -> String {
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

/// A namespace's write: labels after and before, without their prefix; no labels before on a creation.
#[derive(Default)]
struct Labelled<'a> {
    new: Value,
    old: Option<Value>,
    name: &'a str,
    pods: Vec<Value>,
    default: Option<LevelVersion>,
    /// Time that passes at each look at the clock.
    pace: Duration,
    time_left: Option<Duration>,
}

impl Labelled<'_> {
    /// Its warnings, or what is wrong with it.
    fn run(&self) -> Result<Vec<String>, String> {
        let objects = self.pods.iter().fold(Objects::default(), |objects, pod| {
            objects.with(
                "pods",
                "test",
                pod["metadata"]["name"].as_str().unwrap(),
                &pod.to_string(),
            )
        });
        let reader: Arc<dyn ObjectReader> = Arc::new(objects);
        let looks = AtomicU32::new(0);
        let pace = self.pace;
        let clock: Clock = Arc::new(move || pace * looks.fetch_add(1, Ordering::Relaxed));
        let mut configuration = configuration();
        configuration.defaults.enforce = self.default.unwrap_or(LevelVersion::PRIVILEGED);
        let mut plugin = PodSecurity::new(&reader, configuration, Arc::new(Uncounted), clock);
        plugin.bounds.pods = 4;
        let said = Said {
            time_left: self.time_left,
            ..Said::default()
        };
        let user = UserInfo::named("jane", ["dev"]);
        let name = if self.name.is_empty() { "test" } else { self.name };
        let request = Request {
            user: &user,
            operation: if self.old.is_some() {
                Operation::Update
            } else {
                Operation::Create
            },
            group: "",
            kind: "Namespace",
            resource: "namespaces",
            subresource: "",
            namespace: "",
            name,
            dry_run: false,
            host: None,
            reinvocation: None,
            remarks: &said,
        };
        let tree = |labels: &Value| {
            let mut object: Value = serde_json::from_str(&namespace(labels.clone())).unwrap();
            object["metadata"]["name"] = name.into();
            Tree::from_json(&object.to_string()).unwrap()
        };
        assert!(plugin.handles(&request));
        let old = self.old.as_ref().map(tree);
        match block_on(plugin.validate(&request, Some(&tree(&self.new)), old.as_ref())) {
            Ok(()) => Ok(said.warnings.into_inner()),
            Err(AdmissionError::Invalid(problems)) => Err(problems
                .iter()
                .map(FieldError::to_string)
                .collect::<Vec<_>>()
                .join("; ")),
            Err(other) => panic!("{other}"),
        }
    }
}

fn existing(name: &str, reason: &str) -> Value {
    let spec = match reason {
        "host namespaces" => json!({"hostPID": true}),
        "hostPath volumes" => json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
        "both" => json!({"hostPID": true, "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
        "none" => json!({}),
        other => panic!("{other}"),
    };
    let mut pod = json!({"metadata": {"name": name}, "spec": spec});
    pod["spec"]["containers"] = json!([]);
    pod
}

fn four() -> Vec<Value> {
    let reason = "host namespaces";
    let mut pods = vec![
        existing("no-class", reason),
        existing("of-class-1", reason),
        existing("of-class-2", reason),
    ];
    pods[1]["spec"]["runtimeClassName"] = "exempt-class".into();
    pods[2]["spec"]["runtimeClassName"] = "other".into();
    pods.push(existing("of-class-3", "both"));
    pods
}

#[test]
fn namespaces_are_created_with_valid_labels_alone() {
    let create = |new: Value| Labelled {
        new,
        ..Labelled::default()
    };
    for level in ["privileged", "baseline", "restricted"] {
        assert_eq!(
            create(json!({"enforce": level, "enforce-version": "v1.0"})).run(),
            Ok(vec![])
        );
    }
    let level = create(json!({"enforce": "unknown"})).run().unwrap_err();
    assert_eq!(
        level,
        "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"unknown\": must be one of privileged, baseline, restricted"
    );
    let version = create(json!({"enforce": "privileged", "warn-version": "unknown"}))
        .run()
        .unwrap_err();
    assert_eq!(
        version,
        "metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"unknown\": must be \"latest\" or \"v1.x\""
    );
    let exempt = Labelled {
        name: "exempt-ns",
        ..create(json!({"enforce": "restricted"}))
    };
    assert_eq!(
        exempt.run().unwrap(),
        [
            "namespace \"exempt-ns\" is exempt from Pod Security, and the policy (enforce=restricted:latest) will be ignored"
        ]
    );
    let plain = Labelled {
        name: "exempt-ns",
        ..create(json!({}))
    };
    assert_eq!(plain.run(), Ok(vec![]));
}

#[test]
fn namespaces_that_relax_or_keep_their_policy_look_at_no_pods() {
    let quiet = |new: Value, old: Value| {
        let case = Labelled {
            new,
            old: Some(old),
            pods: four(),
            ..Labelled::default()
        };
        assert_eq!(case.run(), Ok(vec![]), "{} {:?}", case.new, case.old);
    };
    let of = |level: &str, version: &str| json!({"enforce": level, "enforce-version": version});
    quiet(of("restricted", "v1.0"), of("restricted", "v1.0"));
    quiet(of("unknown", "v1.0"), of("unknown", "v1.0"));
    quiet(of("baseline", "unknown"), of("baseline", "unknown"));
    quiet(of("baseline", "v1.0"), of("restricted", "v1.0"));
    quiet(of("baseline", "latest"), json!({"enforce": "restricted"}));
    quiet(of("privileged", "latest"), of("restricted", "v1.0"));
    quiet(json!({}), of("restricted", "v1.0"));
    quiet(json!({"warn": "restricted", "audit": "restricted"}), json!({}));
}

#[test]
fn namespaces_keep_labels_that_were_wrong_before_and_get_no_new_ones() {
    let change = |new: Value, old: Value| Labelled {
        new,
        old: Some(old),
        ..Labelled::default()
    };
    let (good, bad) = (json!({"enforce": "restricted"}), json!({"enforce": "unknown"}));
    assert!(change(bad.clone(), good.clone()).run().is_err());
    assert!(change(json!({"enforce": "other"}), bad.clone()).run().is_err());
    assert_eq!(change(bad.clone(), bad.clone()).run(), Ok(vec![]));
    assert_eq!(change(good, bad).run(), Ok(vec![]));
    let exempt = Labelled {
        name: "exempt-ns",
        pods: four(),
        ..change(
            json!({"enforce": "restricted", "enforce-version": "v1.0", "audit": "restricted", "warn": "baseline"}),
            json!({}),
        )
    };
    assert_eq!(
        exempt.run().unwrap(),
        [
            "namespace \"exempt-ns\" is exempt from Pod Security, and the policy (enforce=restricted:v1.0, audit=restricted:latest, warn=baseline:latest) will be ignored"
        ]
    );
}

#[test]
fn namespaces_that_tighten_their_policy_are_warned_of_existing_pods() {
    let tighten = || Labelled {
        new: json!({"enforce": "baseline"}),
        old: Some(json!({})),
        pods: four(),
        ..Labelled::default()
    };
    let head =
        "existing pods in namespace \"test\" violate the new PodSecurity enforce level \"baseline:latest\"";
    let pods = [
        "no-class (and 1 other pod): host namespaces",
        "of-class-3: hostPath volumes",
    ];
    let both = "of-class-3: host namespaces, hostPath volumes";
    assert_eq!(tighten().run().unwrap(), [head, pods[0], both]);
    // Without labels the server's default counts.
    let implied = Labelled {
        new: json!({}),
        old: Some(json!({"enforce": "privileged"})),
        default: Some(LevelVersion {
            level: Level::Baseline,
            ..LevelVersion::PRIVILEGED
        }),
        ..tighten()
    };
    assert_eq!(implied.run().unwrap(), [head, pods[0], both]);
    let other_version = Labelled {
        new: json!({"enforce": "baseline", "enforce-version": "v1.0"}),
        old: Some(json!({"enforce": "restricted"})),
        ..tighten()
    };
    assert_eq!(other_version.run().unwrap()[0], head.replace("latest", "v1.0"));
    let fine = Labelled {
        pods: vec![existing("a", "none")],
        ..tighten()
    };
    assert_eq!(fine.run(), Ok(vec![]));
    let many = Labelled {
        pods: ["a", "b", "c"]
            .map(|name| existing(name, "hostPath volumes"))
            .into(),
        ..tighten()
    };
    assert_eq!(
        many.run().unwrap(),
        [head, "a (and 2 other pods): hostPath volumes"]
    );
}

#[test]
fn existing_pods_are_bounded_and_one_of_each_controller_comes_first() {
    let tighten = |pods: Vec<Value>| Labelled {
        new: json!({"enforce": "baseline"}),
        old: Some(json!({})),
        pods,
        ..Labelled::default()
    };
    let head =
        "existing pods in namespace \"test\" violate the new PodSecurity enforce level \"baseline:latest\"";
    let only = |checked, of| {
        format!(
            "new PodSecurity enforce level only checked against the first {checked} of {of} existing pods"
        )
    };
    let five = (1..=5)
        .map(|at| existing(&format!("pod{at}"), "host namespaces"))
        .collect();
    let told = tighten(five).run().unwrap();
    assert_eq!(
        told,
        [&*only(4, 5), head, "pod1 (and 3 other pods): host namespaces"]
    );
    let mut pods = Vec::new();
    for at in 1..=4 {
        let mut exempt = existing(&format!("a-exempt{at}"), "both");
        exempt["spec"]["runtimeClassName"] = "exempt-class".into();
        pods.push(exempt);
        for (set, reason) in [("1", "host namespaces"), ("2", "both")] {
            let mut replica = existing(&format!("replicaset{set}pod{at}"), reason);
            replica["metadata"]["ownerReferences"] = json!([{"uid": set, "controller": true}]);
            pods.push(replica);
        }
        pods.push(existing(&format!("unique{at}"), "hostPath volumes"));
    }
    let told = tighten(pods).run().unwrap();
    let expected = [
        &*only(4, 12),
        head,
        "replicaset1pod1: host namespaces",
        "replicaset2pod1: host namespaces, hostPath volumes",
        "unique1 (and 1 other pod): hostPath volumes",
    ];
    assert_eq!(told, expected);
    assert_eq!(BOUNDS.pods, 3_000);
    assert_eq!(BOUNDS.time, Duration::from_secs(1));
}

#[test]
fn existing_pods_are_looked_at_for_a_second_and_half_of_the_time_that_is_left() {
    let tighten = |pace, time_left| Labelled {
        new: json!({"enforce": "baseline"}),
        old: Some(json!({})),
        pods: ["a", "b", "c"]
            .map(|name| existing(name, "host namespaces"))
            .into(),
        pace: Duration::from_millis(pace),
        time_left,
        ..Labelled::default()
    };
    let cut = |case: Labelled<'_>| case.run().unwrap().swap_remove(0);
    let failed = "failed to list pods while checking new PodSecurity enforce level";
    assert_eq!(cut(tighten(1_100, None)), failed);
    let cut_short = cut(tighten(400, None));
    assert!(
        cut_short.contains("only checked against the first 2 of 3"),
        "{cut_short}"
    );
    let cut_shorter = cut(tighten(60, Some(Duration::from_millis(200))));
    assert!(
        cut_shorter.contains("only checked against the first 1 of 3"),
        "{cut_shorter}"
    );
    assert!(!cut(tighten(60, None)).contains("only checked"));
}
