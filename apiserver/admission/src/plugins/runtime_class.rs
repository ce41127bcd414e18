//! RuntimeClass: a pod's runtime class must exist, and gives the pod its overhead, node selector and tolerations.

use super::objects::{find, push_json};
use super::tolerations;
use crate::{AdmissionError, Operation, Plugin, Request};
use async_trait::async_trait;
use machinery_meta::Quantity;
use machinery_meta::reader::ObjectReader;
use machinery_schema::{Ref, Step, Tree};
use std::sync::Arc;

pub(super) struct RuntimeClass(Arc<dyn ObjectReader>);

impl RuntimeClass {
    pub(super) fn new(reader: &Arc<dyn ObjectReader>) -> Self {
        Self(Arc::clone(reader))
    }

    /// The class a pod names; a name that leads nowhere is refused.
    async fn class_of(&self, pod: &Tree) -> Result<Option<Tree>, AdmissionError> {
        let name = pod.str_at(&["spec", "runtimeClassName"]);
        if name.is_empty() {
            return Ok(None);
        }
        let found = find(&*self.0, "node.k8s.io", "runtimeclasses", "", name).await?;
        let text = found.and_then(|object| String::from_utf8(object.json).ok());
        match text.and_then(|text| Tree::from_json(&text).ok()) {
            Some(class) => Ok(Some(class)),
            None => Err(AdmissionError::forbidden(format!(
                "pod rejected: RuntimeClass {name:?} not found"
            ))),
        }
    }
}

#[async_trait]
impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn steps(&self) -> &'static [crate::Step] {
        &[crate::Step::Admit, crate::Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.operation == Operation::Create && request.is("", "pods")
    }

    async fn mutate(&self, _: &Request<'_>, pod: &mut Tree, _: Option<&Tree>) -> Result<(), AdmissionError> {
        let Some(class) = self.class_of(pod).await? else {
            return Ok(());
        };
        set_overhead(pod, &class)?;
        select_nodes(pod, &class)?;
        tolerate(pod, &class);
        Ok(())
    }

    async fn validate(
        &self,
        _: &Request<'_>,
        pod: Option<&Tree>,
        _: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some(pod) = pod else { return Ok(()) };
        let class = self.class_of(pod).await?;
        let wanted = class.as_ref().and_then(|class| class.at(&OVERHEAD));
        match (wanted, pod.at(&["spec", "overhead"])) {
            (Some(wanted), own) if !own.is_some_and(|own| same_amounts(own, wanted)) => Err(mismatch()),
            (None, Some(own)) if !own.is_null() => Err(AdmissionError::forbidden(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
                    .to_owned(),
            )),
            _ => Ok(()),
        }
    }
}

const OVERHEAD: [&str; 2] = ["overhead", "podFixed"];

fn mismatch() -> AdmissionError {
    AdmissionError::forbidden(
        "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned(),
    )
}

fn set_overhead(pod: &mut Tree, class: &Tree) -> Result<(), AdmissionError> {
    let Some(wanted) = class.at(&OVERHEAD) else {
        return Ok(());
    };
    let own = pod.at(&["spec", "overhead"]).filter(|own| !own.is_empty());
    if own.is_some_and(|own| !same_amounts(own, wanted)) {
        return Err(mismatch());
    }
    pod.set(&[Step::Name("spec"), Step::Name("overhead")], wanted);
    Ok(())
}

/// Amounts are equal whatever they are written in.
fn same_amounts(left: Ref<'_>, right: Ref<'_>) -> bool {
    let amount = |value: Ref<'_>| value.as_str().and_then(|text| text.parse::<Quantity>().ok());
    left.len() == right.len()
        && left.entries().all(|(name, value)| {
            right.get(name).is_some_and(|other| {
                value == other || amount(value).is_some_and(|own| Some(own) == amount(other))
            })
        })
}

fn select_nodes(pod: &mut Tree, class: &Tree) -> Result<(), AdmissionError> {
    let wanted = class.at(&["scheduling", "nodeSelector"]);
    for (key, value) in wanted.into_iter().flat_map(Ref::entries) {
        let value = value.as_str().unwrap_or_default();
        let own = pod.at(&["spec", "nodeSelector", key]).and_then(Ref::as_str);
        if let Some(own) = own.filter(|own| *own != value) {
            return Err(AdmissionError::forbidden(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
            )));
        }
        pod.set_str(&["spec", "nodeSelector", key], value);
    }
    Ok(())
}

/// The pod's tolerations and the class's, without those that another one covers.
fn tolerate(pod: &mut Tree, class: &Tree) {
    let own = pod.at(&["spec", "tolerations"]);
    let Some(wanted) = class.at(&["scheduling", "tolerations"]) else {
        return;
    };
    let all: Vec<Ref<'_>> = own.into_iter().chain([wanted]).flat_map(Ref::items).collect();
    let texts: Vec<String> = tolerations::merged(&all).into_iter().map(Ref::to_json).collect();
    pod.remove(&["spec", "tolerations"]);
    for text in texts {
        push_json(pod, &["spec", "tolerations"], &text);
    }
}
