//! Attempts that wait for extenders, and the share of nodes that is looked at.

use super::profiles::{configuration, scheduler};
use super::*;
use crate::extender::{About, Answer, Proposal, Question, Verdict};
use crate::rejection::Rejection;
use crate::scheduler::SCHEDULER_NAME;

const NOW: Duration = Duration::ZERO;

fn extended(rest: Value) -> Scheduler {
    let mut extender = json!({"urlPrefix": "http://e", "nodeCacheCapable": true});
    for (key, value) in rest.as_object().unwrap() {
        extender[key] = value.clone();
    }
    let nodes =
        json!([{"name": "a", "gpu": "4"}, {"name": "b", "gpu": "4"}, {"name": "c", "cpu": "1", "gpu": "4"}]);
    let configuration = configuration(json!({"extenders": [extender]}));
    scheduler(&configuration, nodes, &[])
}

fn waits(scheduler: &mut Scheduler, name: &str, mut spec: Value) -> Arc<PodInfo> {
    spec["schedulerName"] = SCHEDULER_NAME.into();
    let pod = make_pod(name, spec);
    scheduler.pod_changed(&pod.key, Some(&pod), NOW);
    pod
}

/// Nodes that are asked about.
fn asked(scheduler: &mut Scheduler) -> Vec<String> {
    match scheduler.decide(NOW, 0) {
        Some(Decision::Ask(Question {
            about: About::Nodes { nodes, .. },
            ..
        })) => nodes.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

fn scores(scores: &[(&str, i64)]) -> Answer {
    Answer::Nodes(Ok(Verdict {
        scores: scores
            .iter()
            .map(|(name, score)| ((*name).into(), *score))
            .collect(),
        ..Verdict::default()
    }))
}

fn bound_to(decision: Option<Decision>) -> String {
    match decision {
        Some(Decision::Bind { pod, node, .. }) => format!("{} on {node}", pod.key.name),
        other => panic!("{other:?}"),
    }
}

#[test]
fn extender_decides_among_the_nodes_that_the_pod_fits() {
    let mut scheduler = extended(json!({"filterVerb": "filter"}));
    waits(&mut scheduler, "p", json!({"cpu": "2"}));
    assert_eq!(asked(&mut scheduler), ["a", "b"]);
    scheduler.answered(scores(&[("b", 0)]));
    assert_eq!(bound_to(scheduler.decide(NOW, 0)), "p on b");
    // Its scores are added to those of the plugins.
    waits(&mut scheduler, "q", json!({"cpu": "1"}));
    assert_eq!(asked(&mut scheduler), ["a", "b", "c"]);
    scheduler.answered(scores(&[("a", 0), ("b", 0), ("c", 100_000)]));
    assert_eq!(bound_to(scheduler.decide(NOW, 0)), "q on c");
}

#[test]
fn extender_is_asked_about_its_own_pods_alone() {
    let managed = json!([{"name": "example.com/gpu"}]);
    let mut scheduler = extended(json!({"filterVerb": "filter", "managedResources": managed}));
    waits(&mut scheduler, "p", json!({"cpu": "2"}));
    assert!(matches!(scheduler.decide(NOW, 0), Some(Decision::Bind { .. })));
    let gpu = json!([{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}]);
    waits(&mut scheduler, "q", json!({"containers": gpu}));
    assert_eq!(asked(&mut scheduler).len(), 3);
    // One that binds alone is not asked about nodes.
    let mut binder = extended(json!({"bindVerb": "bind"}));
    waits(&mut binder, "p", json!({}));
    assert!(matches!(binder.decide(NOW, 0), Some(Decision::Bind { .. })));
}

#[test]
fn extender_that_is_slow_holds_pods_up_until_it_answers() {
    let mut scheduler = extended(json!({"filterVerb": "filter"}));
    waits(&mut scheduler, "p", json!({"cpu": "2"}));
    waits(&mut scheduler, "q", json!({"cpu": "2"}));
    asked(&mut scheduler);
    assert!(!scheduler.has_work(NOW));
    assert!(scheduler.decide(NOW, 0).is_none());
    // A node that comes meanwhile is not among those asked about, and one that is full by now will not do.
    let node = make_node(&json!({"name": "d"}));
    scheduler.node_changed("d", Some(&node), NOW);
    let full = make_pod("running", json!({"cpu": "4", "nodeName": "a"}));
    scheduler.pod_changed(&full.key, Some(&full), NOW);
    scheduler.answered(scores(&[("a", 0), ("b", 0)]));
    assert!(scheduler.has_work(NOW));
    assert_eq!(bound_to(scheduler.decide(NOW, 0)), "p on b");
    assert_eq!(asked(&mut scheduler), ["b", "d"]);
}

#[test]
fn pod_that_goes_while_extenders_are_asked_is_forgotten() {
    let mut scheduler = extended(json!({"filterVerb": "filter"}));
    let gone = waits(&mut scheduler, "p", json!({}));
    asked(&mut scheduler);
    scheduler.pod_changed(&gone.key, None, NOW);
    waits(&mut scheduler, "q", json!({}));
    scheduler.answered(scores(&[("a", 0)]));
    assert_eq!(asked(&mut scheduler).len(), 3);
}

#[test]
fn extender_that_rejects_all_nodes_gives_the_reasons() {
    let mut scheduler = extended(json!({"filterVerb": "filter"}));
    let pod = waits(
        &mut scheduler,
        "p",
        json!({"cpu": "2", "preemptionPolicy": "Never"}),
    );
    asked(&mut scheduler);
    let rejected = [("a".into(), Rejection::unresolvable("no link"))];
    let verdict = Verdict {
        rejected: rejected.into(),
        ..Verdict::default()
    };
    scheduler.answered(Answer::Nodes(Ok(verdict)));
    let Some(Decision::Reject { message, .. }) = scheduler.decide(NOW, 0) else {
        panic!("it fits");
    };
    assert_eq!(
        message,
        "0/3 nodes are available: 1 Insufficient cpu, 1 no link. preemption: not eligible due to preemptionPolicy=Never."
    );
    // What helps an extender is unknown: whatever happens does.
    scheduler.namespace_changed("other", Some(crate::object::Labels::default()), NOW);
    let later = Duration::from_secs(20);
    assert!(scheduler.has_work(later), "{}", pod.key);
}

#[test]
fn extender_that_fails_is_an_error_of_the_attempt() {
    let mut scheduler = extended(json!({"filterVerb": "filter"}));
    waits(&mut scheduler, "p", json!({}));
    asked(&mut scheduler);
    scheduler.answered(Answer::Nodes(Err("down".to_owned())));
    let decided = scheduler.decide(NOW, 0);
    assert!(matches!(decided, Some(Decision::Error { message, .. }) if message == "down"));
    assert!(!scheduler.has_work(NOW));
    let later = Duration::from_secs(2);
    assert!(scheduler.has_work(later));
    assert!(matches!(scheduler.decide(later, 0), Some(Decision::Ask(_))));
}

/// The victims that an extender is asked about, on two full nodes.
fn asked_about_victims() -> (Scheduler, Vec<Proposal>) {
    let configuration =
        configuration(json!({"extenders": [{"urlPrefix": "http://e", "preemptVerb": "preempt"}]}));
    let running = [("a", json!({"cpu": "4"})), ("b", json!({"cpu": "4"}))];
    let mut scheduler = scheduler(&configuration, json!([{"name": "a"}, {"name": "b"}]), &running);
    waits(&mut scheduler, "p", json!({"cpu": "4", "priority": 5}));
    match scheduler.decide(NOW, 0) {
        Some(Decision::Ask(Question {
            about: About::Victims(proposals),
            ..
        })) => (scheduler, proposals),
        other => panic!("{other:?}"),
    }
}

#[test]
fn extender_chooses_where_others_have_to_go() {
    let (mut scheduler, proposals) = asked_about_victims();
    assert_eq!(proposals.len(), 2);
    let left: Vec<Proposal> = proposals.into_iter().filter(|own| &*own.node == "b").collect();
    scheduler.answered(Answer::Victims(Ok(left)));
    let Some(Decision::Reject {
        preemption: Some(preemption),
        ..
    }) = scheduler.decide(NOW, 0)
    else {
        panic!("nobody has to go");
    };
    assert_eq!(&*preemption.node, "b");
    assert_eq!(preemption.victims[0].uid(), "running-1");
}

#[test]
fn extender_may_leave_no_victims() {
    for (answer, words) in [
        (Ok(Vec::new()), "preemption: no candidate node for preemption"),
        (Err("down".to_owned()), "preemption: down"),
    ] {
        let (mut scheduler, _) = asked_about_victims();
        scheduler.answered(Answer::Victims(answer));
        let Some(Decision::Reject {
            message,
            preemption: None,
            ..
        }) = scheduler.decide(NOW, 0)
        else {
            panic!("somebody has to go");
        };
        assert!(message.ends_with(words), "{message}");
    }
}

/// Nodes of so many pods, one after the other, among a hundred large and a hundred small nodes of two zones.
fn places(rest: Value, pods: usize) -> Vec<String> {
    let node = |at: usize| {
        let zone = if at < 100 { "x" } else { "y" };
        json!({"name": format!("n{at:03}"), "cpu": if at == 150 { "64" } else { "4" }, "zone": zone})
    };
    let nodes: Vec<Value> = (0..200).map(node).collect();
    let mut scheduler = scheduler(&configuration(rest), nodes.into(), &[]);
    let place = |at: usize| {
        waits(&mut scheduler, &format!("p{at}"), json!({"cpu": "1"}));
        bound_to(scheduler.decide(NOW, 0)).split_off(6)
    };
    (0..pods).map(place).collect()
}

#[test]
fn share_of_the_nodes_is_looked_at_zone_by_turns() {
    // The one large node is the best, and the 101st of the order: the first hundred are looked at, then the others.
    let places_of = |rest: Value| places(rest, 2);
    assert_eq!(
        places_of(json!({"percentageOfNodesToScore": 100})),
        ["n150", "n150"]
    );
    let sampled = places_of(json!({}));
    assert_ne!(sampled[0], "n150");
    assert_eq!(sampled[1], "n150");
    let of_profile = json!({"profiles": [{"percentageOfNodesToScore": 100}], "percentageOfNodesToScore": 1});
    assert_eq!(places_of(of_profile), ["n150", "n150"]);
}
