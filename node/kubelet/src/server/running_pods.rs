//! `/runningpods/`: pods as the container runtime has them, whatever the API server says.

use std::collections::BTreeMap;

use http::{Response, StatusCode};
use node_cri::{CriError, v1};
use serde_json::{Value, json};

use super::response::{Body, json as document, text};
use super::usage::listing::named_image;
use crate::managers::ManagerContext;
use crate::pods::observed::label;

/// Labels of the runtime, as a map.
type Labels = std::collections::HashMap<String, String>;

/// Lists pods whose sandbox is ready or of which a container runs.
pub(super) async fn running_pods(context: &ManagerContext) -> Response<Body> {
    match running(context).await {
        Ok(pods) => document(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods})),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.message()),
    }
}

async fn running(context: &ManagerContext) -> Result<Vec<Value>, CriError> {
    let cri = &context.workers.control.cri;
    let sandboxes = cri.list_pod_sandbox(v1::ListPodSandboxRequest { filter: None });
    let containers = cri.list_containers(v1::ListContainersRequest { filter: None });
    let (sandboxes, containers) = (sandboxes.await?.items, containers.await?.containers);
    Ok(pods(&sandboxes, &containers))
}

/// Upstream's `ToAPIPod`: names, and containers with their images.
fn pods(sandboxes: &[v1::PodSandbox], containers: &[v1::Container]) -> Vec<Value> {
    let mut pods: BTreeMap<String, Value> = BTreeMap::new();
    let ready = v1::PodSandboxState::SandboxReady as i32;
    for sandbox in sandboxes.iter().filter(|sandbox| sandbox.state == ready) {
        pods.entry(of(&sandbox.labels, label::POD_UID))
            .or_insert_with(|| pod(&sandbox.labels));
    }
    let runs = v1::ContainerState::ContainerRunning as i32;
    for container in containers.iter().filter(|container| container.state == runs) {
        let uid = of(&container.labels, label::POD_UID);
        let pod = pods.entry(uid).or_insert_with(|| pod(&container.labels));
        let image = container.image.clone().map(named_image).unwrap_or_default();
        let name = of(&container.labels, label::CONTAINER_NAME);
        if let Some(all) = pod["spec"]["containers"].as_array_mut() {
            all.push(json!({"name": name, "image": image, "resources": {}}));
        }
    }
    pods.into_values().collect()
}

fn pod(labels: &Labels) -> Value {
    json!({
        "metadata": {
            "name": of(labels, label::POD_NAME),
            "namespace": of(labels, label::POD_NAMESPACE),
            "uid": of(labels, label::POD_UID),
        },
        "spec": {"containers": []},
        "status": {},
    })
}

fn of(labels: &Labels, name: &str) -> String {
    labels.get(name).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_run_are_those_of_the_runtime() {
        let labels = |pod: &str, container: &str| -> Labels {
            let own = [
                (label::POD_NAME, pod),
                (label::POD_NAMESPACE, "shop"),
                (label::POD_UID, pod),
                (label::CONTAINER_NAME, container),
            ];
            own.map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into()
        };
        let sandbox = |pod: &str, state: v1::PodSandboxState| v1::PodSandbox {
            labels: labels(pod, ""),
            state: state as i32,
            ..v1::PodSandbox::default()
        };
        let container = |pod: &str, name: &str, state: v1::ContainerState| v1::Container {
            labels: labels(pod, name),
            state: state as i32,
            image: Some(v1::ImageSpec {
                image: "sha256:1".to_owned(),
                user_specified_image: "web:1".to_owned(),
                ..v1::ImageSpec::default()
            }),
            ..v1::Container::default()
        };
        let sandboxes = [
            sandbox("a", v1::PodSandboxState::SandboxReady),
            sandbox("b", v1::PodSandboxState::SandboxNotready),
        ];
        let containers = [
            container("a", "main", v1::ContainerState::ContainerRunning),
            container("a", "done", v1::ContainerState::ContainerExited),
            container("b", "done", v1::ContainerState::ContainerExited),
            container("c", "left", v1::ContainerState::ContainerRunning),
        ];
        let found = pods(&sandboxes, &containers);
        let names: Vec<&Value> = found.iter().map(|pod| &pod["metadata"]["name"]).collect();
        assert_eq!(names, ["a", "c"]);
        let expected = json!([{"name": "main", "image": "web:1", "resources": {}}]);
        assert_eq!(found[0]["spec"]["containers"], expected);
    }
}
