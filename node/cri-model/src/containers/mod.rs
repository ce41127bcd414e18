//! Containers: [`making`], [`starting`] and [`stopping`] them in steps, commands in them ([`exec`]), their [`files`] on the
//! machine, and answers about them ([`listing`]).

mod exec;
mod files;
mod listing;
mod making;
mod starting;
mod stopping;

pub(crate) use exec::exec_sync;
pub(crate) use listing::{list, list_stats, status};
pub(crate) use making::create;
pub(crate) use starting::start;
pub(crate) use stopping::{remove, remove_known, stop, stop_known};

use crate::seen::RuntimeEvent;
use crate::serve::Context;
use crate::store::{Container, Phase, Store};
use crate::{Machine, refusals};
use files::open_log;
use node_cri::v1;
use std::sync::Arc;
use tonic::Status;

const FIND: &str = "an error occurred when try to find";

pub(crate) async fn update_resources(
    machine: Arc<Machine>,
    context: Context,
    asked: v1::UpdateContainerResourcesRequest,
) -> Result<v1::UpdateContainerResourcesResponse, Status> {
    let id = asked.container_id;
    if machine.store.lock().container(&id).is_none() {
        return Err(Status::not_found("failed to find container: not found"));
    }
    machine.step(&context).await?;
    if machine.store.lock().container_runs(&id)
        && let Some(group) = machine.group_of(&id)
    {
        machine.apply_group(&group)?;
    }
    Ok(v1::UpdateContainerResourcesResponse {})
}

pub(crate) async fn reopen_log(
    machine: Arc<Machine>,
    _: Context,
    asked: v1::ReopenContainerLogRequest,
) -> Result<v1::ReopenContainerLogResponse, Status> {
    let store = machine.store.lock();
    let Some(found) = store.container(&asked.container_id) else {
        return Err(refusals::not_found(FIND, "container", &asked.container_id));
    };
    if found.phase != Phase::Running {
        return Err(Status::unknown("container is not running"));
    }
    open_log(&found.log_path)?;
    Ok(v1::ReopenContainerLogResponse {})
}

impl Store {
    /// Reports whether the container runs.
    fn container_runs(&self, id: &str) -> bool {
        let found = self.containers.get(id);
        found.is_some_and(|container| matches!(container.phase, Phase::Running | Phase::Unknown))
    }
}

impl Machine {
    fn with<T>(&self, id: &str, change: impl FnOnce(&mut Container) -> T) -> Option<T> {
        let changed = self.store.lock().containers.get_mut(id).map(change);
        self.changed();
        changed
    }

    fn group_of(&self, id: &str) -> Option<String> {
        let store = self.store.lock();
        let sandbox = store.containers.get(id)?.sandbox_id.clone();
        Some(store.sandboxes.get(&sandbox)?.group(id))
    }

    fn sandbox_not_running(&self, id: &str) -> Status {
        let store = self.store.lock();
        let sandbox = store.containers.get(id).map(|found| found.sandbox_id.clone());
        Status::unknown(format!(
            "sandbox container {:?} is not running",
            sandbox.unwrap_or_default()
        ))
    }

    /// Takes back what there is of a container, its name included.
    fn forget_container(self: &Arc<Self>, id: &str) {
        self.kill_process(id);
        let group = self.group_of(id);
        let mut store = self.store.lock();
        store.names.retain(|_, holder| holder != id);
        let removed = store.containers.remove(id);
        drop(store);
        if let (Some(_), Some(group)) = (removed, group) {
            let _ = self.groups.remove(&group);
            self.note(RuntimeEvent::Removed(id.to_owned()));
        }
        self.changed();
    }
}
