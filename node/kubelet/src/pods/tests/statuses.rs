//! Statuses, phases, and what is written of them.

use super::*;

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
fn phases_are_upstreams() {
    check_phase(ONE, &[], false, "Pending", "False");
    check_phase(ONE, &["a:run"], false, "Running", "True");
    check_phase(ONE, &["a:exit:1"], false, "Running", "False");
    check_phase(ONE, &["a:exit:1"], true, "Failed", "False");
    check_phase(ONE_NEVER, &["a:exit:0"], true, "Succeeded", "False");
    check_phase(ONE_NEVER, &["a:exit:1"], true, "Failed", "False");
    check_phase(ONE_ON_FAILURE, &["a:exit:1"], false, "Running", "False");
    check_phase(INIT, &["x:run"], false, "Pending", "False");
    check_phase(INIT_NEVER, &["x:exit:1"], true, "Failed", "False");
    check_phase(INIT, &["a:run", "y:exit:0", "x:exit:0"], false, "Running", "True");
    check_phase(SIDECAR, &["a:exit:0", "x:run"], false, "Running", "False");
    check_phase(SIDECAR, &["a:exit:0", "x:exit:137"], true, "Succeeded", "False");
}

/// Cases of upstream's `TestMergePodStatus`.
#[test]
fn phase_is_final_once_all_is_given_back() {
    for (spec, containers, last) in [
        (ONE_NEVER, &["a:exit:0"], "Succeeded"),
        (ONE_NEVER, &["a:exit:1"], "Failed"),
        (INIT_NEVER, &["x:exit:1"], "Failed"),
    ] {
        let pod = pod(spec);
        let seen = observed(&pod, containers);
        for before in ["Pending", "Running"] {
            let previous = PodStatus {
                phase: Some(before.to_owned()),
                ..PodStatus::default()
            };
            let held = status_after(&previous, &pod, &seen, None, false);
            assert_eq!(held.phase.as_deref(), Some(before), "{spec}");
            let ended = status_after(&held, &pod, &seen, None, true);
            assert_eq!(ended.phase.as_deref(), Some(last), "{spec}");
            let later = status_after(&ended, &pod, &seen, None, false);
            assert_eq!(later.phase.as_deref(), Some(last), "{spec}");
            // It is ready no more at once, with the reason of its end.
            let reason = |status: &PodStatus| {
                let mut own = status.conditions.iter().flatten();
                let ready = own.find(|own| own.type_ == "Ready").unwrap();
                (ready.status.clone(), ready.reason.clone())
            };
            assert_eq!(reason(&held), reason(&ended));
        }
    }
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

/// Upstream: `TestTerminatePod` in `pkg/kubelet/status/status_manager_test.go`.
#[test]
fn ended_pod_has_no_container_without_an_end() {
    let two = r#"{"initContainers":[{"name":"x","image":"i"},{"name":"y","image":"i"}],"containers":[{"name":"a","image":"i"},{"name":"b","image":"i"}]}"#;
    // Specification, containers that the runtime has, and those of which no end is known although they may have run.
    let cases: [(&str, &[&str], &[&str]); 5] = [
        (ONE, &[], &["a"]),
        (two, &[], &["x"]),
        (two, &["x:exit:0"], &[]),
        (two, &["x:exit:0", "y:exit:0"], &["a", "b"]),
        (two, &["x:exit:0", "y:exit:0", "b:exit:0"], &["a"]),
    ];
    for (spec, containers, unknown) in cases {
        let pod = pod(spec);
        let before = status_of(&pod, &observed(&pod, &[]), &[], false);
        let failure = Failure::new("Evicted", "no room");
        for failure in [Some(&failure), None] {
            let status = status_after(&before, &pod, &observed(&pod, containers), failure, true);
            assert_eq!(status.phase.as_deref(), Some("Failed"), "{containers:?}");
            let inits = status.init_container_statuses.into_iter().flatten();
            let all = inits.chain(status.container_statuses.into_iter().flatten());
            let found: Vec<String> = all
                .filter(|own| {
                    let end = own.state.as_ref().and_then(|state| state.terminated.as_ref());
                    end.is_some_and(|end| end.reason.as_deref() == Some("ContainerStatusUnknown"))
                })
                .map(|own| own.name)
                .collect();
            assert_eq!(found, unknown, "{containers:?}");
        }
    }
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
