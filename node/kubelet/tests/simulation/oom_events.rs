//! A machine that runs out of memory: its node has an event for each kill, and an agent that starts again none for those before.

use crate::simulated_node::World;
use k8s_openapi::api::core::v1::Event;
use machinery_runtime::Simulation;
use std::time::Duration;

/// The lines of a report that ends this process.
fn report(process: &str, pid: u64, group: Option<&str>) -> [String; 3] {
    let of = match group {
        None => "CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom".to_owned(),
        Some(group) => {
            format!("CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg={group}")
        }
    };
    [
        format!("{process} invoked oom-killer: gfp_mask=0x0, order=0"),
        format!("oom-kill:constraint={of},task_memcg=/c,task={process},pid={pid},uid=0"),
        format!("Out of memory: Killed process {pid} ({process}) total-vm:0kB"),
    ]
}

/// Messages of the node's events of this reason, once there are so many.
async fn until_events(world: &World, count: usize) -> Vec<String> {
    let until = world.runtime.monotonic() + Duration::from_secs(300);
    let events: kube::Api<Event> = kube::Api::all(world.client.kube().clone());
    loop {
        let all = events.list(&kube::api::ListParams::default()).await.unwrap();
        let own = all
            .items
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some("SystemOOM"));
        let mut own: Vec<String> = own
            .map(|event| {
                assert_eq!(event.involved_object.name.as_deref(), Some(world.node_name()));
                event.message.unwrap()
            })
            .collect();
        if own.len() >= count {
            own.sort();
            return own;
        }
        assert!(world.runtime.monotonic() < until, "events: {own:?}");
        world.runtime.sleep(Duration::from_millis(200)).await;
    }
}

/// Runs the scenario of a seed.
pub(crate) fn run_seed(seed: u64) {
    let simulation = Simulation::new(seed);
    let world = World::new(simulation.runtime());
    simulation.run(async move {
        let mut world = world.await;
        world.kernel_log.write(&report("a", 7, None));
        world
            .kernel_log
            .write(&report("of-a-pod", 8, Some("/kubepods/p")));
        until_events(&world, 1).await;
        world.end_agent().await;
        world.kernel_log.write(&report("b", 9, None));
        world.start_agent();
        let found = until_events(&world, 2).await;
        let message = |process, pid| format!("System OOM encountered, victim process: {process}, pid: {pid}");
        assert_eq!(found, [message("a", 7), message("b", 9)]);
    });
}
