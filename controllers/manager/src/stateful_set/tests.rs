//! Upstream's tables as data: plans (`stateful_set_control_test.go`), owners of claims and identity
//! (`stateful_set_utils_test.go`).

use super::claims::{
    ClaimUser, claim, has_other_controller, has_volumes, is_owned_rightly, owner_references, volumes,
};
use super::identity::{ordinal_of, parent_and_ordinal};
use super::plan::{Plan, PodRef, Snapshot, Step, members, plan};
use super::pods::template;
use super::status::status;
use crate::views::template::PodTemplate;
use crate::views::{PodView, StatefulSetView};
use machinery_client::Object;
use machinery_client::object::object_of;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const NOW: &str = "2026-01-01T01:00:00Z";

fn set(spec: &Value) -> Arc<Object<StatefulSetView>> {
    let mut full = json!({"selector": {"matchLabels": {"app": "web"}}, "serviceName": "svc",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}});
    for (name, value) in spec.as_object().unwrap() {
        full[name] = value.clone();
    }
    let set = json!({"metadata": {"name": "web", "namespace": "n", "uid": "set"}, "spec": full});
    Arc::new(object_of(&set.to_string()).unwrap())
}

/// `ORDINAL REVISION [STATE…]`; a pod is ready since long ago unless its state says otherwise.
fn pod(text: &str) -> PodRef {
    let words: Vec<_> = text.split(' ').collect();
    let is = |state: &str| words[2..].contains(&state);
    let name = format!("web-{}", words[0]);
    let mut pod = json!({"metadata": {"name": name, "namespace": "n", "uid": name, "labels": {
        "app": "web", "controller-revision-hash": words[1], "statefulset.kubernetes.io/pod-name": name}}});
    let phase = match () {
        () if is("failed") => "Failed",
        () if is("succeeded") => "Succeeded",
        () => "Running",
    };
    let since = if is("justready") {
        NOW
    } else {
        "2026-01-01T00:00:00Z"
    };
    pod["status"] = json!({"phase": phase});
    if phase == "Running" && !is("running") {
        pod["status"]["conditions"] =
            json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]);
    }
    if is("terminating") {
        pod["metadata"]["deletionTimestamp"] = json!(NOW);
    }
    Arc::new(object_of(&pod.to_string()).unwrap())
}

fn with<T>(set: &Arc<Object<StatefulSetView>>, pods: &[String], look: impl Fn(&Snapshot<'_>) -> T) -> T {
    let pods = pods.iter().map(|text| pod(text));
    let place = |pod: PodRef| (ordinal_of("web", pod.name()).unwrap(), pod);
    look(&Snapshot {
        set: set.clone(),
        pods: pods.map(place).collect(),
        current: "old",
        update: "new",
        claim_templates: Vec::new(),
        claim: &|_| None,
        now: NOW.parse().unwrap(),
    })
}

#[derive(Deserialize)]
struct PlanRow {
    name: String,
    set: Value,
    pods: Vec<String>,
    replicas: Option<Vec<String>>,
    condemned: Option<Vec<i32>>,
    update: Option<Vec<i32>>,
}

#[test]
fn stateful_set_plans_are_upstreams() {
    let rows: Vec<PlanRow> =
        serde_json::from_str(include_str!("../../testdata/stateful_set/plan.json")).unwrap();
    for row in rows {
        let plan = with(&set(&row.set), &row.pods, plan);
        let (replicas, condemned, update) = words(&plan);
        assert_eq!(replicas, row.replicas.unwrap_or_default(), "{}", row.name);
        assert_eq!(condemned, row.condemned.unwrap_or_default(), "{}", row.name);
        assert_eq!(update, row.update.unwrap_or_default(), "{}", row.name);
    }
}

fn words(plan: &Plan) -> (Vec<String>, Vec<i32>, Vec<i32>) {
    let ordinal = |pod: &PodRef| ordinal_of("web", pod.name()).unwrap();
    let step = |step: &Step| match step {
        Step::Create { ordinal, current } => {
            format!("create {ordinal}{}", if *current { " current" } else { "" })
        }
        Step::FillClaims(pod) => format!("claims {}", ordinal(pod)),
        Step::Repair(pod) => format!("repair {}", ordinal(pod)),
        Step::Delete(pod) => format!("delete {}", ordinal(pod)),
    };
    (
        plan.replicas.iter().map(step).collect(),
        plan.condemned.iter().map(ordinal).collect(),
        plan.update.iter().map(ordinal).collect(),
    )
}

/// A set of more pods than a machine has memory for is planned a batch at a time.
#[test]
fn stateful_set_plan_is_bounded() {
    let set = set(&json!({"replicas": i32::MAX, "podManagementPolicy": "Parallel"}));
    assert_eq!(with(&set, &[], plan).replicas.len(), 500);
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RetentionRow {
    name: String,
    when_scaled: String,
    when_deleted: String,
    replicas: i32,
    ordinal: i32,
    owners: Vec<(String, String, String, String, bool)>,
    right: bool,
    pod: Option<bool>,
    set: Option<bool>,
}

#[test]
fn stateful_set_claims_have_the_owners_of_their_policy() {
    let rows: Vec<RetentionRow> =
        serde_json::from_str(include_str!("../../testdata/stateful_set/retention.json")).unwrap();
    for row in rows {
        let set = set(
            &json!({"replicas": row.replicas, "persistentVolumeClaimRetentionPolicy":
            {"whenScaled": row.when_scaled, "whenDeleted": row.when_deleted}}),
        );
        let reference = |(version, kind, name, uid, controller): &(String, String, String, String, bool)| json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": controller});
        let written: Vec<_> = row.owners.iter().map(reference).collect();
        let claim =
            json!({"metadata": {"name": "c", "namespace": "n", "uid": "c", "ownerReferences": written}});
        let claim = object_of::<()>(&claim.to_string()).unwrap();
        let name = format!("web-{}", row.ordinal);
        let user = ClaimUser {
            name: &name,
            uid: "pod",
            ordinal: row.ordinal,
        };
        let right = is_owned_rightly(&set, user, &claim.header.owners);
        assert_eq!(right, row.right, "{}: {:?}", row.name, row.owners);
        let after = owner_references(&set, user, &claim.header, &written);
        let controls = |uid: &str| {
            let ours = after.iter().find(|owner| owner["uid"] == uid);
            ours.is_some_and(|owner| owner["controller"] == true)
        };
        let owners = (
            row.pod.unwrap_or(controls("pod")),
            row.set.unwrap_or(controls("set")),
        );
        assert_eq!((controls("pod"), controls("set")), owners, "{}", row.name);
        let others = |all: &[Value]| all.iter().filter(|owner| owner["name"] == "rand").count();
        assert_eq!(others(&after), others(&written), "{}", row.name);
        assert!(row.right || has_other_controller(&claim.header.owners, &set, user) || after != written);
    }
}

#[test]
fn stateful_set_identity_is_read_from_names() {
    for (name, expected) in [
        ("web-1", (Some("web"), Some(1))),
        ("web-0", (Some("web"), Some(0))),
        ("a-web-12", (Some("a-web"), Some(12))),
        ("1-bar", (None, None)),
        ("web-01", (None, None)),
        ("web-", (None, None)),
        ("web", (None, None)),
        ("web-2147483648", (Some("web"), None)),
    ] {
        assert_eq!(parent_and_ordinal(name), expected, "{name}");
    }
    assert_eq!(ordinal_of("we", "web-1"), None);
}

#[test]
fn stateful_set_members_have_its_name_and_labels() {
    let set = set(&json!({"replicas": 2}));
    let stranger = object_of::<PodView>(
        r#"{"metadata":{"name":"x-0","namespace":"n","uid":"x","labels":{"app":"web"}}}"#,
    );
    let stranger = Arc::new(stranger.unwrap());
    let found = members(
        &set,
        vec![pod("0 old"), stranger.clone()],
        vec![pod("1 old"), stranger, pod("2 old terminating")],
    );
    let names = |pods: &[PodRef]| pods.iter().map(|pod| pod.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(found.pods.keys().copied().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(
        (names(&found.adopt), names(&found.release)),
        (vec!["web-1".to_owned()], vec!["x-0".to_owned()])
    );
}

#[test]
fn stateful_set_pod_has_name_host_and_claims_of_its_ordinal() {
    let set = set(&json!({"replicas": 2, "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}));
    let templates =
        [json!({"metadata": {"name": "data", "labels": {"app": "x", "own": "y"}}, "spec": {"a": 1}})];
    let own = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [],
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]}});
    let own: PodTemplate = serde_json::from_value(own).unwrap();
    let edited = template(&set, &own, "rev", &templates, 1).unwrap();
    let labels: BTreeMap<&str, &str> = edited
        .metadata
        .labels
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .collect();
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "web-1");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "1");
    assert_eq!(labels["controller-revision-hash"], "rev");
    let spec: Value = serde_json::from_str(edited.spec.get()).unwrap();
    assert_eq!(
        (&spec["hostname"], &spec["subdomain"]),
        (&json!("web-1"), &json!("svc"))
    );
    let wanted = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}}, {"name": "tmp", "emptyDir": {}}]);
    assert_eq!(spec["volumes"], wanted);
    assert_eq!(
        volumes("web", &[], 1, &[json!({"name": "tmp"})]),
        [json!({"name": "tmp"})]
    );
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    let made = claim(&set, &templates[0], "data-web-1", &labels, 1);
    let meta = &made["metadata"];
    assert_eq!(meta["name"], "data-web-1");
    assert_eq!(meta["labels"], json!({"app": "web", "own": "y"}));
    assert_eq!(meta["ownerReferences"][0]["uid"], "set");
    assert_eq!(made["spec"], json!({"a": 1}));
}

#[test]
fn stateful_set_status_counts_and_completes() {
    let set = set(&json!({"replicas": 3, "minReadySeconds": 30}));
    let pods = |all: &[&str]| all.iter().map(|own| (*own).to_owned()).collect::<Vec<_>>();
    let going = with(
        &set,
        &pods(&["0 old", "1 old justready", "2 new running"]),
        |own| status(own, 2, 1),
    );
    let counts = (going.replicas, going.ready_replicas, going.available_replicas);
    assert_eq!(counts, (3, 2, 1));
    assert_eq!((going.current_replicas, going.updated_replicas), (1, 1));
    assert_eq!(
        (going.current_revision.as_str(), going.collision_count),
        ("old", Some(2))
    );
    let done = with(&set, &pods(&["0 new", "1 new", "2 new"]), |own| status(own, 0, 0));
    assert_eq!(
        (done.current_revision.as_str(), done.current_replicas),
        ("new", 3)
    );
}

/// CPU time of this thread: other work on the machine does not count.
fn cpu_nanoseconds() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

fn claim_templates(count: usize) -> Vec<Value> {
    let template = |number| json!({"metadata": {"name": format!("t{number}")}});
    (0..count).map(template).collect()
}

/// A pod whose volumes are those of so many claim templates, in the other order.
fn pod_of_claims(count: usize) -> PodRef {
    let mut volumes = volumes("web", &claim_templates(count), 0, &[]);
    volumes.reverse();
    let pod = json!({"metadata": {"name": "web-0", "namespace": "n", "uid": "web-0", "labels": {
        "app": "web", "controller-revision-hash": "new", "statefulset.kubernetes.io/pod-name": "web-0",
        "apps.kubernetes.io/pod-index": "0"}},
        "spec": {"volumes": volumes}, "status": {"phase": "Running"}});
    Arc::new(object_of(&pod.to_string()).unwrap())
}

/// Attempts to see a cost that no other program has raised.
const ATTEMPTS: usize = 10;

#[test]
fn stateful_set_claims_cost_in_proportion() {
    let set = set(&json!({"replicas": 1, "podManagementPolicy": "Parallel"}));
    let cost = |count: usize| {
        let (pod, templates) = (pod_of_claims(count), claim_templates(count));
        let own = volumes("web", &templates, 0, &[]);
        let reversed: Vec<Value> = own.iter().rev().cloned().collect();
        let names: Vec<String> = (0..count).map(|number| format!("t{number}")).collect();
        let measure = || {
            let before = cpu_nanoseconds();
            let plan = plan(&Snapshot {
                set: set.clone(),
                pods: BTreeMap::from([(0, pod.clone())]),
                current: "new",
                update: "new",
                claim_templates: names.iter().map(String::as_str).collect(),
                claim: &|_| None,
                now: NOW.parse().unwrap(),
            });
            assert!(plan.replicas.is_empty(), "{plan:?}");
            assert!(has_volumes(&reversed, &own));
            assert_eq!(volumes("web", &templates, 0, &reversed).len(), count);
            cpu_nanoseconds() - before
        };
        (0..3).map(|_| measure()).min().unwrap()
    };
    // Squares would be 64 times as much at every attempt; other programs make a single one dearer.
    let mut seen = (0..ATTEMPTS).map(|_| (cost(500), cost(4_000)));
    assert!(
        seen.any(|(few, many)| many < 24 * few),
        "eight times as many cost more than 24 times as much"
    );
}

#[test]
fn stateful_set_volumes_are_compared_by_name_and_claim() {
    let volume =
        |name: &str, claim: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": claim}});
    let own = [volume("a", "1"), json!({"name": "b"})];
    assert!(has_volumes(&own, &[volume("a", "1")]));
    assert!(!has_volumes(&own, &[volume("a", "2")]));
    assert!(!has_volumes(&own, &[volume("b", "1")]));
    assert!(!has_volumes(&own, &[volume("c", "1")]));
}
