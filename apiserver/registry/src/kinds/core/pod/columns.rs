//! A pod's row: its status in one word is the cell that users read most.

use crate::shared::columns::format::{NONE, int, name, object_age, or};
use crate::shared::columns::{Cell, Completed, age};
use jiff::Timestamp;
use machinery_schema::Ref;
use std::collections::HashSet;

/// The result of a pod that has completed.
pub(super) fn course_of(pod: Ref<'_>) -> Option<Completed> {
    let (reason, message) = match pod.str_at(&["status", "phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(Completed { reason, message })
}

/// Totals over the containers' statuses.
#[derive(Default)]
struct Tally {
    reason: String,
    ready: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

/// Cells in the order of the headers.
pub(super) fn cells(pod: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let sidecars = sidecars(pod);
    let total = pod.at(&["spec", "containers"]).map_or(0, Ref::len) + sidecars.len();
    let tally = tally(pod, &sidecars);
    let mut restarts = tally.restarts.to_string();
    if let Some(last) = tally.last_restart.filter(|_| tally.restarts != 0) {
        restarts = format!("{restarts} ({} ago)", age(&last.to_string(), now));
    }
    let ip = pod
        .get("status")
        .and_then(|s| s.list("podIPs").next())
        .map_or("", |ip| ip.str("ip"));
    let ip = if ip.is_empty() {
        pod.str_at(&["status", "podIP"])
    } else {
        ip
    };
    vec![
        name(pod),
        format!("{}/{total}", tally.ready).into(),
        tally.reason.into(),
        restarts.into(),
        object_age(pod, now),
        or(ip, NONE).into(),
        or(pod.str_at(&["spec", "nodeName"]), NONE).into(),
        or(pod.str_at(&["status", "nominatedNodeName"]), NONE).into(),
        readiness_gates(pod).into(),
    ]
}

fn conditions<'a>(pod: Ref<'a>) -> impl Iterator<Item = Ref<'a>> {
    pod.get("status")
        .into_iter()
        .flat_map(|status| status.list("conditions"))
}

fn is_true(pod: Ref<'_>, kind: &str) -> bool {
    conditions(pod).any(|c| c.str("type") == kind && c.str("status") == "True")
}

/// Init containers that keep running.
fn sidecars<'a>(pod: Ref<'a>) -> HashSet<&'a str> {
    let inits = pod
        .get("spec")
        .into_iter()
        .flat_map(|spec| spec.list("initContainers"));
    inits
        .filter(|c| c.str("restartPolicy") == "Always")
        .map(|c| c.str("name"))
        .collect()
}

fn tally(pod: Ref<'_>, sidecars: &HashSet<&str>) -> Tally {
    let phase = pod.str_at(&["status", "phase"]);
    let own_reason = pod.str_at(&["status", "reason"]);
    let mut tally = Tally {
        reason: or(own_reason, phase).to_owned(),
        ..Tally::default()
    };
    if conditions(pod).any(|c| c.str("type") == "PodScheduled" && c.str("reason") == "SchedulingGated") {
        tally.reason = "SchedulingGated".into();
    }
    let mut of_sidecars = Tally::default();
    let initializing = tally_inits(pod, sidecars, &mut tally, &mut of_sidecars);
    if !initializing || is_true(pod, "Initialized") {
        tally.restarts = of_sidecars.restarts;
        tally.last_restart = of_sidecars.last_restart;
        tally_containers(pod, &mut tally);
    }
    let deleting = !pod.str_at(&["metadata", "deletionTimestamp"]).is_empty();
    if deleting && own_reason == "NodeLost" {
        tally.reason = "Unknown".into();
    } else if deleting && !matches!(phase, "Succeeded" | "Failed") {
        tally.reason = "Terminating".into();
    }
    tally
}

fn count_restarts(status: Ref<'_>, tally: &mut Tally) {
    tally.restarts += int(status, &["restartCount"]);
    let finished: Option<Timestamp> = status
        .str_at(&["lastState", "terminated", "finishedAt"])
        .parse()
        .ok();
    tally.last_restart = tally.last_restart.max(finished);
}

/// `ExitCode:3`, `Signal:9` or the reason of a terminated state.
fn ended(terminated: Ref<'_>) -> String {
    let (reason, signal) = (terminated.str("reason"), int(terminated, &["signal"]));
    match (reason, signal) {
        ("", 0) => format!("ExitCode:{}", int(terminated, &["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Adds the init containers and reports whether initialization is unfinished, in which case the reason shows its
/// progress.
fn tally_inits(pod: Ref<'_>, sidecars: &HashSet<&str>, tally: &mut Tally, of_sidecars: &mut Tally) -> bool {
    let total = pod.at(&["spec", "initContainers"]).map_or(0, Ref::len);
    let statuses = pod
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("initContainerStatuses"));
    for (at, status) in statuses.enumerate() {
        count_restarts(status, tally);
        let sidecar = sidecars.contains(status.str("name"));
        if sidecar {
            count_restarts(status, of_sidecars);
        }
        let terminated = status.at(&["state", "terminated"]);
        if terminated.is_some_and(|t| int(t, &["exitCode"]) == 0) {
            continue;
        }
        let flag = |name: &str| status.get(name).and_then(Ref::as_bool) == Some(true);
        if sidecar && flag("started") {
            tally.ready += usize::from(flag("ready"));
            continue;
        }
        let waiting = status.str_at(&["state", "waiting", "reason"]);
        tally.reason = match terminated {
            Some(terminated) => format!("Init:{}", ended(terminated)),
            None if !matches!(waiting, "" | "PodInitializing") => format!("Init:{waiting}"),
            None => format!("Init:{at}/{total}"),
        };
        return true;
    }
    false
}

fn tally_containers(pod: Ref<'_>, tally: &mut Tally) {
    let statuses = pod
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("containerStatuses"));
    let mut running = false;
    for status in statuses.rev() {
        count_restarts(status, tally);
        let waiting = status.str_at(&["state", "waiting", "reason"]);
        if !waiting.is_empty() {
            tally.reason = waiting.to_owned();
        } else if let Some(terminated) = status.at(&["state", "terminated"]) {
            tally.reason = ended(terminated);
        } else if status.get("ready").and_then(Ref::as_bool) == Some(true)
            && status.at(&["state", "running"]).is_some()
        {
            running = true;
            tally.ready += 1;
        }
    }
    if tally.reason == "Completed" && running {
        tally.reason = if is_true(pod, "Ready") {
            "Running"
        } else {
            "NotReady"
        }
        .into();
    }
}

fn readiness_gates(pod: Ref<'_>) -> String {
    let gates: Vec<&str> = pod
        .get("spec")
        .into_iter()
        .flat_map(|s| s.list("readinessGates"))
        .map(|g| g.str("conditionType"))
        .collect();
    if gates.is_empty() {
        return NONE.into();
    }
    let met = conditions(pod).filter(|c| c.str("status") == "True");
    let met: HashSet<&str> = met.map(|c| c.str("type")).collect();
    let passed = gates.iter().filter(|gate| met.contains(*gate)).count();
    format!("{passed}/{}", gates.len())
}
