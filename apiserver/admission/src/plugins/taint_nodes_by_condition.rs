//! TaintNodesByCondition: a node that registers is not ready, so nothing is placed on it before it is.

use super::objects::push_json;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_schema::{Ref, Tree};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub(super) struct TaintNodesByCondition;

#[async_trait]
impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.operation == Operation::Create && request.is("", "nodes")
    }

    async fn mutate(&self, _: &Request<'_>, node: &mut Tree, _: Option<&Tree>) -> Result<(), AdmissionError> {
        let tainted = node
            .at(&["spec", "taints"])
            .into_iter()
            .flat_map(Ref::items)
            .any(|taint| taint.str("key") == NOT_READY && taint.str("effect") == "NoSchedule");
        if !tainted {
            push_json(
                node,
                &["spec", "taints"],
                &format!(r#"{{"key":"{NOT_READY}","effect":"NoSchedule"}}"#),
            );
        }
        Ok(())
    }
}
