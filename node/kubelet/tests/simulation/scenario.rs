//! Scenario of a node: actions of users and faults, by seed.

use crate::pods::{PURPOSES, pod};
use crate::rules::{Moments, check_converged};
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::Pod;
use machinery_runtime::Simulation;
use std::time::Duration;

const STEPS: u64 = 40;
/// The longest time between two steps.
const STEP_MILLIS: u64 = 12_000;
/// Longest simulated time to converge once faults are disabled.
const CONVERGENCE_MAX: Duration = Duration::from_secs(1800);
/// Simulated time for which it must then write nothing.
const QUIET: Duration = Duration::from_secs(200);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Runs the scenario with a seed; returns the hash of the trace.
pub(crate) fn run_seed(seed: u64) -> u64 {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let run = Run {
            world: world.await,
            moments: Moments::default(),
            made: 0,
        };
        run.run().await;
    });
    simulation.trace_hash()
}

struct Run {
    world: World,
    moments: Moments,
    made: u64,
}

impl Run {
    async fn run(mut self) {
        self.world.break_things();
        for _ in 0..STEPS {
            let pause = Duration::from_millis(1 + self.world.dice(STEP_MILLIS));
            self.pass(pause).await;
            match self.world.dice(10) {
                0..4 => self.new_pod().await,
                4..7 => self.lose_pod().await,
                7 => self.crash(),
                _ => self.inject_faults().await,
            }
        }
        self.world.disable_faults();
        self.calm_down().await;
        self.converge().await;
        self.check_quiescent().await;
        self.wake_all().await;
    }

    /// Workers that are woken with nothing to do list nothing: only the relist does, once a minute, and the collection of
    /// images, once in five.
    async fn wake_all(&mut self) {
        let before = self.world.containerd.calls("ListContainers");
        for round in 0..5 {
            for pod in self.world.pods().await {
                let name = pod.metadata.name.clone().unwrap();
                let labels = pod.metadata.labels.unwrap();
                if labels[crate::pods::PURPOSE] != "misses" {
                    self.world.label(&name, &round.to_string()).await;
                }
            }
            self.pass(Duration::from_secs(4)).await;
        }
        let listed = self.world.containerd.calls("ListContainers") - before;
        assert!(listed <= 2 + self.missing().await * 8, "listed {listed} times");
    }

    /// Pods whose image is nowhere, which try again.
    async fn missing(&self) -> usize {
        let pods = self.world.pods().await;
        let misses = |pod: &&Pod| pod.metadata.labels.as_ref().unwrap()[crate::pods::PURPOSE] == "misses";
        pods.iter().filter(misses).count()
    }

    async fn new_pod(&mut self) {
        let purpose = PURPOSES[self.world.dice(PURPOSES.len() as u64) as usize];
        let name = format!("p{}", self.made);
        self.made += 1;
        let pod = pod(&self.world, &name, purpose);
        self.world.create::<Pod>(pod).await.unwrap();
    }

    async fn lose_pod(&self) {
        let Some(pod) = self.world.pick(self.world.pods().await) else {
            return;
        };
        // Zero takes the object away at once.
        let grace = [None, None, Some(0), Some(2), Some(60)][self.world.dice(5) as usize];
        self.world.delete(&pod.metadata.name.unwrap(), grace).await;
    }

    /// A process dies of something.
    fn crash(&self) {
        let containers = self.world.containerd.containers().into_iter();
        let running = containers.filter(|found| found.runs).map(|found| found.id);
        let sandboxes = self.world.containerd.sandboxes().into_iter();
        let sandboxes = sandboxes.filter(|found| found.runs).map(|found| found.id);
        if let Some(id) = self.world.pick(running.chain(sandboxes).collect()) {
            self.world.containerd.crash(&id, 137);
        }
    }

    async fn inject_faults(&mut self) {
        let pause = Duration::from_millis(1 + self.world.dice(40_000));
        match self.world.dice(5) {
            0 => {
                self.world.end_agent().await;
                self.pass(pause).await;
                self.world.start_agent();
            }
            1 => {
                self.world.containerd.kill();
                self.pass(pause).await;
                self.world.containerd.begin();
            }
            2 => {
                self.world.take_api_away();
                self.pass(pause).await;
                self.world.break_things();
            }
            3 => {
                self.world.take_api_away();
                self.world.end_agent().await;
                self.world.start_agent();
                self.pass(pause).await;
                self.world.break_things();
            }
            _ => {
                self.world.end_agent().await;
                self.world.containerd.kill();
                self.pass(pause).await;
                self.world.start_agent();
                self.pass(pause / 4).await;
                self.world.containerd.begin();
            }
        }
    }

    /// Pods that never come to rest go.
    async fn calm_down(&self) {
        for pod in self.world.pods().await {
            let labels = pod.metadata.labels.unwrap_or_default();
            if matches!(labels[crate::pods::PURPOSE].as_str(), "crashes" | "unwell") {
                self.world.delete(&pod.metadata.name.unwrap(), None).await;
            }
        }
    }

    /// Time passes; whatever happens meanwhile keeps the rules.
    async fn pass(&mut self, mut time: Duration) {
        while !time.is_zero() {
            let step = time.min(LOOK_EVERY);
            time -= step;
            self.world.runtime.sleep(step).await;
            self.moments.check_invariants(&self.world);
        }
    }

    async fn converge(&mut self) {
        let start = self.world.runtime.monotonic();
        loop {
            self.pass(Duration::from_secs(2)).await;
            let Err(why) = check_converged(&self.world, &self.moments).await else {
                return;
            };
            let waited = self.world.runtime.monotonic() - start;
            assert!(
                waited < CONVERGENCE_MAX,
                "did not converge: {why}\n{}",
                self.moments.history()
            );
        }
    }

    /// A converged node stays so: no status is written, and nothing is done to containers.
    async fn check_quiescent(&mut self) {
        // Images that are nowhere are pulled again and again.
        self.pass(QUIET).await;
        let before = (
            self.world.faults.mutations().len(),
            self.world.containerd.happenings().len(),
        );
        self.pass(QUIET).await;
        if let Err(why) = check_converged(&self.world, &self.moments).await {
            panic!("had converged, and then: {why}\n{}", self.moments.history());
        }
        let happened = self.world.containerd.happenings().split_off(before.1);
        assert_eq!(happened, [], "something happens though nothing changes");
        let written = self.world.faults.mutations().split_off(before.0);
        let of_pods = written
            .into_iter()
            .filter(|request| request.path.contains("/pods/"));
        let waiting = self.world.pods().await.into_iter().filter(|pod| {
            let labels = pod.metadata.labels.clone().unwrap_or_default();
            labels[crate::pods::PURPOSE] == "misses"
        });
        let waiting: Vec<String> = waiting.filter_map(|pod| pod.metadata.name).collect();
        let others = of_pods.filter(|request| {
            !waiting
                .iter()
                .any(|name| request.path.contains(&format!("/{name}/")))
        });
        assert_eq!(
            others.collect::<Vec<_>>(),
            [],
            "a status is written although nothing changed"
        );
    }
}
