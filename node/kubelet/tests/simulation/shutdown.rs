//! The machine goes down: pods end by priority, the node says so, and the lock is given back; or it does not after all.

use crate::pods::IMAGE;
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use machinery_runtime::Simulation;
use node_cri_model::Program;
use node_kubelet::shutdown::{ShutdownConfig, ShutdownPeriod};
use serde_json::{Value, json};
use std::time::Duration;

/// Seconds of the pods of each priority.
const PERIODS: [(i32, u64); 2] = [(0, 30), (1_000, 20)];

/// A world whose agent has these periods, and these pods running.
async fn world(world: World, pods: [(&str, Program, Option<&str>); 2]) -> World {
    let mut world = world;
    let period = |(priority, seconds)| ShutdownPeriod { priority, seconds };
    world.shutdown = ShutdownConfig {
        by_priority: PERIODS.map(period).into(),
        ..ShutdownConfig::default()
    };
    world.end_agent().await;
    world.start_agent();
    for (name, program, class) in pods {
        world
            .create::<Pod>(pod(&world, name, &program, class))
            .await
            .unwrap();
        world.until_running(name, "", Duration::from_secs(300)).await;
    }
    world.logind.until(|state| state.locks == 1).await;
    world
}

/// A program that no signal but KILL ends.
fn stubborn() -> Program {
    Program::default()
}

fn pod(world: &World, name: &str, program: &Program, class: Option<&str>) -> Value {
    let container = json!({"name": "main", "image": IMAGE, "command": program.command()});
    json!({"metadata": {"name": name}, "spec": {"nodeName": world.node_name(), "priorityClassName": class,
        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 3_600, "containers": [container]}})
}

async fn status(world: &World, name: &str) -> PodStatus {
    let pods = world.pods().await;
    let found = pods
        .into_iter()
        .find(|pod| pod.metadata.name.as_deref() == Some(name));
    found.unwrap().status.unwrap()
}

async fn until_phase(world: &World, name: &str, phase: &str) -> PodStatus {
    let until = world.runtime.monotonic() + Duration::from_secs(300);
    loop {
        let status = status(world, name).await;
        if status.phase.as_deref() == Some(phase) {
            return status;
        }
        assert!(world.runtime.monotonic() < until, "{name} is {:?}", status.phase);
        world.runtime.sleep(Duration::from_millis(200)).await;
    }
}

/// Status, reason and message of the node's condition `Ready`, once it has this status.
async fn until_ready_is(world: &World, status: &str) -> (String, String) {
    let until = world.runtime.monotonic() + Duration::from_secs(300);
    let nodes: kube::Api<Node> = kube::Api::all(world.client.kube().clone());
    loop {
        let node = nodes.get(world.node_name()).await.unwrap();
        let conditions = node.status.unwrap().conditions.unwrap();
        let ready = conditions.into_iter().find(|own| own.type_ == "Ready").unwrap();
        if ready.status == status {
            return (ready.reason.unwrap(), ready.message.unwrap());
        }
        assert!(
            world.runtime.monotonic() < until,
            "the node's readiness is {}",
            ready.status
        );
        world.runtime.sleep(Duration::from_millis(200)).await;
    }
}

/// Runs the scenario of a seed in which the machine goes down.
pub(crate) fn run_shutdown(seed: u64) {
    let simulation = Simulation::new(seed);
    let new = World::new(simulation.runtime());
    simulation.run(async move {
        // What has no priority ends at its signal; the critical one is killed at the end of its period.
        let pods = [
            ("critical", stubborn(), Some("system-node-critical")),
            ("plain", Program::serving(), None),
        ];
        let world = world(new.await, pods).await;
        assert_eq!(world.logind.state().configured, Some(Duration::from_secs(50)));
        let began = world.runtime.monotonic();
        world.logind.change(|state| state.is_preparing = true);
        let plain = until_phase(&world, "plain", "Failed").await;
        let since = world.runtime.monotonic() - began;
        assert!(
            since < Duration::from_secs(30),
            "it has ended before its period did: {since:?}"
        );
        assert_eq!(status(&world, "critical").await.phase.as_deref(), Some("Running"));
        let message = "Pod was terminated in response to imminent node shutdown.";
        assert_eq!(
            (plain.reason.as_deref(), plain.message.as_deref()),
            (Some("Terminated"), Some(message))
        );
        let conditions = plain.conditions.unwrap();
        let disrupted = conditions
            .iter()
            .find(|own| own.type_ == "DisruptionTarget")
            .unwrap();
        assert_eq!(
            (disrupted.reason.as_deref(), disrupted.message.as_deref()),
            (Some("TerminationByKubelet"), Some(message))
        );
        let not_ready = ("KubeletNotReady".to_owned(), "node is shutting down".to_owned());
        assert_eq!(until_ready_is(&world, "False").await, not_ready);
        world
            .create::<Pod>(pod(&world, "late", &Program::serving(), None))
            .await
            .unwrap();
        let late = until_phase(&world, "late", "Failed").await;
        assert_eq!(
            (late.reason.as_deref(), late.message.as_deref()),
            (
                Some("NodeShutdown"),
                Some("Pod was rejected: Pod was rejected as the node is shutting down.")
            )
        );
        world.logind.until(|state| state.locks == 0).await;
        let took = world.runtime.monotonic() - began;
        assert!(took < Duration::from_secs(52), "{took:?}");
        // It is killed at the end of its period, which the lock does not outlast.
        until_phase(&world, "critical", "Failed").await;
        let record =
            std::fs::read_to_string(world.data_dir().join("agent/graceful_node_shutdown_state")).unwrap();
        assert!(!record.contains("0001-01-01"), "{record}");
    });
}

/// Runs the scenario of a seed in which a shutdown is cancelled while the first pods end.
pub(crate) fn run_cancelled(seed: u64) {
    let simulation = Simulation::new(seed);
    let new = World::new(simulation.runtime());
    simulation.run(async move {
        let pods = [
            ("critical", Program::serving(), Some("system-node-critical")),
            ("plain", stubborn(), None),
        ];
        let world = world(new.await, pods).await;
        // The bus goes away for a moment: the next session takes a lock of its own.
        world.logind.change(|state| state.starts += 1);
        world
            .logind
            .until(|state| state.taken == 2 && state.locks == 1)
            .await;
        world.logind.change(|state| state.is_preparing = true);
        until_ready_is(&world, "False").await;
        world.logind.change(|state| state.is_preparing = false);
        until_ready_is(&world, "True").await;
        world.logind.until(|state| state.locks == 1).await;
        until_phase(&world, "plain", "Failed").await;
        assert_eq!(status(&world, "critical").await.phase.as_deref(), Some("Running"));
        world
            .create::<Pod>(pod(&world, "late", &Program::serving(), None))
            .await
            .unwrap();
        world.until_running("late", "", Duration::from_secs(300)).await;
    });
}
