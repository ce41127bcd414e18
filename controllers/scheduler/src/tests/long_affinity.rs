//! Affinity and spread constraints that a tenant makes long decide as short ones do, and are decoded once per attempt.

use super::*;

/// Terms, the last of which is about pods of the app `x`.
fn anti_affinity(count: usize) -> Value {
    let term = |app: String| json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}});
    let others = (1..count).map(|number| term(format!("other-{number}")));
    let terms: Vec<Value> = others.chain([term("x".to_owned())]).collect();
    json!({"cpu": "1", "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

#[test]
fn anti_affinity_keeps_pods_apart_however_long_it_is() {
    for count in [1, 5, 300] {
        // The one that comes avoids the one that runs.
        let mut world = World::new(json!([{"name": "a"}, {"name": "b"}]));
        world.runs(json!({"labels": {"app": "x"}}), "a");
        let pod = make_pod("p", anti_affinity(count));
        assert_eq!(pod.long_affinity() > 0, count == 300);
        assert_eq!(pod.terms().len(), count);
        assert_eq!(world.place(&pod), Ok("b".to_owned()), "{count}");
        // The one that runs keeps the other away, until it goes.
        let mut world = World::new(json!([{"name": "a"}]));
        let other = make_pod("q", json!({"labels": {"app": "x"}}));
        let running = world.runs(anti_affinity(count), "a");
        assert!(world.place(&other).is_err(), "{count}");
        assert!(!world.nodes.set_pod(&running, "a"), "nothing changed");
        let changed = make_pod(&running.key.name, anti_affinity(count + 1));
        assert!(world.nodes.set_pod(&changed, "a"), "{count}");
        world.nodes.remove_pod(&running.key);
        assert_eq!(world.place(&other), Ok("a".to_owned()), "{count}");
    }
}

#[test]
fn node_affinity_is_met_however_long_it_is() {
    for count in [1, 300] {
        let zones: Vec<String> = (0..count).map(|number| format!("zone-{number}")).collect();
        let expression = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": zones});
        let required = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        let pod = make_pod("p", json!({"affinity": affinity}));
        let last = format!("zone-{}", count - 1);
        let mut world = World::new(json!([{"name": "a", "zone": "elsewhere"}, {"name": "b", "zone": last}]));
        assert_eq!(world.place(&pod), Ok("b".to_owned()), "{count}");
    }
}

#[test]
fn long_affinity_is_decoded_once_per_attempt() {
    let nodes: Vec<Value> = (0..40)
        .map(|number| json!({"name": format!("n{number}")}))
        .collect();
    let values: Vec<String> = (0..2_000).map(|number| format!("v{number}")).collect();
    let expression = json!({"key": "k", "operator": "NotIn", "values": values});
    let required = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
    let pod = make_pod(
        "p",
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}),
    );
    let bytes = pod.shape.node_affinity.json_bytes().unwrap();
    let mut world = World::new(nodes.into());
    let attempt = Attempt::new(&pod);
    let placed = world
        .algorithm
        .place(&attempt, &mut world.nodes, &world.nominations, 0);
    assert!(placed.is_ok());
    // Decoded and filed once; each node looks up whether it is listed.
    let once = bytes / crate::pod::LONG_STEP + 2_002;
    assert!(
        (once..once + 200).contains(&attempt.steps()),
        "{}",
        attempt.steps()
    );
}

#[test]
fn spread_constraints_are_kept_however_many_there_are() {
    for count in [1, 40] {
        let mut world = World::new(json!([{"name": "a"}, {"name": "b"}]));
        world.runs(json!({"labels": {"app": "x"}}), "a");
        let constraint = |key: String| {
            json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "x"}}})
        };
        let mut spec = json!({"labels": {"app": "x"}});
        spec["topologySpreadConstraints"] = (0..count)
            .map(|_| constraint("kubernetes.io/hostname".to_owned()))
            .collect();
        let pod = make_pod("p", spec);
        assert_eq!(world.place(&pod), Ok("b".to_owned()), "{count}");
    }
}
