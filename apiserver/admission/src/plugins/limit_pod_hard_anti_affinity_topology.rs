//! LimitPodHardAntiAffinityTopology: pods keep others away from single nodes only, not from whole zones. Off by default, as
//! upstream's.

use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_schema::{Ref, Tree};

const HOST: &str = "kubernetes.io/hostname";
const TERMS: [&str; 4] = [
    "spec",
    "affinity",
    "podAntiAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
];

pub(super) struct LimitPodHardAntiAffinityTopology;

#[async_trait]
impl Plugin for LimitPodHardAntiAffinityTopology {
    fn name(&self) -> &'static str {
        "LimitPodHardAntiAffinityTopology"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update) && request.is("", "pods")
    }

    async fn validate(
        &self,
        _: &Request<'_>,
        pod: Option<&Tree>,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let terms = pod
            .and_then(|pod| pod.at(&TERMS))
            .into_iter()
            .flat_map(Ref::items);
        let mut keys = terms.map(|term| term.str("topologyKey"));
        match keys.find(|key| *key != HOST) {
            None => Ok(()),
            Some(key) => Err(AdmissionError::forbidden(format!(
                "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOST} is allowed"
            ))),
        }
    }
}
