//! Sandboxes: made in steps, each of which may be the daemon's last.

use crate::program::Program;
use crate::seen::RuntimeEvent;
use crate::serve::Context;
use crate::store::{Phase, Sandbox, Store};
use crate::{Machine, containers, refusals};
use node_cri::v1;
use node_sys::cgroup::CgroupResources;
use std::collections::HashMap;
use std::sync::Arc;
use tonic::Status;

fn full_name(metadata: &v1::PodSandboxMetadata) -> String {
    let attempt = metadata.attempt.to_string();
    let parts = [&metadata.name, &metadata.namespace, &metadata.uid, &attempt];
    parts.map(String::as_str).join("_")
}

pub(crate) async fn run(
    machine: Arc<Machine>,
    context: Context,
    asked: v1::RunPodSandboxRequest,
) -> Result<v1::RunPodSandboxResponse, Status> {
    let config = asked.config.unwrap_or_default();
    let Some(metadata) = &config.metadata else {
        return Err(Status::unknown("sandbox config must include metadata"));
    };
    let (id, name) = (machine.new_id(), full_name(metadata));
    let reserved = machine.store.lock().reserve(&name, &id);
    reserved.map_err(|holder| refusals::reserved("sandbox", &name, &holder))?;
    let _starting = Starting::new(&machine);
    let made = make(&machine, &context, (&id, &name), config, asked.runtime_handler).await;
    if made.is_err() {
        machine.forget_sandbox(&id);
    }
    made?;
    Ok(v1::RunPodSandboxResponse { pod_sandbox_id: id })
}

/// A sandbox that starts, counted until its call ends in whatever way.
struct Starting(Arc<Machine>);

impl Starting {
    fn new(machine: &Arc<Machine>) -> Self {
        let mut starting = machine.starting.lock();
        starting.0 += 1;
        starting.1 = starting.1.max(starting.0);
        Self(Arc::clone(machine))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.starting.lock().0 -= 1;
    }
}

async fn make(
    machine: &Arc<Machine>,
    context: &Context,
    (id, name): (&str, &str),
    config: v1::PodSandboxConfig,
    runtime_handler: String,
) -> Result<(), Status> {
    if !matches!(runtime_handler.as_str(), "" | "runc") {
        return Err(Status::unknown(format!(
            "failed to get sandbox runtime: no runtime for {runtime_handler:?} is configured"
        )));
    }
    machine.step(context).await?;
    let labels = config.labels.clone();
    let mut sandbox = Sandbox {
        id: id.to_owned(),
        name: name.to_owned(),
        config,
        runtime_handler,
        created_at: machine.now(),
        ip: String::new(),
        phase: Phase::Unknown,
        complete: false,
        process: None,
    };
    let group = sandbox.group(id);
    {
        let mut store = machine.store.lock();
        if !sandbox.is_on_host() {
            sandbox.ip = store.next_address();
        }
        store.sandboxes.insert(id.to_owned(), sandbox);
    }
    machine.step(context).await?;
    machine.apply_group(&group)?;
    let process = machine.begin_process(id, Program::default());
    let started = machine.with_sandbox(id, |sandbox| {
        sandbox.process = Some(process);
        sandbox.phase = Phase::Running;
    });
    started.ok_or_else(refusals::cancelled)?;
    machine.note(RuntimeEvent::SandboxStarted(id.to_owned(), labels));
    machine.publish_start(id);
    machine.step(context).await?;
    machine.with_sandbox(id, |sandbox| sandbox.complete = true);
    machine.changed();
    Ok(())
}

pub(crate) async fn stop(
    machine: Arc<Machine>,
    context: Context,
    asked: v1::StopPodSandboxRequest,
) -> Result<v1::StopPodSandboxResponse, Status> {
    let id = asked.pod_sandbox_id;
    if machine.store.lock().sandbox(&id).is_none() {
        return Err(refusals::not_found(
            "an error occurred when try to find",
            "sandbox",
            &id,
        ));
    }
    stop_known(&machine, &context, &id).await?;
    Ok(v1::StopPodSandboxResponse {})
}

async fn stop_known(machine: &Arc<Machine>, context: &Context, id: &str) -> Result<(), Status> {
    let own = machine.store.lock().containers_of(id);
    for container in own {
        containers::stop_known(machine, context, &container, 0).await?;
    }
    machine.step(context).await?;
    machine.kill_process(id);
    machine.until_ended(context, id, Store::sandbox_runs).await
}

pub(crate) async fn remove(
    machine: Arc<Machine>,
    context: Context,
    asked: v1::RemovePodSandboxRequest,
) -> Result<v1::RemovePodSandboxResponse, Status> {
    let id = asked.pod_sandbox_id;
    if machine.store.lock().sandbox(&id).is_none() {
        return Ok(v1::RemovePodSandboxResponse {});
    }
    stop_known(&machine, &context, &id).await?;
    let own = machine.store.lock().containers_of(&id);
    for container in own {
        containers::remove_known(&machine, &context, &container).await?;
    }
    machine.step(&context).await?;
    machine.forget_sandbox(&id);
    Ok(v1::RemovePodSandboxResponse {})
}

pub(crate) async fn status(
    machine: Arc<Machine>,
    _: Context,
    asked: v1::PodSandboxStatusRequest,
) -> Result<v1::PodSandboxStatusResponse, Status> {
    let id = asked.pod_sandbox_id;
    let store = machine.store.lock();
    let Some(sandbox) = store.sandbox(&id) else {
        return Err(Status::not_found(
            "an error occurred when try to find sandbox: not found",
        ));
    };
    let status = v1::PodSandboxStatus {
        id: id.clone(),
        metadata: sandbox.config.metadata.clone(),
        state: state_of(sandbox),
        created_at: sandbox.created_at,
        network: Some(v1::PodSandboxNetworkStatus {
            // As containerd's: none once the network has been taken down.
            ip: match sandbox.phase {
                Phase::Running => sandbox.ip.clone(),
                _ => String::new(),
            },
            additional_ips: Vec::new(),
        }),
        linux: None,
        labels: sandbox.config.labels.clone(),
        annotations: sandbox.config.annotations.clone(),
        runtime_handler: sandbox.runtime_handler.clone(),
    };
    Ok(v1::PodSandboxStatusResponse {
        status: Some(status),
        ..v1::PodSandboxStatusResponse::default()
    })
}

fn state_of(sandbox: &Sandbox) -> i32 {
    match sandbox.phase {
        Phase::Running => v1::PodSandboxState::SandboxReady as i32,
        _ => v1::PodSandboxState::SandboxNotready as i32,
    }
}

pub(crate) async fn list(
    machine: Arc<Machine>,
    context: Context,
    asked: v1::ListPodSandboxRequest,
) -> Result<v1::ListPodSandboxResponse, Status> {
    machine.step(&context).await?;
    let filter = asked.filter.unwrap_or_default();
    let store = machine.store.lock();
    let fits = |sandbox: &&Sandbox| {
        sandbox.complete
            && (filter.id.is_empty() || sandbox.id == filter.id)
            && filter
                .state
                .is_none_or(|wanted| wanted.state == state_of(sandbox))
            && has_labels(&sandbox.config.labels, &filter.label_selector)
    };
    let items = store
        .sandboxes
        .values()
        .filter(fits)
        .map(|sandbox| v1::PodSandbox {
            id: sandbox.id.clone(),
            metadata: sandbox.config.metadata.clone(),
            state: state_of(sandbox),
            created_at: sandbox.created_at,
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
            runtime_handler: sandbox.runtime_handler.clone(),
        });
    Ok(v1::ListPodSandboxResponse {
        items: items.collect(),
    })
}

pub(crate) fn has_labels(labels: &HashMap<String, String>, wanted: &HashMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl Store {
    fn containers_of(&self, sandbox_id: &str) -> Vec<String> {
        let own = self.containers.values();
        let own = own.filter(|found| found.complete && found.sandbox_id == sandbox_id);
        own.map(|found| found.id.clone()).collect()
    }

    fn sandbox_runs(&self, id: &str) -> bool {
        let found = self.sandboxes.get(id);
        found.is_some_and(|sandbox| sandbox.phase == Phase::Running)
    }
}

impl Machine {
    pub(crate) fn with_sandbox<T>(&self, id: &str, change: impl FnOnce(&mut Sandbox) -> T) -> Option<T> {
        self.store.lock().sandboxes.get_mut(id).map(change)
    }

    pub(crate) fn apply_group(&self, group: &str) -> Result<(), Status> {
        let made = self.groups.apply(group, &CgroupResources::default());
        made.map_err(|error| Status::unknown(format!("unable to apply cgroup configuration: {error}")))
    }

    /// Waits until the daemon has written down that something has ended; a caller that goes ends the wait.
    pub(crate) async fn until_ended(
        &self,
        context: &Context,
        id: &str,
        runs: fn(&Store, &str) -> bool,
    ) -> Result<(), Status> {
        tokio::select! {
            biased;
            () = self.until(|store| !runs(store, id)) => Ok(()),
            () = context.cancelled.cancelled() => Err(refusals::cancelled()),
        }
    }

    /// Takes back what there is of a sandbox, its name included.
    fn forget_sandbox(self: &Arc<Self>, id: &str) {
        self.kill_process(id);
        let mut store = self.store.lock();
        store.names.retain(|_, holder| holder != id);
        let removed = store.sandboxes.remove(id);
        drop(store);
        if let Some(sandbox) = removed {
            let _ = self.groups.remove(&sandbox.group(id));
            self.note(RuntimeEvent::Removed(id.to_owned()));
        }
        self.changed();
    }
}
