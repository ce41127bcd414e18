//! Keeps the processors of running containers as they are to be: when the shared ones change, and every while.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use node_cri::{CriClient, CriError, v1};

use super::cpu::set::CpuSet;
use super::manager::ResourceManagers;
use crate::managers::ManagerContext;
use crate::pods::observed::label;

/// Containers that are changed at once: one that the runtime does not change holds up no more than its own place.
const CHANGES_MAX: usize = 8;

/// Runs for ever.
pub(crate) async fn run(context: ManagerContext) {
    let managers = &context.workers.resource_managers;
    if !managers.has_cpus() {
        return std::future::pending().await;
    }
    let cri = &context.workers.control.cri;
    let period = context.config.resource_managers.cpu_reconcile_period;
    loop {
        let seen = managers.shared.get();
        if let Err(error) = managers.reconcile(cri).await {
            tracing::warn!(error = %error.message(), "processors of containers not compared");
        }
        let changed = managers.shared.wait_for(|now| *now != seen);
        let _ = context.runtime.timeout(period, changed).await;
    }
}

impl ResourceManagers {
    /// Gives every running container the processors that it is to have.
    ///
    /// # Errors
    /// The runtime does not list its containers.
    pub(super) async fn reconcile(&self, cri: &CriClient) -> Result<(), CriError> {
        let running = running(cri).await?;
        let ids: BTreeSet<&String> = running.iter().map(|container| &container.id).collect();
        let known: Vec<String> = self.applied.lock().keys().cloned().collect();
        let changes: Vec<(String, CpuSet)> = running
            .iter()
            .filter_map(|container| self.change_of(container))
            .collect();
        // Only of those known before the list: others may have been created since.
        let gone = known.into_iter().filter(|id| !ids.contains(id));
        self.forget_ended(cri, gone.collect()).await;
        futures::stream::iter(changes)
            .for_each_concurrent(CHANGES_MAX, |(id, cpus)| self.apply(cri, id, cpus))
            .await;
        Ok(())
    }

    /// Forgets containers that do not run, but for those that are created and start later.
    async fn forget_ended(&self, cri: &CriClient, ids: Vec<String>) {
        if ids.is_empty() {
            return;
        }
        let request = v1::ListContainersRequest { filter: None };
        let Ok(all) = cri.list_containers(request).await else {
            return;
        };
        let created = v1::ContainerState::ContainerCreated as i32;
        let running = v1::ContainerState::ContainerRunning as i32;
        let kept: BTreeSet<String> = all
            .containers
            .into_iter()
            .filter(|container| [created, running].contains(&container.state))
            .map(|container| container.id)
            .collect();
        let mut applied = self.applied.lock();
        for id in ids.iter().filter(|id| !kept.contains(*id)) {
            applied.remove(id);
        }
    }

    fn change_of(&self, container: &v1::Container) -> Option<(String, CpuSet)> {
        let uid = container.labels.get(label::POD_UID)?;
        let name = container.labels.get(label::CONTAINER_NAME)?;
        let cpus = self.cpus_of(uid, name);
        let is_applied = self.applied.lock().get(&container.id) == Some(&cpus);
        (!is_applied && !cpus.is_empty()).then(|| (container.id.clone(), cpus))
    }

    async fn apply(&self, cri: &CriClient, id: String, cpus: CpuSet) {
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.clone(),
            linux: Some(v1::LinuxContainerResources {
                cpuset_cpus: cpus.to_string(),
                ..v1::LinuxContainerResources::default()
            }),
            ..v1::UpdateContainerResourcesRequest::default()
        };
        match cri.update_container_resources(request).await {
            Ok(_) => drop(self.applied.lock().insert(id, cpus)),
            Err(error) => tracing::warn!(id, %cpus, error = %error.message(), "processors not changed"),
        }
    }
}

async fn running(cri: &CriClient) -> Result<Vec<v1::Container>, CriError> {
    let filter = v1::ContainerFilter {
        state: Some(v1::ContainerStateValue {
            state: v1::ContainerState::ContainerRunning as i32,
        }),
        ..v1::ContainerFilter::default()
    };
    let request = v1::ListContainersRequest { filter: Some(filter) };
    Ok(cri.list_containers(request).await?.containers)
}
