//! Answers about containers.

use super::FIND;
use crate::sandboxes::has_labels;
use crate::serve::Context;
use crate::store::{Container, Phase};
use crate::{Machine, refusals};
use node_cri::v1;
use std::sync::Arc;
use tonic::Status;

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
