//! Containers: made, started, stopped and removed in steps.

use crate::program::Program;
use crate::sandboxes::has_labels;
use crate::seen::RuntimeEvent;
use crate::serve::Context;
use crate::store::{Container, Phase, Store};
use crate::{Machine, refusals};
use node_cri::v1;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

const FIND: &str = "an error occurred when try to find";
/// The exit code of a container whose process could not be started.
const NOT_STARTED: i32 = 128;

fn full_name(metadata: &v1::ContainerMetadata, sandbox: &v1::PodSandboxMetadata) -> String {
    let attempt = metadata.attempt.to_string();
    let parts = [
        &metadata.name,
        &sandbox.name,
        &sandbox.namespace,
        &sandbox.uid,
        &attempt,
    ];
    parts.map(String::as_str).join("_")
}

pub(crate) async fn create(
    machine: Arc<Machine>,
    context: Context,
    asked: v1::CreateContainerRequest,
) -> Result<v1::CreateContainerResponse, Status> {
    let config = asked.config.unwrap_or_default();
    let id = machine.new_id();
    let name = {
        let mut store = machine.store.lock();
        let Some(sandbox) = store.sandbox(&asked.pod_sandbox_id) else {
            return Err(refusals::not_found(
                "failed to find",
                "sandbox id",
                &asked.pod_sandbox_id,
            ));
        };
        let of_sandbox = sandbox.config.metadata.clone().unwrap_or_default();
        let Some(metadata) = &config.metadata else {
            return Err(Status::unknown("container config must include metadata"));
        };
        if sandbox.phase != Phase::Running {
            return Err(Status::not_found(format!(
                "failed to get sandbox container task: no running task found: task {} not found: not found",
                sandbox.id
            )));
        }
        let name = full_name(metadata, &of_sandbox);
        let reserved = store.reserve(&name, &id);
        reserved.map_err(|holder| refusals::reserved("container", &name, &holder))?;
        name
    };
    let made = make(&machine, &context, (&id, &name), asked.pod_sandbox_id, config).await;
    if made.is_err() {
        machine.forget_container(&id);
    }
    made?;
    Ok(v1::CreateContainerResponse { container_id: id })
}

async fn make(
    machine: &Arc<Machine>,
    context: &Context,
    (id, name): (&str, &str),
    sandbox_id: String,
    config: v1::ContainerConfig,
) -> Result<(), Status> {
    let image = config.image.clone().unwrap_or_default().image;
    let found = machine.store.lock().image(&image);
    let Some(image_ref) = found else {
        return Err(Status::not_found(format!(
            "failed to resolve image {image:?}: not found"
        )));
    };
    machine.step(context).await?;
    let labels = config.labels.clone();
    let container = {
        let store = machine.store.lock();
        let sandbox = store.sandbox(&sandbox_id).ok_or_else(refusals::cancelled)?;
        let log_path = match (sandbox.config.log_directory.as_str(), config.log_path.as_str()) {
            (_, "") | ("", _) => String::new(),
            (folder, path) => Path::new(folder).join(path).display().to_string(),
        };
        Container {
            id: id.to_owned(),
            name: name.to_owned(),
            sandbox_id,
            config,
            image_ref,
            log_path,
            created_at: machine.now(),
            started_at: 0,
            finished_at: 0,
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            phase: Phase::Created,
            complete: false,
            starting: false,
            removing: false,
            process: None,
        }
    };
    machine.store.lock().containers.insert(id.to_owned(), container);
    machine.step(context).await?;
    machine.with(id, |container| container.complete = true);
    machine.note(RuntimeEvent::Created(id.to_owned(), labels));
    machine.changed();
    Ok(())
}

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

/// Opens a log with the folders above it, as containerd does.
fn open_log(path: &str) -> Result<(), Status> {
    if path.is_empty() {
        return Ok(());
    }
    let made = std::fs::create_dir_all(Path::new(path).parent().unwrap_or(Path::new("/")));
    let opened = made.and_then(|()| std::fs::File::options().create(true).append(true).open(path));
    opened.map(drop).map_err(|error| {
        Status::unknown(format!(
            "failed to create containerd task: failed to start io pipe copy: failed to create log file: {error}"
        ))
    })
}

fn print(log: &str, machine: &Machine, program: &Program) {
    if program.prints.is_empty() || log.is_empty() {
        return;
    }
    let line = format!("{} stdout F {}\n", machine.runtime.now(), program.prints);
    // A full disk loses lines, as containerd does.
    let _ = std::fs::File::options()
        .append(true)
        .open(log)
        .and_then(|mut file| std::io::Write::write_all(&mut file, line.as_bytes()));
}

fn leave_words(mounts: &[v1::Mount], program: &Program) {
    let mount = mounts
        .iter()
        .find(|mount| mount.container_path == "/dev/termination-log");
    if let Some(mount) = mount.filter(|_| !program.last_words.is_empty()) {
        // Without the file there is nowhere to leave them.
        let _ = std::fs::write(&mount.host_path, &program.last_words);
    }
}

/// Into the volume that is mounted there.
fn write_file(mounts: &[v1::Mount], program: &Program) {
    let Some((path, content)) = &program.writes else {
        return;
    };
    let inside = |mount: &v1::Mount| {
        let inside = Path::new(path).strip_prefix(&mount.container_path).ok()?;
        Some(Path::new(&mount.host_path).join(inside))
    };
    if let Some(file) = mounts.iter().find_map(inside) {
        // A full disk loses files.
        let _ = std::fs::write(file, content);
    }
}

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

/// Lists usage of containers that run: none.
pub(crate) async fn list_stats(
    machine: Arc<Machine>,
    context: Context,
    _: v1::ListContainerStatsRequest,
) -> Result<v1::ListContainerStatsResponse, Status> {
    machine.step(&context).await?;
    let store = machine.store.lock();
    let running = store
        .containers
        .values()
        .filter(|found| found.complete && found.phase == Phase::Running);
    let stats = running.map(|found| v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes {
            id: found.id.clone(),
            labels: found.config.labels.clone(),
            ..v1::ContainerAttributes::default()
        }),
        ..v1::ContainerStats::default()
    });
    Ok(v1::ListContainerStatsResponse {
        stats: stats.collect(),
    })
}

pub(crate) async fn list(
    machine: Arc<Machine>,
    context: Context,
    asked: v1::ListContainersRequest,
) -> Result<v1::ListContainersResponse, Status> {
    machine.step(&context).await?;
    let filter = asked.filter.unwrap_or_default();
    let store = machine.store.lock();
    let fits = |found: &&Container| {
        found.complete
            && (filter.id.is_empty() || found.id == filter.id)
            && (filter.pod_sandbox_id.is_empty() || found.sandbox_id == filter.pod_sandbox_id)
            && filter
                .state
                .is_none_or(|wanted| wanted.state == found.state() as i32)
            && has_labels(&found.config.labels, &filter.label_selector)
    };
    let containers = store.containers.values().filter(fits).map(|found| v1::Container {
        id: found.id.clone(),
        pod_sandbox_id: found.sandbox_id.clone(),
        metadata: found.config.metadata.clone(),
        image: found.config.image.clone(),
        image_ref: found.image_ref.clone(),
        state: found.state() as i32,
        created_at: found.created_at,
        labels: found.config.labels.clone(),
        annotations: found.config.annotations.clone(),
        ..v1::Container::default()
    });
    Ok(v1::ListContainersResponse {
        containers: containers.collect(),
    })
}

pub(crate) async fn status(
    machine: Arc<Machine>,
    _: Context,
    asked: v1::ContainerStatusRequest,
) -> Result<v1::ContainerStatusResponse, Status> {
    let store = machine.store.lock();
    let Some(found) = store.container(&asked.container_id) else {
        return Err(refusals::not_found(FIND, "container", &asked.container_id));
    };
    let status = v1::ContainerStatus {
        id: found.id.clone(),
        metadata: found.config.metadata.clone(),
        state: found.state() as i32,
        created_at: found.created_at,
        started_at: found.started_at,
        finished_at: found.finished_at,
        exit_code: found.exit_code,
        image: Some(v1::ImageSpec {
            image: store.name_of(&found.image_ref),
            ..v1::ImageSpec::default()
        }),
        image_ref: found.image_ref.clone(),
        reason: found.reason.clone(),
        message: found.message.clone(),
        labels: found.config.labels.clone(),
        annotations: found.config.annotations.clone(),
        mounts: found.config.mounts.clone(),
        log_path: found.log_path.clone(),
        ..v1::ContainerStatus::default()
    };
    Ok(v1::ContainerStatusResponse {
        status: Some(status),
        ..v1::ContainerStatusResponse::default()
    })
}

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

pub(crate) async fn exec_sync(
    machine: Arc<Machine>,
    context: Context,
    asked: v1::ExecSyncRequest,
) -> Result<v1::ExecSyncResponse, Status> {
    let id = asked.container_id;
    let (runs, of_container) = {
        let store = machine.store.lock();
        let Some(found) = store.container(&id) else {
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
        (found.process.clone(), found.process.clone())
    };
    machine.step(&context).await?;
    let Some(program) = Program::of(&asked.cmd) else {
        let first = asked.cmd.first().cloned().unwrap_or_default();
        return Err(Status::unknown(format!(
            "failed to exec in container: failed to start exec {:?}: OCI runtime exec failed: exec failed: unable to \
             start container process: exec: {first:?}: executable file not found in $PATH: unknown",
            machine.new_id()
        )));
    };
    let age = runs.map_or(0, |process| machine.now() - process.started_at);
    let unwell = of_container.and_then(|process| process.program.unwell_after);
    let is_unwell = unwell.is_some_and(|after| age >= i64::try_from(after).unwrap_or(0) * 1_000_000_000);
    let code = if program.asks {
        i32::from(is_unwell)
    } else {
        program.exit
    };
    let work = machine
        .runtime
        .sleep(Duration::from_secs(program.seconds.unwrap_or(u64::MAX >> 20)));
    let ended = machine.until_ended(&context, &id, Store::container_runs);
    let limit = async {
        match asked.timeout {
            0 => std::future::pending().await,
            seconds => {
                machine
                    .runtime
                    .sleep(Duration::from_secs(seconds.unsigned_abs()))
                    .await
            }
        }
    };
    let exit_code = tokio::select! {
        biased;
        () = work => code,
        gone = ended => { gone?; 137 }
        () = limit => return Err(Status::deadline_exceeded(format!(
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
