//! `start_pods SOCKET CGROUP-PARENT COUNT CLIENTS`: what the container runtime takes for a pod when no agent is
//! involved. Makes sandboxes with one container each, as the node agent requests them, by as many clients at once;
//! prints how long each step of each took, and removes everything.

use futures::future::try_join_all;
use machinery_runtime::Runtime;
use node_cri::{CriClient, CriError, v1};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

type Failure = Box<dyn std::error::Error>;

/// One of the images that the agent brings in.
const IMAGE: &str = "knarr.local/hello:1";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, cgroup_parent, count, clients] = arguments.as_slice() else {
        return Err("usage: start_pods SOCKET CGROUP-PARENT COUNT CLIENTS".into());
    };
    let starter = Starter {
        runtime: Runtime::real(),
        cri: CriClient::new(socket),
        cgroup_parent: cgroup_parent.clone(),
        count: count.parse()?,
        next: AtomicUsize::new(0),
    };
    let clients = (0..clients.parse()?).map(|_: usize| starter.client());
    let pods: Vec<Pod> = try_join_all(clients).await?.into_iter().flatten().collect();
    let steps: Vec<Value> = pods.iter().map(Pod::steps_as_json).collect();
    try_join_all(pods.iter().map(|pod| starter.remove(&pod.sandbox))).await?;
    writeln!(std::io::stdout(), "{}", Value::from(steps))?;
    Ok(())
}

struct Starter {
    runtime: Runtime,
    cri: CriClient,
    cgroup_parent: String,
    count: usize,
    next: AtomicUsize,
}

/// A running pod, and how long its steps took: sandbox, create, start.
struct Pod {
    sandbox: String,
    steps: [Duration; 3],
}

impl Pod {
    fn steps_as_json(&self) -> Value {
        let [sandbox, create, start] = self.steps.map(|step| step.as_secs_f64() * 1e3);
        json!({"sandbox": sandbox, "create": create, "start": start})
    }
}

impl Starter {
    async fn client(&self) -> Result<Vec<Pod>, CriError> {
        let mut pods = Vec::new();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                return Ok(pods);
            }
            pods.push(self.start(number).await?);
        }
    }

    async fn start(&self, number: usize) -> Result<Pod, CriError> {
        let began = self.runtime.monotonic();
        let config = self.sandbox(number);
        let request = v1::RunPodSandboxRequest {
            config: Some(config.clone()),
            runtime_handler: String::new(),
        };
        let sandbox = self.cri.run_pod_sandbox(request).await?.pod_sandbox_id;
        let with_sandbox = self.runtime.monotonic();
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(container()),
            sandbox_config: Some(config),
        };
        let container_id = self.cri.create_container(request).await?.container_id;
        let created = self.runtime.monotonic();
        let request = v1::StartContainerRequest { container_id };
        self.cri.start_container(request).await?;
        let started = self.runtime.monotonic();
        let steps = [with_sandbox - began, created - with_sandbox, started - created];
        Ok(Pod { sandbox, steps })
    }

    fn sandbox(&self, number: usize) -> v1::PodSandboxConfig {
        let name = format!("direct-{number}");
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.clone(),
                namespace: "direct".to_owned(),
                uid: name.clone(),
                attempt: 0,
            }),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/{name}", self.cgroup_parent),
                ..v1::LinuxPodSandboxConfig::default()
            }),
            hostname: name,
            ..v1::PodSandboxConfig::default()
        }
    }

    async fn remove(&self, sandbox: &str) -> Result<(), CriError> {
        let stop = v1::StopPodSandboxRequest {
            pod_sandbox_id: sandbox.to_owned(),
        };
        self.cri.stop_pod_sandbox(stop).await?;
        let remove = v1::RemovePodSandboxRequest {
            pod_sandbox_id: sandbox.to_owned(),
        };
        self.cri.remove_pod_sandbox(remove).await.map(drop)
    }
}

fn container() -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: "hello".to_owned(),
            attempt: 0,
        }),
        image: Some(v1::ImageSpec {
            image: IMAGE.to_owned(),
            ..v1::ImageSpec::default()
        }),
        ..v1::ContainerConfig::default()
    }
}
