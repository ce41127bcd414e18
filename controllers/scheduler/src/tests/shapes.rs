//! Costs of pods of many shapes.

use super::*;

/// A world of so many nodes.
fn world_of(nodes: usize) -> World {
    let nodes = (0..nodes).map(|number| json!({"name": format!("n{number}")}));
    World::new(nodes.collect())
}

/// A pod of a shape of its own.
fn pod_of(number: usize) -> Arc<PodInfo> {
    make_pod("p", json!({"cpu": format!("{}m", number + 1)}))
}

/// Steps of placing the pod.
fn steps(world: &mut World, pod: &Arc<PodInfo>) -> usize {
    let attempt = Attempt::new(pod);
    let placed = world
        .algorithm
        .place(&attempt, &mut world.nodes, &world.nominations, 0);
    assert!(placed.is_ok());
    attempt.steps()
}

/// Every shape once cost a look at all nodes, of which the search wants a tenth.
#[test]
fn new_shape_costs_the_nodes_that_are_searched() {
    let mut world = world_of(5_000);
    for number in 0..3 {
        let steps = steps(&mut world, &pod_of(number));
        assert!((500..600).contains(&steps), "{steps}");
    }
    // The search goes on where it ended, so that all nodes have their turn.
    let pod = pod_of(0);
    let all: usize = (0..20).map(|_| steps(&mut world, &pod)).sum();
    assert!(all < 5_000 + 20 * 50, "{all}");
    assert!(steps(&mut world, &pod) < 50);
}

#[test]
fn node_that_changed_is_looked_at_when_it_is_searched() {
    let mut world = world_of(200);
    let pod = make_pod("p", json!({"cpu": "3"}));
    for _ in 0..4 {
        steps(&mut world, &pod);
    }
    let before = steps(&mut world, &pod);
    for number in 0..200 {
        world.runs(json!({"cpu": "2"}), &format!("n{number}"));
    }
    world
        .nodes
        .set_node(&make_node(&json!({"name": "n77", "cpu": "8"})));
    assert_eq!(world.place(&pod), Ok("n77".to_owned()));
    assert!(steps(&mut world, &pod) < before + 200);
}

/// Each of more shapes than are kept was once looked at anew in every turn.
#[test]
fn shapes_that_come_in_turn_keep_some_of_their_answers() {
    const NODES: usize = 20;
    const SHAPES: usize = 1_280;
    let mut world = world_of(NODES);
    let first = steps(&mut world, &pod_of(0));
    let again = steps(&mut world, &pod_of(0));
    assert!(first >= again + NODES, "{first} {again}");
    let mut known = 0;
    for turn in 0..3 {
        for number in 0..SHAPES {
            let is_known = steps(&mut world, &pod_of(number)) < again + NODES;
            known += usize::from(is_known && turn > 0);
        }
    }
    assert!(known > 2 * SHAPES / 3, "{known}");
    assert!(world.algorithm.evaluations().shapes() < SHAPES);
}
