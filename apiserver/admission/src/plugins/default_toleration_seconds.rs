//! DefaultTolerationSeconds: a pod stays five minutes on a node that is not ready or unreachable, unless it says
//! otherwise.

use super::objects::pod_of;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_schema::{Ref, Tree};

const SECONDS: i64 = 300;
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// The plugin, with a pod that has the tolerations.
pub(super) struct DefaultTolerationSeconds(Tree);

impl DefaultTolerationSeconds {
    pub(super) fn new() -> Self {
        let tolerations = TAINTS.map(|taint| {
            format!(
                r#"{{"key":"{taint}","operator":"Exists","effect":"NoExecute","tolerationSeconds":{SECONDS}}}"#
            )
        });
        let pod = format!(r#"{{"spec":{{"tolerations":[{}]}}}}"#, tolerations.join(","));
        Self(pod_of(&pod))
    }
}

#[async_trait]
impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update) && request.is("", "pods")
    }

    async fn mutate(&self, _: &Request<'_>, pod: &mut Tree, _: Option<&Tree>) -> Result<(), AdmissionError> {
        for ours in self
            .0
            .at(&["spec", "tolerations"])
            .into_iter()
            .flat_map(Ref::items)
        {
            let tolerated = pod
                .at(&["spec", "tolerations"])
                .into_iter()
                .flat_map(Ref::items)
                .any(|toleration| {
                    let (key, effect) = (toleration.str("key"), toleration.str("effect"));
                    (key == ours.str("key") || key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
                });
            if !tolerated {
                pod.push(&["spec", "tolerations"], ours);
            }
        }
        Ok(())
    }
}
