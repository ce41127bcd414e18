//! Terms of pods on nodes take memory for what is stored, and cost other pods nothing.

use super::*;
use machinery_fuzz::{cost, resident};

const NODES: usize = 1_000;
const TERMS_OF_POD: usize = 100;

/// A pod of the namespace with distinct terms of every kind, at topologies that no node has but for one in ten.
fn with_terms(namespace: &str, number: usize) -> (String, Value) {
    let term = |term: usize| {
        let key = if term.is_multiple_of(10) {
            "kubernetes.io/hostname".to_owned()
        } else {
            format!("key-{number}-{term}")
        };
        json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": format!("app-{number}-{term}")}}})
    };
    let terms: Vec<Value> = (0..TERMS_OF_POD).map(term).collect();
    let name = format!("p{number}");
    let spec =
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}});
    let metadata = json!({"name": name, "namespace": namespace, "uid": name, "labels": {"app": "a"}});
    (name, json!({"metadata": metadata, "spec": spec}))
}

fn decoded(pod: &Value) -> Arc<PodInfo> {
    Arc::new(PodInfo::new(serde_json::from_value(pod.clone()).unwrap()))
}

/// Nodes with so many pods of one tenant, and the bytes of these pods' JSON.
fn world_of(pods: usize) -> (World, usize) {
    let nodes: Vec<Value> = (0..NODES)
        .map(|number| json!({"name": format!("n{number}")}))
        .collect();
    let mut world = World::new(nodes.into());
    let mut bytes = 0;
    for number in 0..pods {
        let (_, pod) = with_terms("tenant", number);
        bytes += pod.to_string().len();
        // The last nodes first: a column as long as its last row would be as long as it can be.
        let node = format!("n{}", NODES - 1 - number % NODES);
        world.nodes.set_pod(&decoded(&pod), &node);
    }
    (world, bytes)
}

#[test]
fn terms_of_pods_take_memory_for_what_is_stored() {
    let (empty, _) = world_of(0);
    drop(empty);
    let before = resident();
    let (empty, _) = world_of(0);
    let of_nodes = resident() - before;
    drop(empty);
    let before = resident();
    let (mut world, bytes) = world_of(200);
    let of_terms = resident() - before - of_nodes;
    assert!(of_terms < 8 * bytes, "{of_terms} for {bytes} of JSON");
    // Another tenant's pod is placed: it makes no columns for keys that no node has.
    world.place(&make_pod("other", json!({}))).unwrap();
    assert!(world.nodes.topologies() <= 2, "{}", world.nodes.topologies());
    // All of it goes with the pods.
    for number in 0..200 {
        world
            .nodes
            .remove_pod(&ObjectKey::new("tenant", format!("p{number}")));
    }
    let left = (resident() - before).saturating_sub(of_nodes);
    assert!(left < bytes / 4, "{left} of {bytes} stay");
}

#[test]
fn terms_of_a_tenant_cost_other_namespaces_no_step() {
    let placed = |pods: usize| {
        let (mut world, _) = world_of(pods);
        let attempt = Attempt::new(&make_pod("p", json!({"labels": {"app": "x"}})));
        let (placed, cost) = cost(|| {
            world
                .algorithm
                .place(&attempt, &mut world.nodes, &world.nominations, 0)
        });
        assert!(placed.is_ok());
        (attempt.steps(), cost.total)
    };
    let ((few_steps, few_bytes), (steps, bytes)) = (placed(2), placed(100));
    assert_eq!(few_steps, steps);
    assert!(
        bytes <= few_bytes + 1_000,
        "{bytes} allocated, {few_bytes} with few terms"
    );
}

#[test]
fn pod_that_comes_is_compared_with_what_may_select_it() {
    let (mut world, _) = world_of(0);
    // Counters of the tenant's pods that wait: each of so many terms has one.
    for number in 0..5 {
        let (_, pod) = with_terms("tenant", number);
        world.place(&decoded(&pod)).unwrap();
    }
    assert_eq!(world.nodes.counts().kept().0, 5 * TERMS_OF_POD);
    let other = make_pod("other", json!({"labels": {"app": "app-1-1"}}));
    assert_eq!(world.nodes.counts().touched_by(&other.pod.metadata), 0);
    let labelled = |app: &str| {
        decoded(
            &json!({"metadata": {"name": "q", "namespace": "tenant", "uid": "q", "labels": {"app": app}}}),
        )
    };
    for (app, touched) in [("app-1-1", 1), ("unknown", 0)] {
        let counts = world.nodes.counts();
        assert_eq!(counts.touched_by(&labelled(app).pod.metadata), touched, "{app}");
    }
    // The one that is touched counts.
    let pod = decoded(&with_terms("tenant", 1).1);
    for node in 0..NODES {
        let mut one = labelled("app-1-0").pod.clone();
        one.metadata.name = format!("q{node}").into();
        world
            .nodes
            .set_pod(&Arc::new(PodInfo::new(one)), &format!("n{node}"));
    }
    assert!(world.place(&pod).is_err());
}

/// A selector of each form, the labels and the namespaces of a pod: whether it selects is as it is without an index.
#[test]
fn selectors_are_found_as_if_all_were_compared() {
    let forms = [
        json!({}),
        json!({"matchLabels": {"app": "x"}}),
        json!({"matchLabels": {"app": "x", "tier": "1"}}),
        json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "In", "values": (0..40).map(|n| if n == 39 { "x".to_owned() } else { format!("v{n}") }).collect::<Vec<_>>()}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}),
        Value::Null,
    ];
    let many: Vec<String> = (0..40)
        .map(|number| format!("n{number}"))
        .chain(["ns".to_owned()])
        .collect();
    let scopes = [
        json!({}),
        json!({"namespaces": ["ns", "other"]}),
        json!({"namespaces": ["other"]}),
        json!({"namespaces": many}),
        json!({"namespaceSelector": {}}),
        json!({"namespaceSelector": {"matchLabels": {"team": "a"}}}),
        json!({"namespaces": ["ns"], "namespaceSelector": {"matchLabels": {"team": "a"}}}),
    ];
    for labels in [
        json!({}),
        json!({"app": "x"}),
        json!({"app": "z", "tier": "1"}),
        json!({"app": "x", "tier": "1"}),
    ] {
        for (form, scope) in forms
            .iter()
            .flat_map(|form| scopes.iter().map(move |scope| (form, scope)))
        {
            let mut term = scope.clone();
            term["topologyKey"] = "kubernetes.io/hostname".into();
            term["labelSelector"] = form.clone();
            let affinity =
                json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
            let mut world = World::new(json!([{"name": "a"}]));
            let running = world.runs(json!({"affinity": affinity}), "a");
            let pod = make_pod("p", json!({"labels": labels}));
            let selector = &running.terms()[0].1.selector;
            let selects = selector.matches(&pod.pod.metadata, world.nodes.namespaces());
            // Terms of the one that runs, and a counter of the one that comes.
            assert_eq!(world.place(&pod).is_err(), selects, "{labels} {form} {scope}");
            world.nodes.remove_pod(&running.key);
            world.nodes.set_pod(&pod, "a");
            let waiting = make_pod("q", json!({"affinity": affinity}));
            assert_eq!(world.place(&waiting).is_err(), selects, "{labels} {form} {scope}");
            // The counter follows pods that go and come.
            world.nodes.remove_pod(&pod.key);
            assert!(world.place(&waiting).is_ok());
            world.nodes.set_pod(&pod, "a");
            assert_eq!(world.place(&waiting).is_err(), selects, "{labels} {form} {scope}");
        }
    }
}
