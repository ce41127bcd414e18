//! Start of a container's process.

use super::FIND;
use super::files::{leave_words, open_log, print, write_file};
use crate::program::Program;
use crate::seen::RuntimeEvent;
use crate::serve::Context;
use crate::store::Phase;
use crate::{Machine, refusals};
use node_cri::v1;
use std::sync::Arc;
use tonic::Status;

/// The exit code of a container whose process could not be started.
const NOT_STARTED: i32 = 128;

pub(crate) async fn start(
    machine: Arc<Machine>,
    context: Context,
    asked: v1::StartContainerRequest,
) -> Result<v1::StartContainerResponse, Status> {
    let id = asked.container_id;
    let sandbox_runs = {
        let mut store = machine.store.lock();
        let Some(found) = store.container(&id) else {
            return Err(refusals::not_found(FIND, "container", &id));
        };
        let refused = |why: String| {
            Err(Status::unknown(format!(
                "failed to set starting state for container {id:?}: {why}"
            )))
        };
        if found.phase != Phase::Created {
            return refused(format!("container is in {} state", found.state().as_str_name()));
        }
        if found.removing {
            return refused("container is in removing state, can't be started".to_owned());
        }
        if found.starting {
            return refused("container is already in starting state".to_owned());
        }
        let sandbox = store.sandbox(&found.sandbox_id);
        let runs = sandbox.is_some_and(|sandbox| sandbox.phase == Phase::Running);
        if let Some(container) = store.containers.get_mut(&id) {
            container.starting = true;
        }
        runs
    };
    let begun = match sandbox_runs {
        true => begin(&machine, &context, &id).await,
        false => Err(machine.sandbox_not_running(&id)),
    };
    machine.with(&id, |container| {
        container.starting = false;
        if let Err(refused) = &begun
            && container.process.is_none()
        {
            container.phase = Phase::Exited;
            container.finished_at = container.created_at;
            container.exit_code = NOT_STARTED;
            container.reason = "StartError".to_owned();
            container.message = refused.message().to_owned();
        }
    });
    machine.changed();
    if begun.is_err() && machine.with(&id, |container| container.process.is_none()) == Some(true) {
        machine.note(RuntimeEvent::Ended(id, NOT_STARTED));
    }
    begun?;
    Ok(v1::StartContainerResponse {})
}

async fn begin(machine: &Arc<Machine>, context: &Context, id: &str) -> Result<(), Status> {
    let seen = machine.with(id, |container| {
        let command = [container.config.command.clone(), container.config.args.clone()].concat();
        (
            command,
            container.log_path.clone(),
            container.config.labels.clone(),
            container.config.mounts.clone(),
        )
    });
    let (command, log, labels, mounts) = seen.ok_or_else(refusals::cancelled)?;
    let group = machine.group_of(id).ok_or_else(refusals::cancelled)?;
    open_log(&log)?;
    machine.step(context).await?;
    let Some(program) = Program::of(&command) else {
        let first = command.first().cloned().unwrap_or_default();
        return Err(Status::unknown(format!(
            "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create \
             failed: unable to start container process: exec: {first:?}: executable file not found in $PATH: unknown"
        )));
    };
    machine.apply_group(&group)?;
    machine.step(context).await?;
    // From here on it runs, whatever the daemon gets to write down.
    print(&log, machine, &program);
    leave_words(&mounts, &program);
    write_file(&mounts, &program);
    let process = machine.begin_process(id, program);
    let at = process.started_at;
    machine.with(id, |container| container.process = Some(process));
    machine.note(RuntimeEvent::Started(id.to_owned(), labels));
    machine.publish_start(id);
    machine.lag().await;
    machine.with(id, |container| {
        if container.phase == Phase::Created {
            (container.phase, container.started_at) = (Phase::Running, at);
        } else {
            container.started_at = at;
        }
    });
    Ok(())
}
