//! Making of a container.

use crate::seen::RuntimeEvent;
use crate::serve::Context;
use crate::store::{Container, Phase};
use crate::{Machine, refusals};
use node_cri::v1;
use std::path::Path;
use std::sync::Arc;
use tonic::Status;

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
