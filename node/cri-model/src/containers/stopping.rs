//! End of a container's process, and of the container.

use super::FIND;
use crate::serve::Context;
use crate::store::{Phase, Store};
use crate::{Machine, refusals};
use node_cri::v1;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

pub(crate) async fn stop(
    machine: Arc<Machine>,
    context: Context,
    asked: v1::StopContainerRequest,
) -> Result<v1::StopContainerResponse, Status> {
    if machine.store.lock().container(&asked.container_id).is_none() {
        return Err(refusals::not_found(FIND, "container", &asked.container_id));
    }
    stop_known(&machine, &context, &asked.container_id, asked.timeout).await?;
    Ok(v1::StopContainerResponse {})
}

pub(crate) async fn stop_known(
    machine: &Arc<Machine>,
    context: &Context,
    id: &str,
    timeout: i64,
) -> Result<(), Status> {
    if !machine.store.lock().container_runs(id) {
        return Ok(());
    }
    machine.step(context).await?;
    if timeout > 0 {
        machine.terminate(id);
        let patience = Duration::from_secs(timeout.unsigned_abs());
        let ending = machine.until_ended(context, id, Store::container_runs);
        if let Ok(ended) = machine.runtime.timeout(patience, ending).await {
            return ended;
        }
    }
    machine.kill_process(id);
    // A process that ended before is written down by its waiter; an unknown one by its stopping.
    machine.with(id, |container| {
        if container.process.is_none() {
            container.phase = Phase::Exited;
        }
    });
    machine.until_ended(context, id, Store::container_runs).await
}

pub(crate) async fn remove(
    machine: Arc<Machine>,
    context: Context,
    asked: v1::RemoveContainerRequest,
) -> Result<v1::RemoveContainerResponse, Status> {
    if machine.store.lock().container(&asked.container_id).is_some() {
        remove_known(&machine, &context, &asked.container_id).await?;
    }
    Ok(v1::RemoveContainerResponse {})
}

pub(crate) async fn remove_known(machine: &Arc<Machine>, context: &Context, id: &str) -> Result<(), Status> {
    stop_known(machine, context, id, 0).await?;
    let refused = |why: &str| {
        Err(Status::unknown(format!(
            "failed to set removing state for container {id:?}: {why}"
        )))
    };
    let begun = machine.with(id, |container| {
        if container.starting {
            return refused("container is in starting state, can't be removed");
        }
        if std::mem::replace(&mut container.removing, true) {
            return refused("container is already in removing state");
        }
        Ok(())
    });
    begun.unwrap_or(Ok(()))?;
    if let Err(failed) = machine.step(context).await {
        machine.with(id, |container| container.removing = false);
        return Err(failed);
    }
    machine.forget_container(id);
    Ok(())
}
