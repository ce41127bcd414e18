//! DefaultTolerationSeconds: a pod stays five minutes on a node that is not ready or unreachable, unless it says
//! otherwise.

use super::objects::push_json;
use crate::{AdmissionError, Operation, Plugin, Request};
use async_trait::async_trait;
use machinery_schema::{Ref, Tree};

const SECONDS: i64 = 300;
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

pub(super) struct DefaultTolerationSeconds;

#[async_trait]
impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update) && request.is("", "pods")
    }

    async fn mutate(&self, _: &Request<'_>, pod: &mut Tree, _: Option<&Tree>) -> Result<(), AdmissionError> {
        for taint in TAINTS {
            let tolerated = pod
                .at(&["spec", "tolerations"])
                .into_iter()
                .flat_map(Ref::items)
                .any(|toleration| {
                    let (key, effect) = (toleration.str("key"), toleration.str("effect"));
                    (key == taint || key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
                });
            if !tolerated {
                let json = format!(
                    r#"{{"key":"{taint}","operator":"Exists","effect":"NoExecute","tolerationSeconds":{SECONDS}}}"#
                );
                push_json(pod, &["spec", "tolerations"], &json);
            }
        }
        Ok(())
    }
}
