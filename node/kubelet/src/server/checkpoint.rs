//! `/checkpoint/`: the state of a running container in an archive on the node (upstream's gate `ContainerCheckpoint`, KEP 2008).
//! A runtime that has no such call says so; containerd has it since 2.0.

use http::{Response, StatusCode};
use machinery_runtime::Runtime;
use node_cri::v1::CheckpointContainerRequest;
use serde_json::json;

use super::query::Query;
use super::response::{Body, json as document, text};
use super::streaming::{StreamSlot, Target, running_container};
use crate::managers::ManagerContext;
use crate::pods::container_named::container_named;
use crate::runtime_errors::rpc_text;

/// Seconds that a client may give the runtime.
const TIMEOUT_SECONDS_MAX: i64 = 3_600;
/// Archives that the folder has at most. Nothing but an administrator removes them.
const ARCHIVES_MAX: usize = 64;

/// Makes the archive and answers with its path.
pub(super) async fn answer(
    context: &ManagerContext,
    slot: StreamSlot,
    target: Target<'_>,
    query: &Query,
) -> Response<Body> {
    let Some(pod) = context.pods.find(target.namespace, target.pod) else {
        return text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    if container_named(&pod, target.container).is_none() {
        let message = format!("container {} does not exist", target.container);
        return text(StatusCode::NOT_FOUND, message);
    }
    let Ok(timeout) = timeout(query) else {
        return text(StatusCode::NOT_FOUND, "cannot parse value of timeout parameter");
    };
    let made = make(context, target, timeout).await;
    drop(slot);
    made.map_or_else(
        |why| {
            let Target {
                namespace,
                pod,
                container,
            } = target;
            let message = format!("checkpointing of {namespace}/{pod}/{container} failed ({why})");
            text(StatusCode::INTERNAL_SERVER_ERROR, message)
        },
        |location| document(&json!({"items": [location]})),
    )
}

/// The last of several values counts; zero is the runtime's own time.
fn timeout(query: &Query) -> Result<i64, std::num::ParseIntError> {
    match query.all("timeout").last() {
        None => Ok(0),
        Some(seconds) => seconds.parse(),
    }
}

async fn make(context: &ManagerContext, target: Target<'_>, timeout: i64) -> Result<String, String> {
    let Ok(container_id) = running_container(context, target).await else {
        return Err(format!("container {} not found", target.container));
    };
    if timeout < 0 {
        return Err("CheckpointContainer requires the timeout value to be > 0".to_owned());
    }
    let folder = context.config.checkpoints_folder();
    let location = folder.join(archive_name(&context.runtime, target));
    let prepared = context.runtime.blocking(move || prepare(&folder)).await;
    prepared.unwrap_or_else(|ended| Err(ended.to_string()))?;
    let request = CheckpointContainerRequest {
        container_id,
        location: location.display().to_string(),
        timeout: timeout.min(TIMEOUT_SECONDS_MAX),
    };
    let location = request.location.clone();
    let made = context.workers.control.cri.checkpoint_container(request).await;
    made.map_err(|error| rpc_text(&error))?;
    Ok(location)
}

/// Makes the folder, which root alone may look into, and refuses one that is full. Blocks.
fn prepare(folder: &std::path::Path) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    node_sys::fs::make_own_folder(folder).map_err(failed)?;
    let count = std::fs::read_dir(folder)
        .map_err(failed)?
        .take(ARCHIVES_MAX)
        .count();
    match count < ARCHIVES_MAX {
        true => Ok(()),
        false => Err(format!(
            "{} has {ARCHIVES_MAX} checkpoints: remove those that are not needed",
            folder.display()
        )),
    }
}

/// Upstream's name: pod and namespace, container, and the time in RFC 3339.
fn archive_name(runtime: &Runtime, target: Target<'_>) -> String {
    let now = runtime.now().strftime("%Y-%m-%dT%H:%M:%SZ");
    let Target {
        namespace,
        pod,
        container,
    } = target;
    format!("checkpoint-{pod}_{namespace}-{container}-{now}.tar")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_timeout_is_the_last_of_those_given() {
        let read = |query: &str| timeout(&Query::parse(query)).ok();
        assert_eq!(read(""), Some(0));
        assert_eq!(read("timeout=1&timeout=20"), Some(20));
        assert_eq!(read("timeout=1s"), None);
    }

    #[test]
    fn checkpoint_folder_that_is_full_takes_no_more() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..ARCHIVES_MAX - 1 {
            std::fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        assert_eq!(prepare(folder.path()), Ok(()));
        std::fs::write(folder.path().join("last"), "").unwrap();
        assert!(prepare(folder.path()).unwrap_err().contains("has 64 checkpoints"));
    }

    #[test]
    fn checkpoint_is_named_as_upstreams() {
        let simulation = machinery_runtime::Simulation::new(1);
        let target = Target {
            namespace: "shop",
            pod: "web",
            container: "main",
        };
        let name = archive_name(&simulation.runtime(), target);
        assert!(name.starts_with("checkpoint-web_shop-main-"), "{name}");
        assert!(name.ends_with("Z.tar") && !name.contains('/'), "{name}");
    }
}
