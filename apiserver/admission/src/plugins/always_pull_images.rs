//! AlwaysPullImages: containers and volumes of images pull them at each start, so that a pod runs no image that its node has
//! from another pod without the right to pull it. Off by default, as upstream's.

use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_schema::{Ref, Tree};
use std::collections::HashSet;

const ALWAYS: &str = "Always";
/// Lists of containers, in upstream's order.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

pub(super) struct AlwaysPullImages;

fn images(pod: &Tree) -> impl Iterator<Item = &str> {
    let spec = pod.get("spec");
    let lists = CONTAINERS.into_iter().filter_map(move |list| spec?.get(list));
    lists.flat_map(Ref::items).map(|container| container.str("image"))
}

/// Reports whether an update names no image that the pod did not have.
fn is_unchanged(pod: &Tree, old: Option<&Tree>) -> bool {
    let Some(old) = old else { return false };
    let had: HashSet<&str> = images(old).collect();
    images(pod).all(|image| had.contains(image))
}

/// Fields with another policy, with their values.
fn others(pod: &Tree) -> Vec<(String, String)> {
    let Some(spec) = pod.get("spec") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for list in CONTAINERS {
        let items = spec.get(list).into_iter().flat_map(Ref::items).enumerate();
        let policies = items.map(|(at, own)| (at, own.str("imagePullPolicy").to_owned()));
        let wrong = policies.filter(|(_, policy)| policy != ALWAYS);
        found.extend(wrong.map(|(at, policy)| (format!("spec.{list}[{at}].imagePullPolicy"), policy)));
    }
    let volumes = spec.get("volumes").into_iter().flat_map(Ref::items).enumerate();
    let images =
        volumes.filter_map(|(at, volume)| Some((at, volume.get("image").filter(|own| !own.is_null())?)));
    let policies = images.map(|(at, image)| (at, image.str("pullPolicy").to_owned()));
    let wrong = policies.filter(|(_, policy)| policy != ALWAYS);
    found.extend(wrong.map(|(at, policy)| (format!("spec.volumes[{at}].image.pullPolicy"), policy)));
    found
}

#[async_trait]
impl Plugin for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit, Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        matches!(request.operation, Operation::Create | Operation::Update) && request.is("", "pods")
    }

    async fn mutate(
        &self,
        _: &Request<'_>,
        pod: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        if is_unchanged(pod, old) {
            return Ok(());
        }
        pod.with(&["spec"], |mut spec| {
            for list in CONTAINERS {
                spec.each(list, |mut container| container.set("imagePullPolicy", ALWAYS));
            }
            spec.each("volumes", |mut volume| {
                if let Some(mut image) = volume.field("image").filter(|image| !image.is_null()) {
                    image.set("pullPolicy", ALWAYS);
                }
            });
        });
        Ok(())
    }

    async fn validate(
        &self,
        _: &Request<'_>,
        pod: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some(pod) = pod.filter(|pod| !is_unchanged(pod, old)) else {
            return Ok(());
        };
        let name = pod.str_at(&["metadata", "name"]);
        let said: Vec<String> = others(pod)
            .into_iter()
            .map(|(path, policy)| {
                format!(
                    "pods {name:?} is forbidden: {path}: Unsupported value: {policy:?}: supported values: \"{ALWAYS}\""
                )
            })
            .collect();
        // Upstream's error is a list, which is no answer of its own.
        match said.as_slice() {
            [] => Ok(()),
            [one] => Err(AdmissionError::Unclassified(one.clone())),
            all => Err(AdmissionError::Unclassified(format!("[{}]", all.join(", ")))),
        }
    }
}
