//! Files that are private where the pod names its user: tokens, trust anchors, keys and certificates.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::bits;
use crate::atomic_writer::FileContent;

/// With fsGroup, the file is given to the group after, which may read it then.
const PRIVATE_MODE: u32 = 0o600;

/// The file of a pod: in the volume's mode, or for the pod's one user or its group alone.
pub(super) fn file(pod: &Pod, data: Arc<[u8]>, mode: Option<i32>) -> FileContent {
    let group = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.security_context.as_ref())
        .and_then(|context| context.fs_group);
    let owner = only_user(pod);
    let private = group.is_some() || owner.is_some();
    let mode = if private { PRIVATE_MODE } else { bits(mode) };
    FileContent { data, mode, owner }
}

/// The user all containers of a pod run as, if it says so and they agree.
fn only_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let general = spec
        .security_context
        .as_ref()
        .and_then(|context| context.run_as_user);
    let own = |container: &Container| {
        container
            .security_context
            .as_ref()
            .and_then(|context| context.run_as_user)
            .or(general)
    };
    let mut users = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
        .map(own);
    let first = users.next()??;
    if users.all(|user| user == Some(first)) {
        u32::try_from(first).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(spec: Value, expected: (u32, Option<u32>)) {
        let pod: Pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
        let made = file(&pod, Arc::from(*b"key"), Some(0o644));
        assert_eq!((made.mode, made.owner), expected, "{spec}");
    }

    #[test]
    fn private_file_is_of_the_one_user_or_the_group_of_its_pod() {
        let runs_as = |user: i64| json!({"name": "c", "securityContext": {"runAsUser": user}});
        let plain = json!({"name": "c"});
        check(json!({"containers": [plain]}), (0o644, None));
        check(
            json!({"containers": [plain], "securityContext": {"fsGroup": 5}}),
            (0o600, None),
        );
        check(
            json!({"containers": [plain, runs_as(7)], "securityContext": {"runAsUser": 7}}),
            (0o600, Some(7)),
        );
        check(json!({"containers": [plain, runs_as(7)]}), (0o644, None));
        check(
            json!({"initContainers": [runs_as(8)], "containers": [runs_as(7)]}),
            (0o644, None),
        );
    }
}
