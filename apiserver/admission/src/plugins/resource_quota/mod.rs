//! ResourceQuota: a namespace's objects use no more than its quotas allow.
//!
//! A request is measured where it is handled, then waits in its namespace's batch: one task at a time takes all that wait,
//! checks them one after the other against the quotas, and writes each quota's usage once ([`batches`]). The write is
//! conditional on the quota's revision, so that several servers over one store cannot grant the same room twice; on a
//! conflict the batch is checked again. Usage is charged before the object is stored, and given back by the controller.

mod batches;
mod configuration;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod upstream_tests;

use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use batches::Batches;
pub use configuration::Configuration;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota as ApiQuota, Service};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use machinery_meta::GroupResource;
use machinery_meta::reader::ObjectReader;
use machinery_runtime::Runtime;
use machinery_schema::Tree;
use machinery_semantics::ResourceList;
use machinery_semantics::quota::{self, Asked, DeviceClasses, Evaluator, Measured, MissingResources, Quota};
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A request waits so long for its batch, as upstream's.
const EVALUATION_TIMEOUT: Duration = Duration::from_secs(10);

/// A usage that was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// The quota has changed since it was read, or is gone.
    #[error("the quota has changed")]
    Conflict,
    #[error("{0}")]
    Failed(String),
}

/// Writes the usage of quotas; the server's registry does.
#[async_trait]
pub trait UsageWriter: Send + Sync {
    /// Replaces `status.used` of the quota that has this revision still.
    async fn write(
        &self,
        namespace: &str,
        name: &str,
        resource_version: &str,
        used: &ResourceList,
    ) -> Result<(), UsageError>;
}

/// See the module.
pub struct ResourceQuota {
    reader: Arc<dyn ObjectReader>,
    runtime: Runtime,
    batches: Arc<Batches>,
}

impl fmt::Debug for ResourceQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceQuota").finish_non_exhaustive()
    }
}

impl ResourceQuota {
    pub fn new(
        reader: &Arc<dyn ObjectReader>,
        writer: Arc<dyn UsageWriter>,
        configuration: Configuration,
        runtime: &Runtime,
    ) -> Self {
        Self {
            reader: Arc::clone(reader),
            runtime: runtime.clone(),
            batches: Arc::new(Batches::new(Arc::clone(reader), writer, configuration, runtime)),
        }
    }

    /// The request as the quotas see it; nothing where it cannot change what is used.
    async fn measure(
        &self,
        request: &Request<'_>,
        object: &Tree,
        old: Option<&Tree>,
    ) -> Result<Option<Asked>, AdmissionError> {
        let evaluator = Evaluator::of(request.group, request.resource);
        let is_update = request.operation == Operation::Update;
        if evaluator == Evaluator::Pods
            && is_update
            && request.subresource.is_empty()
            && !changes_deadline(object, old)
        {
            return Ok(None);
        }
        let classes = match evaluator {
            Evaluator::ResourceClaims => self.device_classes().await?,
            _ => DeviceClasses::default(),
        };
        let (new, missing) = measured(&evaluator, object)?;
        // What an update creates has no revision before, and counts in whole.
        let is_creation = |old: &&Tree| old.str_at(&["metadata", "resourceVersion"]).is_empty();
        let creates = old.is_some_and(|old| is_creation(&old));
        let old = old.filter(|old| !is_creation(old));
        let old = old.map(|old| measured(&evaluator, old)).transpose()?;
        let old = old.map(|(old, _)| old);
        if is_update
            && old
                .as_ref()
                .is_some_and(|old| !evaluator.handles_update(request.subresource, old, &new))
        {
            return Ok(None);
        }
        Ok(Some(Asked {
            evaluator,
            is_update: is_update && !creates,
            is_status: request.subresource == "status",
            new,
            old,
            missing,
            classes,
        }))
    }

    async fn device_classes(&self) -> Result<DeviceClasses, AdmissionError> {
        let resource = GroupResource::new("resource.k8s.io", "deviceclasses");
        let found = self.reader.list(&resource, "").await?;
        let class = |json: &[u8]| -> Result<(String, String), AdmissionError> {
            let class: DeviceClass = serde_json::from_slice(json).map_err(unreadable)?;
            let name = class.metadata.name.unwrap_or_default();
            let resource = class.spec.and_then(|spec| spec.extended_resource_name);
            Ok((name, resource.unwrap_or_default()))
        };
        let classes = found.iter().map(|own| class(&own.json));
        classes.collect::<Result<_, _>>().map(DeviceClasses)
    }
}

fn unreadable(error: serde_json::Error) -> AdmissionError {
    AdmissionError::Internal(format!("reading an object: {error}"))
}

/// Reports whether a pod gets a deadline or loses it: no other update of a pod concerns a quota.
fn changes_deadline(object: &Tree, old: Option<&Tree>) -> bool {
    let deadline = |pod: &Tree| {
        pod.at(&["spec", "activeDeadlineSeconds"])
            .is_some_and(|own| !own.is_null())
    };
    old.is_none_or(|old| deadline(old) != deadline(object))
}

fn measured(evaluator: &Evaluator, object: &Tree) -> Result<(Measured, MissingResources), AdmissionError> {
    let mut missing = MissingResources::default();
    let measured = match evaluator {
        Evaluator::Pods => {
            let pod: Pod = typed(object)?;
            missing = pod
                .spec
                .as_ref()
                .map(quota::missing_resources)
                .unwrap_or_default();
            quota::pod(&pod)
        }
        Evaluator::Services => quota::service(&typed::<Service>(object)?),
        Evaluator::VolumeClaims => quota::volume_claim(&typed::<PersistentVolumeClaim>(object)?),
        Evaluator::ResourceClaims => quota::resource_claim(&typed::<ResourceClaim>(object)?),
        Evaluator::Count(_) => evaluator.count(),
    };
    Ok((measured, missing))
}

fn typed<T: DeserializeOwned>(object: &Tree) -> Result<T, AdmissionError> {
    serde_json::from_str(&object.root().to_json()).map_err(unreadable)
}

/// The quotas of a namespace, in order of their names.
async fn quotas(reader: &dyn ObjectReader, namespace: &str) -> Result<Vec<Quota>, AdmissionError> {
    let resource = GroupResource::new("", "resourcequotas");
    let found = reader.list(&resource, namespace).await?;
    let quota = |json: &[u8]| {
        let quota: ApiQuota = serde_json::from_slice(json).map_err(unreadable)?;
        Ok(Quota::of(&quota))
    };
    found.iter().map(|own| quota(&own.json)).collect()
}

#[async_trait]
impl Plugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        let (group, resource) = (request.group, request.resource);
        let is_namespace = group.is_empty() && resource == "namespaces";
        if request.namespace.is_empty() || is_namespace || quota::is_ignored(group, resource) {
            return false;
        }
        let evaluator = Evaluator::of(group, resource);
        match request.operation {
            Operation::Create => evaluator.handles_create(request.subresource),
            Operation::Update => evaluator.may_handle_update(request.subresource),
            Operation::Delete | Operation::Connect => false,
        }
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some(object) = object else { return Ok(()) };
        // Most namespaces have none. Those that have are read anew by the batch, whose writes depend on their versions.
        let resource = GroupResource::new("", "resourcequotas");
        if !self.batches.limits_by_default()
            && !self.reader.is_any_known(&resource, request.namespace).await?
        {
            return Ok(());
        }
        let Some(asked) = self.measure(request, object, old).await? else {
            return Ok(());
        };
        let answer = self.batches.ask(request, asked);
        match self.runtime.timeout(EVALUATION_TIMEOUT, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(AdmissionError::Internal(
                "resource quota evaluation timed out".to_owned(),
            )),
        }
    }
}
