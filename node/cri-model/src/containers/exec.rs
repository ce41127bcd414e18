//! Commands in a container.

use crate::Machine;
use crate::process::Process;
use crate::program::Program;
use crate::serve::Context;
use crate::store::{Phase, Store};
use node_cri::v1;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

/// The exit code of a command whose container ends before it.
const KILLED: i32 = 137;

pub(crate) async fn exec_sync(
    machine: Arc<Machine>,
    context: Context,
    asked: v1::ExecSyncRequest,
) -> Result<v1::ExecSyncResponse, Status> {
    let id = asked.container_id;
    let process = running(&machine, &id)?;
    machine.step(&context).await?;
    let Some(program) = Program::of(&asked.cmd) else {
        let first = asked.cmd.first().cloned().unwrap_or_default();
        return Err(Status::unknown(format!(
            "failed to exec in container: failed to start exec {:?}: OCI runtime exec failed: exec failed: unable to \
             start container process: exec: {first:?}: executable file not found in $PATH: unknown",
            machine.new_id()
        )));
    };
    let code = exit_code(&machine, &program, process.as_ref());
    let seconds = program.seconds.unwrap_or(u64::MAX >> 20);
    let work = machine.runtime.sleep(Duration::from_secs(seconds));
    let ended = machine.until_ended(&context, &id, Store::container_runs);
    let exit_code = tokio::select! {
        biased;
        () = work => code,
        gone = ended => { gone?; KILLED }
        () = limit(&machine, asked.timeout) => return Err(Status::deadline_exceeded(format!(
            "failed to exec in container: timeout {}s exceeded: context deadline exceeded", asked.timeout
        ))),
    };
    let stdout = match program.prints.as_str() {
        "" => Vec::new(),
        line => format!("{line}\n").into_bytes(),
    };
    Ok(v1::ExecSyncResponse {
        stdout,
        stderr: Vec::new(),
        exit_code,
    })
}

/// The process of a container that runs, as far as it is known.
fn running(machine: &Machine, id: &str) -> Result<Option<Process>, Status> {
    let store = machine.store.lock();
    let Some(found) = store.container(id) else {
        return Err(Status::not_found(format!(
            "failed to exec in container: failed to find container {id:?} in store: not found"
        )));
    };
    if found.phase != Phase::Running {
        let state = found.state().as_str_name();
        return Err(Status::unknown(format!(
            "failed to exec in container: container is in {state} state"
        )));
    }
    Ok(found.process.clone())
}

/// The exit code of a command; one that asks how the container is answers by the container's age.
fn exit_code(machine: &Machine, program: &Program, process: Option<&Process>) -> i32 {
    if !program.asks {
        return program.exit;
    }
    let is_unwell = process.is_some_and(|process| {
        let unwell = process.program.unwell_after;
        let age = machine.now() - process.started_at;
        unwell.is_some_and(|after| age >= i64::try_from(after).unwrap_or(0) * 1_000_000_000)
    });
    i32::from(is_unwell)
}

/// Ends when the command has taken too long; never without a timeout.
async fn limit(machine: &Machine, timeout: i64) {
    match timeout {
        0 => std::future::pending().await,
        seconds => {
            let time = Duration::from_secs(seconds.unsigned_abs());
            machine.runtime.sleep(time).await;
        }
    }
}
