//! Labels of namespaces, and pods that are there when a policy becomes stricter.

use super::tests::{Said, configuration, namespace};
use super::*;
use crate::plugins::tests::{Objects, block_on};
use machinery_meta::UserInfo;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};

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
