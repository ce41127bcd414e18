//! LimitRanger: a namespace's limit ranges give containers their default requests and limits, and bound containers, pods and
//! claims from below, from above and by the ratio of limit to request.
//!
//! `defaults` changes a new or resized pod, `constraints` refuses what is out of bounds once the object is complete. The
//! ranges are read with each request, so that there is no cache that could be late. Their number, and that of a pod's
//! containers, are the client's to choose: the comparisons of one request are counted, and too many are refused.

mod constraints;
mod defaults;
#[cfg(test)]
mod tests;

use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use constraints::Bounds;
use k8s_openapi::api::core::v1::{LimitRangeItem, PersistentVolumeClaimSpec, PodSpec};
use machinery_meta::GroupResource;
use machinery_meta::reader::ObjectReader;
use machinery_schema::{Ref, Tree};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

pub(super) struct LimitRanger(Arc<dyn ObjectReader>);

/// The limits of a LimitRange, without the rest.
#[derive(Deserialize, Default)]
#[serde(default)]
struct LimitRange {
    spec: Spec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    /// Absent and null alike: upstream's own clients write null where there are none.
    limits: Option<Vec<LimitRangeItem>>,
}

impl LimitRanger {
    pub(super) fn new(reader: &Arc<dyn ObjectReader>) -> Self {
        Self(Arc::clone(reader))
    }

    /// The limits of each range of a namespace, in order of their names.
    async fn ranges(&self, namespace: &str) -> Result<Vec<Vec<LimitRangeItem>>, AdmissionError> {
        let resource = GroupResource::new("", "limitranges");
        let found = self.0.list(&resource, namespace).await?;
        let limits = found.iter().map(|range| {
            let range: LimitRange = serde_json::from_slice(&range.json)
                .map_err(|error| AdmissionError::Internal(format!("reading a limit range: {error}")))?;
            Ok(range.spec.limits.unwrap_or_default())
        });
        limits.collect()
    }
}

/// Nothing is held against an object that is on its way out.
fn is_ending(old: Option<&Tree>) -> bool {
    let time = old.and_then(|old| old.at(&["metadata", "deletionTimestamp"]));
    time.is_some_and(|time| !time.is_null())
}

fn is_pod(request: &Request<'_>) -> bool {
    request.resource == "pods" && request.kind == "Pod"
}

/// The spec, typed.
fn spec<T: DeserializeOwned + Default>(object: &Tree) -> Result<T, AdmissionError> {
    let Some(spec) = object.get("spec") else {
        return Ok(T::default());
    };
    serde_json::from_str(&spec.to_json())
        .map_err(|error| AdmissionError::Internal(format!("reading a spec: {error}")))
}

#[async_trait]
impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit, Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        if !request.group.is_empty() {
            return false;
        }
        match (request.resource, request.subresource, request.operation) {
            ("pods", "resize", Operation::Update) | ("pods", "", Operation::Create) => is_pod(request),
            ("persistentvolumeclaims", "", Operation::Create | Operation::Update) => true,
            _ => false,
        }
    }

    async fn mutate(
        &self,
        request: &Request<'_>,
        object: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        if !is_pod(request) || is_ending(old) {
            return Ok(());
        }
        for limits in self.ranges(request.namespace).await? {
            defaults::apply(object, &limits);
        }
        Ok(())
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some(object) = object.filter(|_| !is_ending(old)) else {
            return Ok(());
        };
        let ranges = self.ranges(request.namespace).await?;
        if ranges.is_empty() {
            return Ok(());
        }
        let mut bounds = Bounds::default();
        if is_pod(request) {
            let pod: PodSpec = spec(object)?;
            return ranges
                .iter()
                .try_for_each(|limits| bounds.check_pod(limits, &pod));
        }
        let claim: PersistentVolumeClaimSpec = spec(object)?;
        ranges
            .iter()
            .try_for_each(|limits| bounds.check_claim(limits, &claim))
    }
}

/// A member that is there and no null.
fn present(value: Option<Ref<'_>>) -> bool {
    value.is_some_and(|value| !value.is_null())
}
