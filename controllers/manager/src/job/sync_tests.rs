//! Upstream's tables of whole syncs (`job_controller_test.go` 1.37), in `testdata/job_sync.jsonl`.
//!
//! A row has the Job and its pods before, and the pods made and deleted, the finalizers taken off and the last status
//! that upstream's controller writes in one sync. Upstream writes status twice in it, before the finalizers go and after;
//! here every write is a round of its own, so a row is a few rounds, each of which sees the effects of the one before.

use super::backoff::Backoff;
use super::has_finalizer;
use super::plan::{Plan, plan};
use super::snapshot::{PodRef, Snapshot};
use super::tests::{job, pod, snapshot};
use serde::Deserialize;
use serde_json::{Map, Value, json};

const NOW: &str = "2026-01-01T00:00:00Z";
/// Rounds in which one sync comes to its end, and one to spare.
const ROUNDS: usize = 4;

#[derive(Deserialize)]
struct Row {
    name: String,
    spec: Value,
    #[serde(default)]
    status: Map<String, Value>,
    #[serde(default)]
    deleting: bool,
    /// Pods that were made or deleted have not been seen.
    #[serde(default)]
    unsettled: bool,
    /// Failures since the last success, and the time of the last.
    failures: Option<(u32, Option<String>)>,
    #[serde(default)]
    pods: Vec<Pod>,
    expect: Expected,
    /// Members of `expect` that are not as upstream has them, with the reason.
    #[serde(default)]
    differs: Map<String, Value>,
}

/// Pods that are alike; the members that are not named here are those of a pod's status.
#[derive(Deserialize)]
struct Pod {
    times: Option<usize>,
    uid: Option<String>,
    phase: Option<String>,
    index: Option<String>,
    /// Failures of the index before it, counted and ignored.
    #[serde(default)]
    before: Vec<String>,
    #[serde(default)]
    released: bool,
    deleting: Option<String>,
    node: Option<String>,
    #[serde(flatten)]
    status: Map<String, Value>,
}

#[derive(Deserialize, Default, Debug, PartialEq)]
#[serde(default)]
struct Expected {
    /// Pods that are made: their number, or their indexes.
    create: Value,
    /// Pods that are deleted, by the position of their likes in the row.
    delete: Vec<usize>,
    /// Finalizers that go.
    patches: usize,
    /// Failures that the pods of indexes carry on, counted and ignored.
    carried: Value,
    /// The last status that is written; none where nothing changes.
    status: Option<Map<String, Value>>,
}

impl Pod {
    fn json(&self, name: &str) -> Value {
        let uid = self.uid.as_deref().unwrap_or(name);
        let mut pod = pod(uid, self.phase.as_deref().unwrap_or(""), !self.released, None);
        pod["metadata"]["name"] = json!(name);
        let annotations = [
            ("batch.kubernetes.io/job-completion-index", self.index.as_ref()),
            ("batch.kubernetes.io/job-index-failure-count", self.before.first()),
            (
                "batch.kubernetes.io/job-index-ignored-failure-count",
                self.before.get(1),
            ),
        ];
        for (key, value) in annotations {
            if let Some(value) = value {
                pod["metadata"]["annotations"][key] = json!(value);
            }
        }
        if let Some(at) = &self.deleting {
            pod["metadata"]["deletionTimestamp"] = json!(at);
        }
        pod["spec"]["nodeName"] = json!(self.node.as_deref().unwrap_or(""));
        for (key, value) in &self.status {
            pod["status"][key] = value.clone();
        }
        pod
    }
}

/// The Job, and its pods with the position of their likes.
struct World {
    job: Value,
    pods: Vec<(usize, Value)>,
    settled: bool,
    backoff: Backoff,
}

impl World {
    fn of(row: &Row) -> Self {
        let mut job = job(row.spec.clone(), json!(row.status));
        let restart = row.spec.get("restartPolicy").cloned().unwrap_or(json!("Never"));
        job["spec"]["template"]["spec"]["restartPolicy"] = restart;
        for own in ["parallelism", "completions", "backoffLimit"] {
            job["spec"][own] = row.spec.get(own).cloned().unwrap_or(Value::Null);
        }
        if row.deleting {
            job["metadata"]["deletionTimestamp"] = json!(NOW);
        }
        let alike = row.pods.iter().enumerate();
        let pods = alike.flat_map(|(at, pod)| {
            let times = 0..pod.times.unwrap_or(1);
            times.map(move |number| (at, pod.json(&format!("p{at}-{number}"))))
        });
        let (failures, last) = row.failures.clone().unwrap_or_default();
        Self {
            pods: pods.collect(),
            job,
            settled: !row.unsettled,
            backoff: Backoff::of(failures, last.map(|at| at.parse().unwrap())),
        }
    }

    fn snapshot(&self) -> Snapshot {
        let pods: Vec<Value> = self.pods.iter().map(|(_, pod)| pod.clone()).collect();
        Snapshot {
            settled: self.settled,
            ..snapshot(&self.job, &pods, Some(self.backoff.clone()))
        }
    }

    fn pod(&mut self, of: &PodRef) -> &mut (usize, Value) {
        let mut pods = self.pods.iter_mut();
        pods.find(|(_, pod)| pod["metadata"]["name"] == of.name())
            .unwrap()
    }

    fn release(&mut self, of: &PodRef, seen: &mut Expected) {
        if has_finalizer(of) {
            self.pod(of).1["metadata"]["finalizers"] = json!([]);
            seen.patches += 1;
        }
    }

    fn delete(&mut self, of: &PodRef, seen: &mut Expected) {
        if !of.header.is_deleting() {
            let (at, pod) = self.pod(of);
            pod["metadata"]["deletionTimestamp"] = json!(NOW);
            seen.delete.push(*at);
        }
    }

    /// One round and its effects. The pods that are made are not seen before the end.
    fn round(&mut self, seen: &mut Expected) -> Plan {
        let snapshot = self.snapshot();
        let plan = plan(&snapshot);
        for pod in &plan.discard {
            self.release(pod, seen);
            self.delete(pod, seen);
        }
        for pod in &plan.delete {
            self.delete(pod, seen);
        }
        for pod in &plan.release {
            self.release(pod, seen);
        }
        self.job["status"] = serde_json::to_value(&plan.status).unwrap();
        self.backoff = plan.backoff.clone();
        plan
    }
}

fn created(plan: &Plan) -> Value {
    let indexes: Vec<u32> = plan.create.iter().flatten().copied().collect();
    match (plan.create.len(), indexes.len()) {
        (0, _) => Value::Null,
        (all, 0) => json!(all),
        _ => json!(indexes),
    }
}

/// Failures that the new pods of indexes carry on.
fn carried(snapshot: &Snapshot, plan: &Plan) -> Value {
    if snapshot.job.backoff_limit_per_index.is_none() || plan.create.is_empty() {
        return Value::Null;
    }
    let policy = snapshot
        .job
        .failure_policy
        .as_ref()
        .map(machinery_client::Folded::get);
    let next = |index: &u32| super::index_failures::counts_of_next(snapshot, policy.as_deref(), *index);
    let all = plan.create.iter().flatten();
    all.map(|index| (index.to_string(), json!(next(index))))
        .collect::<Map<_, _>>()
        .into()
}

fn sync(row: &Row) -> Expected {
    let mut world = World::of(row);
    let mut seen = Expected::default();
    let first = world.snapshot();
    if first.job.managed_elsewhere {
        return seen;
    }
    let mut made = 0;
    for round in 0..ROUNDS {
        let before = world.job["status"].clone();
        let plan = world.round(&mut seen);
        if round == 0 {
            seen.create = created(&plan);
            made = plan.create.len();
            seen.carried = carried(&first, &plan);
        } else if plan.release.is_empty() && world.job["status"] == before {
            break;
        }
    }
    seen.delete.sort_unstable();
    let active = world.job["status"]["active"].as_u64().unwrap_or(0);
    let active = usize::try_from(active).unwrap() + made;
    if active > 0 {
        world.job["status"]["active"] = json!(active);
    }
    let (status, before) = (comparable(&world.job["status"]), comparable(&json!(row.status)));
    seen.status = (status != before || row.expect.status.is_some()).then_some(status);
    seen
}

/// The status without what is empty and without the times of conditions.
fn comparable(status: &Value) -> Map<String, Value> {
    let mut status = status.as_object().unwrap().clone();
    for condition in status
        .get_mut("conditions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let condition = condition.as_object_mut().unwrap();
        condition.retain(|key, value| !key.starts_with("last") && *value != "");
    }
    status.retain(|_, value| ![json!({}), json!([]), json!(""), Value::Null].contains(value));
    status
}

fn rows() -> Vec<Row> {
    let lines = include_str!("../../testdata/job_sync.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Differences of a row from upstream, one a line.
fn differences(row: &Row) -> Vec<String> {
    let (seen, expected) = (sync(row), &row.expect);
    let mut all = Vec::new();
    let mut compare = |member: &str, seen: Value, expected: Value| {
        let expected = row
            .differs
            .get(member)
            .map_or(expected, |own| own["ours"].clone());
        if seen != expected {
            all.push(format!("{}: {member} is {seen}, not {expected}", row.name));
        }
    };
    compare("create", seen.create, expected.create.clone());
    compare("delete", json!(seen.delete), json!(expected.delete));
    compare("patches", json!(seen.patches), json!(expected.patches));
    compare("carried", seen.carried, expected.carried.clone());
    let expected = expected.status.as_ref().map(|own| comparable(&json!(own)));
    compare("status", json!(seen.status), json!(expected));
    all
}

#[test]
fn job_syncs_are_those_of_upstream() {
    let rows = rows();
    let all: Vec<String> = rows.iter().flat_map(differences).collect();
    assert!(
        all.is_empty(),
        "{} of {}:\n{}",
        all.len(),
        rows.len(),
        all.join("\n")
    );
}
