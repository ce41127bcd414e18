//! A container that ends while its runtime is dead, seen when the runtime answers again: nothing reports it, and the
//! relist comes once a minute.

use crate::pods::pod;
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::Pod;
use machinery_runtime::Simulation;
use std::time::Duration;

/// Longest time until the worker sees it and starts another.
const PATIENCE: Duration = Duration::from_secs(12);

/// Runs the scenario of a seed.
pub(crate) fn run_seed(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let world = world.await;
        world.create::<Pod>(pod(&world, "p", "stubborn")).await.unwrap();
        let first = world.until_running("p", "", Duration::from_secs(60)).await;
        world.containerd.kill();
        world.containerd.crash(&first, 1);
        world.runtime.sleep(Duration::from_secs(5)).await;
        world.containerd.begin();
        world.until_running("p", &first, PATIENCE).await;
    });
}
