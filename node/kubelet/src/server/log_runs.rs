//! Run of a container whose log is requested: the pod's status decides, not the runtime
//! (upstream's `validateContainerLogStatus`).

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, PodStatus};

/// The id of that run's container, or why there is none, in upstream's words.
pub(super) fn choose<'a>(
    status: &'a PodStatus,
    pod: &str,
    name: &str,
    previous: bool,
) -> Result<&'a str, String> {
    let whose = format!("container \"{name}\" in pod \"{pod}\"");
    let own = find(status, name).ok_or_else(|| format!("{whose} is not available"))?;
    let last = ended(own.last_state.as_ref());
    let of_last = || last.and_then(id).ok_or_else(|| format!("{whose} is terminated"));
    if previous {
        let missing = || format!("previous terminated {whose} not found");
        return last.and_then(id).ok_or_else(missing);
    }
    let state = own.state.as_ref();
    if state.is_some_and(|state| state.running.is_some()) {
        return Ok(bare(own.container_id.as_deref().unwrap_or_default()));
    }
    if let Some(ended) = ended(state) {
        // One that could not be started has no id.
        return id(ended).map_or_else(of_last, Ok);
    }
    if last.is_some() {
        return of_last();
    }
    let Some(waiting) = state.and_then(|state| state.waiting.as_ref()) else {
        return Err(format!("{whose} is waiting to start - no logs yet"));
    };
    // What fails most often has a sentence.
    let reason = match waiting.reason.as_deref().unwrap_or_default() {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        reason => reason,
    };
    Err(format!("{whose} is waiting to start: {reason}"))
}

fn find<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let lists = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let mut all = lists.into_iter().flatten().flatten();
    all.find(|own| own.name == name)
}

fn ended(state: Option<&ContainerState>) -> Option<&ContainerStateTerminated> {
    state?.terminated.as_ref()
}

fn id(ended: &ContainerStateTerminated) -> Option<&str> {
    let id = ended.container_id.as_deref().filter(|id| !id.is_empty());
    id.map(bare)
}

/// An id without the runtime's name, which comes before it.
fn bare(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, id)| id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(own: &Value, previous: bool, expected: Result<&str, &str>) {
        let mut own = own.clone();
        let whole = json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0});
        for (key, value) in whole.as_object().unwrap() {
            own[key] = value.clone();
        }
        for list in [
            "containerStatuses",
            "initContainerStatuses",
            "ephemeralContainerStatuses",
        ] {
            let status: PodStatus = serde_json::from_value(json!({list: [own]})).unwrap();
            let chosen = choose(&status, "p", "c", previous);
            assert_eq!(chosen, expected.map_err(str::to_owned), "{own}");
        }
    }

    fn terminated(id: &str) -> Value {
        json!({"terminated": {"exitCode": 0, "containerID": id}})
    }

    #[test]
    fn log_is_that_of_the_run_that_the_status_names() {
        let running =
            json!({"containerID": "r://2", "state": {"running": {}}, "lastState": terminated("r://1")});
        check(&running, false, Ok("2"));
        check(&running, true, Ok("1"));
        let ended = json!({"state": terminated("r://2"), "lastState": terminated("r://1")});
        check(&ended, false, Ok("2"));
        check(&ended, true, Ok("1"));
        let not_started = json!({"state": terminated(""), "lastState": terminated("r://1")});
        check(&not_started, false, Ok("1"));
        let waits =
            json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": terminated("r://1")});
        check(&waits, false, Ok("1"));
        check(&waits, true, Ok("1"));
    }

    #[test]
    fn run_without_a_log_is_told_in_upstreams_words() {
        let waits = |reason: &str| json!({"state": {"waiting": {"reason": reason}}});
        let begins = r#"container "c" in pod "p" is waiting to start"#;
        for (reason, words) in [
            ("ContainerCreating", "ContainerCreating"),
            ("ErrImagePull", "image can't be pulled"),
            ("ImagePullBackOff", "trying and failing to pull image"),
        ] {
            check(&waits(reason), false, Err(&format!("{begins}: {words}")));
        }
        check(&json!({}), false, Err(&format!("{begins} - no logs yet")));
        let missing = r#"previous terminated container "c" in pod "p" not found"#;
        check(&waits("ContainerCreating"), true, Err(missing));
        check(&json!({"lastState": terminated("")}), true, Err(missing));
        let gone = r#"container "c" in pod "p" is terminated"#;
        check(&json!({"state": terminated("")}), false, Err(gone));
        check(
            &json!({"state": terminated(""), "lastState": terminated("")}),
            false,
            Err(gone),
        );
        check(&json!({"lastState": terminated("")}), false, Err(gone));
        let unknown = r#"container "c" in pod "p" is not available"#;
        let nothing = PodStatus::default();
        assert_eq!(choose(&nothing, "p", "c", false), Err(unknown.to_owned()));
    }
}
