//! Decisions and statuses as tables: a pod and what is observed of it, in; plan or status, out.

mod plans;
mod restarts;
mod statuses;

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};

use super::backoff::BackOff;
use super::disruption::Failure;
use super::observed::{ContainerState, ObservedContainer, ObservedPod, ObservedSandbox};
use super::plan::{Plan, Snapshot, container_hash, plan};
use super::resize::Resources;
use super::resize::actual::ResourceView;
use super::resize::conditions::ResizeState;
use super::status::{StatusInput, generate};
use super::status_patch::status_patch;
use crate::probes::{ProbeResults, ProbeView};

fn pod(spec: &str) -> Pod {
    let text =
        format!(r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u","generation":1}},"spec":{spec}}}"#);
    serde_json::from_str(&text).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// `name:state[:exit]` with state one of `run`, `exit`, `new`; newest first, one second apart.
fn observed(pod: &Pod, containers: &[&str]) -> ObservedPod {
    let mut out = ObservedPod {
        sandboxes: vec![ObservedSandbox {
            id: "s".into(),
            attempt: 0,
            ready: true,
            created_at: 1,
            ips: vec!["10.0.0.5".into()],
        }],
        containers: Vec::new(),
    };
    for text in containers {
        let mut parts = text.split(':');
        let name = parts.next().unwrap().to_string();
        let state = match parts.next().unwrap() {
            "run" => ContainerState::Running,
            "exit" => ContainerState::Exited,
            _ => ContainerState::Created,
        };
        let exit_code = parts.next().map_or(0, |code| code.parse().unwrap());
        let hash = super::container_named::container_named(pod, &name)
            .map(|(_, container)| container_hash(&container));
        out.containers.push(ObservedContainer {
            id: format!("id-{name}"),
            name,
            sandbox_id: "s".into(),
            state,
            restart_count: 0,
            round: 0,
            created_at: at(0),
            started_at: Some(at(0)),
            finished_at: (state == ContainerState::Exited).then(|| at(5)),
            exit_code,
            reason: String::new(),
            message: String::new(),
            image: "i".into(),
            image_ref: "r".into(),
            hash: hash.unwrap_or_default(),
            log_path: String::new(),
            user: None,
        });
    }
    out
}

fn decide(pod: &Pod, observed: &ObservedPod, probes: &ProbeView) -> Plan {
    let backoff = BackOff::default();
    plan(&Snapshot {
        pod,
        observed,
        probes,
        actuated: &Resources::of(pod),
        backoff: &backoff,
        now: at(10),
    })
}

#[track_caller]
fn check_plan(spec: &str, containers: &[&str], start: &[&str], kill: &[&str], finish: bool) {
    let pod = pod(spec);
    let plan = decide(&pod, &observed(&pod, containers), &ProbeView::default());
    let starts: Vec<&str> = plan.start.iter().map(|start| start.name.as_str()).collect();
    let kills: Vec<&str> = plan.kill.iter().map(|kill| kill.name.as_str()).collect();
    assert_eq!(
        (starts.as_slice(), kills.as_slice(), plan.finish),
        (start, kill, finish)
    );
}

const ONE: &str = r#"{"containers":[{"name":"a","image":"i"}]}"#;
const ONE_NEVER: &str = r#"{"restartPolicy":"Never","containers":[{"name":"a","image":"i"}]}"#;
const ONE_ON_FAILURE: &str = r#"{"restartPolicy":"OnFailure","containers":[{"name":"a","image":"i"}]}"#;
const INIT: &str = r#"{"initContainers":[{"name":"x","image":"i"},{"name":"y","image":"i"}],"containers":[{"name":"a","image":"i"}]}"#;
const INIT_NEVER: &str = r#"{"restartPolicy":"Never","initContainers":[{"name":"x","image":"i"}],"containers":[{"name":"a","image":"i"}]}"#;
const SIDECAR: &str = r#"{"restartPolicy":"Never","initContainers":[{"name":"x","image":"i","restartPolicy":"Always"}],"containers":[{"name":"a","image":"i"}]}"#;

const DEBUGGED: &str = r#"{"initContainers":[{"name":"x","image":"i"}],"containers":[{"name":"b","image":"i"},{"name":"a","image":"i"}],"ephemeralContainers":[{"name":"d","image":"i"}]}"#;

/// Nothing is known of resources but what the pod says.
const RESOURCES: ResourceView<'static> = ResourceView {
    state: &ResizeState {
        pending: None,
        in_progress: None,
    },
    actuated: &Resources {
        pod: None,
        containers: BTreeMap::new(),
    },
    limits: &BTreeMap::new(),
};

fn status_of(pod: &Pod, observed: &ObservedPod, waiting: &[(&str, &str)], terminal: bool) -> PodStatus {
    let waiting: BTreeMap<String, (String, String)> = waiting
        .iter()
        .map(|(name, reason)| ((*name).to_string(), ((*reason).to_string(), String::new())))
        .collect();
    generate(&StatusInput {
        pod,
        previous: &PodStatus::default(),
        observed,
        waiting: &waiting,
        resources: RESOURCES,
        probes: &ProbeView::default(),
        node_ip: "192.0.2.1".parse().unwrap(),
        runtime_name: "cri-o",
        terminal,
        failure: None,
        now: at(10),
    })
}

/// Returns the status that follows one that was written before.
fn status_after(
    before: &PodStatus,
    pod: &Pod,
    observed: &ObservedPod,
    failure: Option<&Failure>,
    terminal: bool,
) -> PodStatus {
    generate(&StatusInput {
        pod,
        previous: before,
        observed,
        waiting: &BTreeMap::new(),
        resources: RESOURCES,
        probes: &ProbeView::default(),
        node_ip: "192.0.2.1".parse().unwrap(),
        runtime_name: "cri-o",
        terminal,
        failure,
        now: at(10),
    })
}

#[track_caller]
fn check_phase(spec: &str, containers: &[&str], terminal: bool, phase: &str, ready: &str) {
    let pod = pod(spec);
    let status = status_of(&pod, &observed(&pod, containers), &[], terminal);
    let conditions = status.conditions.unwrap();
    let found = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .unwrap();
    assert_eq!(
        (status.phase.as_deref().unwrap(), found.status.as_str()),
        (phase, ready)
    );
}
