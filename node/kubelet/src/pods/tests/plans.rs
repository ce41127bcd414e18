//! Containers that start, wait and end.

use super::*;

#[test]
fn containers_start_and_start_again_by_policy() {
    check_plan(ONE, &[], &["a"], &[], false);
    check_plan(ONE, &["a:run"], &[], &[], false);
    check_plan(ONE, &["a:exit:0"], &["a"], &[], false);
    check_plan(ONE, &["a:new"], &["a"], &[], false);
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
    check_phase(spec, &["d:run", "a:exit:0"], true, "Succeeded", "False");
    check_phase(spec, &["d:exit:1", "a:run"], false, "Running", "True");
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
fn liveness_failure_backs_off_from_the_end_before() {
    let pod = pod(r#"{"containers":[{"name":"a","image":"i","livenessProbe":{}}]}"#);
    let results = ProbeResults {
        liveness: Some(false),
        ..ProbeResults::default()
    };
    let probes = ProbeView::new(HashMap::from([("id-a".to_string(), results)]));
    let mut backoff = BackOff::default();
    backoff.tried("a", at(0), at(0));
    let killed = |containers: &[&str], now| {
        let mut observed = observed(&pod, containers);
        if let Some(before) = observed.containers.get_mut(1) {
            before.id = "before".into();
        }
        let plan = plan(&Snapshot {
            pod: &pod,
            observed: &observed,
            probes: &probes,
            actuated: &Resources::of(&pod),
            backoff: &backoff,
            now: at(now),
        });
        assert_eq!(plan.kill.len(), 1);
        let waits = plan.waiting.contains_key("a");
        (waits, plan.start.first().map(|start| start.ended_at))
    };
    assert_eq!(killed(&["a:run"], 6), (false, Some(None)), "none has ended");
    assert_eq!(killed(&["a:run", "a:exit:1"], 6), (true, None));
    assert_eq!(killed(&["a:run", "a:exit:1"], 15), (false, Some(Some(at(5)))));
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
