//! Containers that start again by policies and rules of their own, alone or all of a pod.

use super::*;

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
    assert_eq!(kill.message, "killing");
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
    // The one that requested it waits longer if it ends again, the other does not.
    let ends: Vec<bool> = third.start.iter().map(|start| start.ended_at.is_some()).collect();
    assert_eq!(ends, [true, false]);
    // Without the old containers the round is still known by the new ones.
    seen.containers.truncate(1);
    assert_eq!(crate::pods::restarts::round(&pod, &seen), 1);
}

#[test]
fn phase_goes_by_each_containers_restarts() {
    let phase = |spec: &str, containers: &[&str]| {
        let pod = pod(spec);
        status_of(&pod, &observed(&pod, containers), &[], false).phase
    };
    let last_phase = |spec: &str, containers: &[&str]| {
        let pod = pod(spec);
        status_of(&pod, &observed(&pod, containers), &[], true).phase
    };
    let ruled = restarting(&format!(r#""restartPolicy":"Never",{RULE_42}"#));
    assert_eq!(phase(&ruled, &["a:exit:42"]).as_deref(), Some("Running"));
    assert_eq!(last_phase(&ruled, &["a:exit:1"]).as_deref(), Some("Failed"));
    assert_eq!(last_phase(&ruled, &["a:exit:0"]).as_deref(), Some("Succeeded"));
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
fn round_of_what_keeps_ending_waits_as_a_whole() {
    let pod = pod(ALL_ON_42);
    let seen = observed(&pod, &["b:exit:137", "a:exit:42", "x:exit:0"]);
    let mut backoff = BackOff::default();
    backoff.tried("a", at(0), at(1));
    let decided = plan(&Snapshot {
        pod: &pod,
        observed: &seen,
        probes: &ProbeView::default(),
        actuated: &Resources::of(&pod),
        backoff: &backoff,
        now: at(10),
    });
    assert!(decided.start.is_empty() && !decided.finish, "{decided:?}");
    let waiting: Vec<&str> = decided.waiting.keys().map(String::as_str).collect();
    assert_eq!((waiting, decided.requeue_at), (vec!["a"], Some(at(15))));
}

#[test]
fn sidecars_of_an_earlier_round_end_after_the_others() {
    let spec = ALL_ON_42.replace(r#""name":"x""#, r#""restartPolicy":"Always","name":"x""#);
    check_plan(&spec, &["x:run", "b:run", "a:exit:42"], &[], &["b"], false);
    check_plan(&spec, &["x:run", "b:exit:137", "a:exit:42"], &[], &["x"], false);
    check_plan(&spec, &["x:run", "b:new", "a:exit:42"], &[], &[], false);
}

/// Rows of upstream's `computePodActions` for a sandbox that is not ready.
#[test]
fn new_sandbox_starts_all_but_what_is_done() {
    let check = |own: &str, exit: &str, again: bool| {
        let pod = pod(&restarting(own).replacen(r#""restartPolicy":"Never","#, "", 1));
        let mut seen = observed(&pod, &[exit]);
        seen.sandboxes[0].ready = false;
        let plan = decide(&pod, &seen, &ProbeView::default());
        assert_eq!(
            (plan.create_sandbox.is_some(), plan.finish),
            (again, !again),
            "{own} {exit}"
        );
        // In the new sandbox the same decides.
        (seen.sandboxes[0].ready, seen.sandboxes[0].id) = (true, "s2".into());
        let plan = decide(&pod, &seen, &ProbeView::default());
        assert_eq!(plan.start.len(), usize::from(again), "{own} {exit}");
    };
    let rule_0 = RULE_42.replace("42", "0");
    check(r#""restartPolicy":"Never""#, "a:exit:0", true);
    check(r#""restartPolicy":"Never""#, "a:exit:1", true);
    check(r#""restartPolicy":"OnFailure""#, "a:exit:1", true);
    check(r#""restartPolicy":"OnFailure""#, "a:exit:0", false);
    check(
        &format!(r#""restartPolicy":"OnFailure",{rule_0}"#),
        "a:exit:0",
        false,
    );
}

#[test]
fn init_containers_that_run_again_make_a_pod_pending() {
    let spec = r#"{"initContainers":[{"name":"x","image":"i"},{"name":"s","image":"i","restartPolicy":"Always"}],"containers":[{"name":"a","image":"i"}]}"#;
    let pod = pod(spec);
    let check = |containers: &[&str], phase: &str| {
        let mut seen = observed(&pod, containers);
        let old = seen.containers.iter_mut().filter(|found| found.name == "a");
        old.for_each(|found| found.sandbox_id = "s0".into());
        let status = status_of(&pod, &seen, &[], false);
        assert_eq!(status.phase.as_deref(), Some(phase), "{containers:?}");
    };
    check(&["x:run", "a:exit:0"], "Pending");
    check(&["s:run", "x:exit:0", "a:exit:0"], "Running");
    let unstarted = spec.replace(
        r#""restartPolicy":"Always""#,
        r#""restartPolicy":"Always","startupProbe":{}"#,
    );
    let again = self::pod(&unstarted);
    let mut seen = observed(&again, &["s:run", "x:exit:0", "a:exit:0"]);
    assert_eq!(
        status_of(&again, &seen, &[], false).phase.as_deref(),
        Some("Running")
    );
    seen.containers[2].sandbox_id = "s0".into();
    assert_eq!(
        status_of(&again, &seen, &[], false).phase.as_deref(),
        Some("Pending")
    );
}

#[test]
fn stops_are_told_in_upstreams_words() {
    let message = |spec: &str, containers: &[&str], state: ContainerState| {
        let pod = pod(spec);
        let mut seen = observed(&pod, containers);
        seen.containers[0].hash = "other".into();
        seen.containers[0].state = state;
        decide(&pod, &seen, &ProbeView::default()).kill[0].message.clone()
    };
    let run = ContainerState::Running;
    assert_eq!(
        message(ONE, &["a:run"], run),
        "Container a definition changed, will be restarted"
    );
    assert_eq!(
        message(SIDECAR, &["x:run"], run),
        "Init container x definition changed"
    );
    let unknown = ContainerState::Unknown;
    let text = "is in \"unknown\" state, try killing it before restart";
    assert_eq!(message(ONE, &["a:run"], unknown), format!("Container {text}"));
    assert_eq!(
        message(SIDECAR, &["x:run"], unknown),
        format!("Init container {text}")
    );
    assert_eq!(
        message(INIT, &["x:run"], unknown),
        format!("Init container {text}")
    );
    check_plan(INIT, &["x:new"], &["x"], &[], false);
}

/// An agent was killed between making a container and starting it.
#[test]
fn container_that_never_started_is_made_again_under_its_number() {
    let pod = pod(ONE);
    let mut seen = observed(&pod, &["a:new", "a:exit:1"]);
    (seen.containers[0].restart_count, seen.containers[0].id) = (1, "new".into());
    let decided = decide(&pod, &seen, &ProbeView::default());
    assert_eq!(decided.remove, ["new"]);
    let start = &decided.start[0];
    assert_eq!((start.restart_count, start.ended_at), (1, None));
    seen.containers.remove(0);
    assert_eq!(
        decide(&pod, &seen, &ProbeView::default()).start[0].restart_count,
        1
    );
}

fn restarting_all(status: &PodStatus) -> &str {
    let mut conditions = status.conditions.iter().flatten();
    let found = conditions.find(|one| one.type_ == "AllContainersRestarting");
    &found.unwrap().status
}

#[test]
fn all_containers_restarting_is_a_condition_until_they_have_ended() {
    let pod = pod(ALL_ON_42);
    let after = |before: &PodStatus, containers: &[&str]| {
        status_after(before, &pod, &observed(&pod, containers), None, false)
    };
    let running = after(&PodStatus::default(), &["b:run", "a:run", "x:exit:0"]);
    assert_eq!(restarting_all(&running), "False");
    let ending = after(&running, &["b:run", "a:exit:42", "x:exit:0"]);
    assert_eq!(restarting_all(&ending), "True");
    let all = ["b:exit:137", "a:exit:42", "x:exit:0"];
    // What has ended before a look is reported as well, once.
    let ended = after(&running, &all);
    assert_eq!(restarting_all(&ended), "True");
    let state = |status: &PodStatus| status.container_statuses.as_ref().unwrap()[0].clone();
    assert!(state(&ended).state.unwrap().terminated.is_some());
    for before in [ending, ended] {
        let removed = after(&before, &all);
        assert_eq!(restarting_all(&removed), "False");
        let a = state(&removed);
        let waiting = a.state.unwrap().waiting.unwrap();
        assert_eq!(waiting.reason.as_deref(), Some("RestartingAllContainers"));
        assert_eq!(a.restart_count, 1);
        assert_eq!(restarting_all(&after(&removed, &all)), "False", "the second time");
    }
}
