//! Decisions and statuses as tables: a pod and what is observed of it, in; plan or status, out.

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
        let hash = super::plan::container_named(pod, &name).map(|(_, container)| container_hash(&container));
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

#[test]
fn containers_start_and_start_again_by_policy() {
    check_plan(ONE, &[], &["a"], &[], false);
    check_plan(ONE, &["a:run"], &[], &[], false);
    check_plan(ONE, &["a:exit:0"], &["a"], &[], false);
    check_plan(ONE, &["a:new"], &["a"], &["a"], false);
    check_plan(ONE_NEVER, &["a:exit:1"], &[], &[], true);
    check_plan(ONE_ON_FAILURE, &["a:exit:1"], &["a"], &[], false);
    check_plan(ONE_ON_FAILURE, &["a:exit:0"], &[], &[], true);
}

#[test]
fn init_containers_go_first_one_by_one() {
    check_plan(INIT, &[], &["x"], &[], false);
    check_plan(INIT, &["x:run"], &[], &[], false);
    check_plan(INIT, &["x:exit:0"], &["y"], &[], false);
    check_plan(INIT, &["x:exit:1"], &["x"], &[], false);
    check_plan(INIT, &["y:exit:0", "x:exit:0"], &["a"], &[], false);
    check_plan(INIT, &["a:run", "y:exit:0", "x:exit:0"], &[], &[], false);
    check_plan(INIT_NEVER, &["x:exit:1"], &[], &[], true);
}

#[test]
fn sidecar_runs_beside_and_ends_after_containers() {
    check_plan(SIDECAR, &[], &["x"], &[], false);
    check_plan(SIDECAR, &["x:run"], &["a"], &[], false);
    check_plan(SIDECAR, &["a:run", "x:exit:0"], &["x"], &[], false);
    check_plan(SIDECAR, &["a:exit:0", "x:run"], &[], &[], true);
}

const DEBUGGED: &str = r#"{"initContainers":[{"name":"x","image":"i"}],"containers":[{"name":"b","image":"i"},{"name":"a","image":"i"}],"ephemeralContainers":[{"name":"d","image":"i"}]}"#;

#[test]
fn ephemeral_container_starts_once_without_waiting() {
    check_plan(DEBUGGED, &[], &["d", "x"], &[], false);
    check_plan(DEBUGGED, &["x:run"], &["d"], &[], false);
    check_plan(DEBUGGED, &["d:run", "x:exit:0"], &["b", "a"], &[], false);
    check_plan(
        DEBUGGED,
        &["d:exit:1", "a:run", "b:run", "x:exit:0"],
        &[],
        &[],
        false,
    );
    check_plan(
        DEBUGGED,
        &["d:new", "a:run", "b:run", "x:exit:0"],
        &[],
        &[],
        false,
    );
}

#[test]
fn ephemeral_container_does_not_keep_pod_running() {
    let spec = r#"{"restartPolicy":"Never","containers":[{"name":"a","image":"i"}],"ephemeralContainers":[{"name":"d","image":"i"}]}"#;
    check_plan(spec, &["d:run", "a:exit:0"], &[], &[], true);
    check_plan(spec, &["a:exit:0"], &[], &[], true);
    check_phase(spec, &["d:run", "a:exit:0"], false, "Succeeded", "False");
    check_phase(spec, &["d:exit:1", "a:run"], false, "Running", "True");
}

#[test]
fn statuses_have_the_order_and_members_of_upstreams() {
    let pod = pod(DEBUGGED);
    let observed = observed(&pod, &["d:run", "a:run", "b:run", "x:exit:0"]);
    let status = status_of(&pod, &observed, &[], false);
    let regulars = status.container_statuses.unwrap();
    let names: Vec<&str> = regulars.iter().map(|status| status.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let ephemerals = status.ephemeral_container_statuses.unwrap();
    let [ephemeral] = ephemerals.as_slice() else {
        panic!("one status: {ephemerals:?}");
    };
    assert_eq!((ephemeral.ready, ephemeral.started), (false, None));
    assert!(ephemeral.state.clone().unwrap().running.is_some());
}

#[test]
fn container_never_started_has_epoch_times() {
    let pod = pod(ONE);
    let mut observed = observed(&pod, &["a:exit:128"]);
    observed.containers[0].started_at = None;
    let status = status_of(&pod, &observed, &[], false);
    let state = status.container_statuses.unwrap()[0].state.clone().unwrap();
    assert_eq!(
        serde_json::to_value(state.terminated.unwrap()).unwrap()["startedAt"],
        "1970-01-01T00:00:00Z"
    );
}

#[test]
fn container_crash_loop_backs_off() {
    let pod = pod(ONE);
    let observed = observed(&pod, &["a:exit:1"]);
    let mut backoff = BackOff::default();
    backoff.tried("a", at(0), at(0));
    let probes = ProbeView::default();
    let plan = plan(&Snapshot {
        pod: &pod,
        observed: &observed,
        probes: &probes,
        actuated: &Resources::default(),
        backoff: &backoff,
        now: at(6),
    });
    assert_eq!(plan.requeue_at, Some(at(15)));
    let (reason, message) = &plan.waiting["a"];
    assert_eq!(reason, "CrashLoopBackOff");
    assert_eq!(message, "back-off 10s restarting failed container=a pod=p_n(u)");
    assert!(plan.start.is_empty() && !plan.finish);
}

#[test]
fn liveness_failure_restarts_container() {
    let pod = pod(
        r#"{"containers":[{"name":"a","image":"i","livenessProbe":{"terminationGracePeriodSeconds":3}}]}"#,
    );
    let observed = observed(&pod, &["a:run"]);
    let results = ProbeResults {
        liveness: Some(false),
        ..ProbeResults::default()
    };
    let probes = ProbeView::new(HashMap::from([("id-a".to_string(), results)]));
    let plan = decide(&pod, &observed, &probes);
    assert_eq!(
        plan.kill[0].message,
        "Container a failed liveness probe, will be restarted"
    );
    assert_eq!(plan.kill[0].grace_seconds, Some(3));
}

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

#[test]
fn phases_are_upstreams() {
    check_phase(ONE, &[], false, "Pending", "False");
    check_phase(ONE, &["a:run"], false, "Running", "True");
    check_phase(ONE, &["a:exit:1"], false, "Running", "False");
    check_phase(ONE, &["a:exit:1"], true, "Failed", "False");
    check_phase(ONE_NEVER, &["a:exit:0"], false, "Succeeded", "False");
    check_phase(ONE_NEVER, &["a:exit:1"], false, "Failed", "False");
    check_phase(ONE_ON_FAILURE, &["a:exit:1"], false, "Running", "False");
    check_phase(INIT, &["x:run"], false, "Pending", "False");
    check_phase(INIT_NEVER, &["x:exit:1"], false, "Failed", "False");
    check_phase(INIT, &["a:run", "y:exit:0", "x:exit:0"], false, "Running", "True");
    check_phase(SIDECAR, &["a:exit:0", "x:run"], false, "Running", "False");
    check_phase(SIDECAR, &["a:exit:0", "x:exit:137"], true, "Succeeded", "False");
}

#[test]
fn container_ids_name_the_runtime_that_the_node_has() {
    let pod = pod(ONE);
    let ids = |containers: &[&str]| {
        let status = status_of(&pod, &observed(&pod, containers), &[], false);
        let own = status.container_statuses.unwrap().remove(0);
        let state = own.state.unwrap();
        (
            own.container_id,
            state.terminated.and_then(|end| end.container_id),
        )
    };
    let id = Some("cri-o://id-a".to_owned());
    assert_eq!(ids(&["a:run"]), (id.clone(), None));
    assert_eq!(ids(&["a:exit:1"]), (id.clone(), id));
}

#[test]
fn container_waiting_shows_reason_and_last_state() {
    let pod = pod(ONE);
    let status = status_of(
        &pod,
        &observed(&pod, &["a:exit:3"]),
        &[("a", "CrashLoopBackOff")],
        false,
    );
    let container = &status.container_statuses.unwrap()[0];
    let state = container.state.clone().unwrap();
    assert_eq!(state.waiting.unwrap().reason.as_deref(), Some("CrashLoopBackOff"));
    let last = container.last_state.clone().unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (3, Some("Error")));
    let conditions = status.conditions.unwrap();
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .unwrap();
    assert_eq!(
        ready.message.as_deref(),
        Some("containers with unready status: [a]")
    );
}

#[test]
fn termination_message_stays_when_its_file_is_gone() {
    let pod = pod(ONE_NEVER);
    let mut observed = observed(&pod, &["a:exit:2"]);
    observed.containers[0].message = "bye".into();
    let before = status_of(&pod, &observed, &[], true);
    observed.containers[0].message.clear();
    let after = status_after(&before, &pod, &observed, None, true);
    assert_eq!(after, before);
    assert_eq!(
        serde_json::to_value(after).unwrap()["containerStatuses"][0]["state"]["terminated"]["message"],
        "bye"
    );
    // Those of another run are its own.
    observed.containers[0].id = "another".into();
    let other = status_after(&before, &pod, &observed, None, true);
    let state = other.container_statuses.unwrap()[0].state.clone().unwrap();
    assert_eq!(state.terminated.unwrap().message, None);
}

#[test]
fn deadline_is_reported_when_nothing_runs() {
    let pod = pod(ONE_NEVER);
    let failure = Failure::new("DeadlineExceeded", "too long");
    let before = PodStatus::default();
    let told = |containers: &[&str], terminal| {
        let observed = observed(&pod, containers);
        let status = status_after(&before, &pod, &observed, Some(&failure), terminal);
        (status.phase.unwrap(), status.reason, status.message)
    };
    assert_eq!(told(&["a:run"], false), ("Running".into(), None, None));
    let all = (
        "Failed".into(),
        Some(failure.reason.clone()),
        Some(failure.message.clone()),
    );
    assert_eq!(told(&["a:exit:137"], true), all);
}

#[test]
fn changed_resources_are_told_or_asked_for_by_a_restart() {
    let sized = |policy: &str, cpu: &str| {
        pod(&format!(
            r#"{{"containers":[{{"name":"a","image":"i","resources":{{"limits":{{"cpu":"{cpu}"}}}},
            "resizePolicy":[{{"resourceName":"cpu","restartPolicy":"{policy}"}}]}}]}}"#
        ))
    };
    for (policy, resized, killed) in [("NotRequired", 1, 0), ("RestartContainer", 0, 1)] {
        let pod = sized(policy, "200m");
        let plan = plan(&Snapshot {
            pod: &pod,
            observed: &observed(&pod, &["a:run"]),
            probes: &ProbeView::default(),
            actuated: &Resources::of(&sized(policy, "100m")),
            backoff: &BackOff::default(),
            now: at(10),
        });
        assert_eq!(
            (plan.resize.len(), plan.kill.len()),
            (resized, killed),
            "{policy}"
        );
    }
}

#[test]
fn status_patch_removes_vanished_condition() {
    let pod = pod(ONE);
    let before = status_of(&pod, &observed(&pod, &[]), &[], false);
    let mut after = before.clone();
    let gone = after.conditions.as_mut().unwrap().pop().unwrap();
    assert_eq!(
        status_patch("u", &before, &after).unwrap()["status"],
        serde_json::json!({"conditions": [{"$patch": "delete", "type": gone.type_}]})
    );
}

#[test]
fn status_patch_names_differences_only() {
    let pod = pod(ONE);
    let before = status_of(&pod, &observed(&pod, &[]), &[], false);
    let mut after = before.clone();
    assert_eq!(status_patch("u", &before, &after), None);
    after.pod_ip = None;
    after.phase = Some("Running".into());
    let patch = status_patch("u", &before, &after).unwrap();
    assert_eq!(
        patch,
        serde_json::json!({"metadata": {"uid": "u"}, "status": {"phase": "Running", "podIP": null}})
    );
}

/// A container's own policy and rules, in a pod that never restarts any.
fn restarting(own: &str) -> String {
    format!(r#"{{"restartPolicy":"Never","containers":[{{"name":"a","image":"i",{own}}}]}}"#)
}

const RULE_42: &str =
    r#""restartPolicyRules":[{"action":"Restart","exitCodes":{"operator":"In","values":[42]}}]"#;

#[test]
fn containers_start_again_by_their_own_policy_and_rules() {
    let always = restarting(r#""restartPolicy":"Always""#);
    check_plan(&always, &["a:exit:0"], &["a"], &[], false);
    let on_failure = restarting(r#""restartPolicy":"OnFailure""#);
    check_plan(&on_failure, &["a:exit:1"], &["a"], &[], false);
    check_plan(&on_failure, &["a:exit:0"], &[], &[], true);
    let ruled = restarting(&format!(r#""restartPolicy":"Never",{RULE_42}"#));
    check_plan(&ruled, &["a:exit:42"], &["a"], &[], false);
    check_plan(&ruled, &["a:exit:1"], &[], &[], true);
    check_plan(&ruled.replace("In", "NotIn"), &["a:exit:1"], &["a"], &[], false);
    check_plan(&ruled.replace("In", "NotIn"), &["a:exit:42"], &[], &[], true);
    let never = ONE.replace("\"image\"", r#""restartPolicy":"Never","image""#);
    check_plan(&never, &["a:exit:1"], &[], &[], true);
    let init = INIT_NEVER.replace(
        r#"{"name":"x""#,
        &format!(r#"{{"restartPolicy":"Never",{RULE_42},"name":"x""#),
    );
    check_plan(&init, &["x:exit:42"], &["x"], &[], false);
    check_plan(&init, &["x:exit:1"], &[], &[], true);
}

const ALL_ON_42: &str = r#"{"restartPolicy":"Never","initContainers":[{"name":"x","image":"i"}],"containers":[{"name":"a","image":"i","restartPolicy":"Never","restartPolicyRules":[{"action":"RestartAllContainers","exitCodes":{"operator":"In","values":[42]}}]},{"name":"b","image":"i"}]}"#;

#[test]
fn end_of_one_container_starts_all_anew_in_order() {
    let pod = pod(ALL_ON_42);
    let mut seen = observed(&pod, &["b:run", "a:exit:42", "x:exit:0"]);
    let first = decide(&pod, &seen, &ProbeView::default());
    let kill = &first.kill[0];
    assert_eq!(
        (first.kill.len(), kill.name.as_str(), kill.grace_seconds),
        (1, "b", Some(0))
    );
    assert!(first.start.is_empty() && !first.finish, "{first:?}");
    seen.containers[0].state = ContainerState::Exited;
    seen.containers[0].exit_code = 137;
    let second = decide(&pod, &seen, &ProbeView::default());
    assert_eq!((second.start.len(), second.start[0].name.as_str()), (1, "x"));
    assert_eq!((second.start[0].round, second.start[0].restart_count), (1, 1));
    // The new init container runs to its end, and then both start again, the killed one too.
    let mut x = seen.containers[2].clone();
    (x.round, x.restart_count) = (1, 1);
    seen.containers.insert(0, x);
    let third = decide(&pod, &seen, &ProbeView::default());
    let names: Vec<&str> = third.start.iter().map(|start| start.name.as_str()).collect();
    assert_eq!(names, ["a", "b"], "{third:?}");
    // Without the old containers the round is still known by the new ones.
    seen.containers.truncate(1);
    assert_eq!(super::restarts::round(&pod, &seen), 1);
}

#[test]
fn phase_goes_by_each_containers_restarts() {
    let phase = |spec: &str, containers: &[&str]| {
        let pod = pod(spec);
        status_of(&pod, &observed(&pod, containers), &[], false).phase
    };
    let ruled = restarting(&format!(r#""restartPolicy":"Never",{RULE_42}"#));
    assert_eq!(phase(&ruled, &["a:exit:42"]).as_deref(), Some("Running"));
    assert_eq!(phase(&ruled, &["a:exit:1"]).as_deref(), Some("Failed"));
    assert_eq!(phase(&ruled, &["a:exit:0"]).as_deref(), Some("Succeeded"));
    assert_eq!(phase(ONE_ON_FAILURE, &["a:exit:1"]).as_deref(), Some("Running"));
    assert_eq!(
        phase(ALL_ON_42, &["b:run", "a:exit:42", "x:exit:0"]).as_deref(),
        Some("Running")
    );
    assert_eq!(
        phase(ALL_ON_42, &["b:exit:137", "a:exit:42", "x:exit:0"]).as_deref(),
        Some("Running")
    );
}

#[test]
fn all_containers_restarting_is_a_condition_until_they_have_ended() {
    let pod = pod(ALL_ON_42);
    let check = |containers: &[&str], expected: &str| {
        let status = status_of(&pod, &observed(&pod, containers), &[], false);
        let conditions = status.conditions.unwrap();
        let found = conditions
            .iter()
            .find(|one| one.type_ == "AllContainersRestarting");
        assert_eq!(found.unwrap().status, expected, "{containers:?}");
    };
    check(&["b:run", "a:run", "x:exit:0"], "False");
    check(&["b:run", "a:exit:42", "x:exit:0"], "True");
    check(&["b:exit:137", "a:exit:42", "x:exit:0"], "False");
}
