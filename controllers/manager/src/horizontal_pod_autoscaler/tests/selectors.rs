//! The search for autoscalers that select the same pods.

use super::super::calculator::PodRef;
use super::super::selectors::{Selected, Selectors};
use crate::views::PodView;
use machinery_client::object::object_of;
use machinery_meta::label_selector::LabelSelector;
use serde_json::json;
use std::sync::Arc;

fn selectors(all: &[(&str, &str)]) -> Selectors {
    let mut own = Selectors::default();
    for (name, text) in all {
        own.add(name, selected(text));
    }
    own
}

fn selected(text: &str) -> Arc<Selected> {
    let selector = LabelSelector::parse(text).unwrap();
    Arc::new(Selected {
        text: text.into(),
        selector,
    })
}

fn pod(name: &str, label: &str, value: &str) -> PodRef {
    let pod = json!({"metadata": {"name": name, "namespace": "ns", "labels": {label: value}}});
    Arc::new(object_of::<PodView>(&pod.to_string()).unwrap())
}

#[track_caller]
fn check(all: &[(&str, &str)], pods: &[PodRef], expected: &[&str]) {
    let mut search = Arc::new(selectors(all)).search(pods.to_vec());
    assert!(search.go(usize::MAX, 0));
    let found = search.into_found();
    assert_eq!(found.iter().map(|name| &**name).collect::<Vec<_>>(), expected);
}

#[test]
fn search_finds_autoscalers_by_equality_and_without() {
    let pods = [pod("p", "app", "a"), pod("q", "app", "b")];
    check(&[("x", "app=a"), ("y", "app=c")], &pods, &["x"]);
    check(&[("x", "app=a"), ("y", "app in (b)")], &pods, &["x", "y"]);
    check(&[("x", "app=a,tier=web"), ("y", "app notin (c)")], &pods, &["y"]);
    check(&[("x", "app"), ("y", "app"), ("z", "app")], &pods, &["x", "y"]);
    check(&[("x", "!app")], &pods, &[]);
    check(&[], &pods, &[]);
}

/// A namespace with many autoscalers and pods is looked at in pieces, each of which others' work may follow.
#[test]
fn search_of_many_comparisons_pauses() {
    let names: Vec<String> = (0..100).map(|number| format!("a{number}")).collect();
    let all: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), "app notin (x,y),none"))
        .collect();
    let pods: Vec<_> = (0..10)
        .map(|number| pod(&format!("p{number}"), "app", &format!("v{number}")))
        .collect();
    let mut search = Arc::new(selectors(&all)).search(pods);
    assert!(!search.go(2, 0), "one pod takes three comparisons");
    let mut pieces = 0;
    while !search.go(7, 1) {
        pieces += 1;
    }
    assert_eq!(pieces, 4, "two pods each, and the last two end it");
    assert!(search.into_found().is_empty());
}

#[test]
fn labels_that_no_autoscaler_asks_for_are_forgotten() {
    let mut own = selectors(&[("x", "app=a"), ("y", "app=b,tier=web")]);
    assert_eq!(own.remove("y"), ["tier".into()]);
    assert!(own.remove("y").is_empty());
    assert_eq!(own.remove("x"), ["app".into()]);
    assert!(own.is_empty());
}

/// Two thousand autoscalers of one target have its selector once: each was half a megabyte of memory.
#[test]
fn selector_of_many_autoscalers_is_kept_once() {
    let text: Vec<String> = (0..1_000).map(|number| format!("k{number}=v")).collect();
    let text = text.join(",");
    let mut own = Selectors::default();
    own.add("a0000", selected(&text));
    let before = machinery_fuzz::held();
    for number in 1..2_000 {
        let name = format!("a{number:04}");
        assert!(!own.has(&name, &text));
        let known = own.of_text(&text).unwrap();
        own.add(&name, known);
        assert!(own.has(&name, &text));
    }
    let bytes = machinery_fuzz::held() - before;
    assert!(bytes < 1 << 20, "{bytes} bytes for 2,000 autoscalers");
    // It is compared once, and forgotten with the last of them.
    let pods = vec![pod("p", "k1", "v")];
    assert!(Arc::new(own.clone()).search(pods).go(1_001, 0));
    for number in 1..2_000 {
        assert!(own.remove(&format!("a{number:04}")).is_empty());
    }
    assert_eq!(own.remove("a0000").len(), 1_000);
    assert!(own.is_empty() && own.of_text(&text).is_none());
}
