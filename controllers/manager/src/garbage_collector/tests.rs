//! Tables for the graph: what a change wakes.

use super::graph::Graph;
use super::keys::{Key, Object};
use super::node::Node;
use k8s_openapi::api::core::v1::Pod;
use machinery_client::ApiResource;
use machinery_client::object::parse_header;
use machinery_meta::{ObjectHeader, Uid};
use serde_json::json;
use std::sync::Arc;

fn object(uid: &str, owners: &[(&str, bool)], finalizer: Option<&str>) -> Arc<ObjectHeader> {
    let owners: Vec<_> = owners
        .iter()
        .map(|(uid, block)| json!({"apiVersion": "v1", "kind": "Pod", "name": uid, "uid": uid, "blockOwnerDeletion": block}))
        .collect();
    let mut meta = json!({"name": uid, "namespace": "n", "uid": uid, "ownerReferences": owners});
    if let Some(finalizer) = finalizer {
        meta["finalizers"] = json!([finalizer]);
        meta["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    Arc::new(
        parse_header(json!({"metadata": meta}).to_string().as_bytes())
            .unwrap()
            .0,
    )
}

fn named(uid: &str) -> Object {
    Object {
        namespace: "n".to_owned(),
        uid: Uid(uid.to_owned()),
    }
}

fn look(uid: &str) -> Key {
    Key::Delete(named(uid))
}

fn seen(graph: &Graph, pods: &Arc<ApiResource>, header: &Arc<ObjectHeader>) -> Vec<Key> {
    graph.seen(node(pods, header)).looks
}

fn node(resource: &Arc<ApiResource>, header: &Arc<ObjectHeader>) -> Node {
    Node {
        resource: resource.clone(),
        header: header.clone(),
        of_extension: false,
    }
}

#[test]
fn changes_wake_whom_they_concern() {
    let (graph, pods) = (Graph::default(), Arc::new(ApiResource::of::<Pod>()));
    let gone = |uid: &str| graph.gone(&Uid(uid.to_owned())).looks;
    // An owner that was never seen is requested when its dependent is checked.
    assert_eq!(
        seen(&graph, &pods, &object("child", &[("parent", true)], None)),
        [look("child")]
    );
    assert_eq!(seen(&graph, &pods, &object("parent", &[], None)), []);
    // Nothing new is nothing to do.
    assert_eq!(
        seen(&graph, &pods, &object("child", &[("parent", true)], None)),
        []
    );
    // Foreground deletion wakes the dependents, once however often the owner is written meanwhile; then, when the last is
    // gone, the owner.
    assert_eq!(
        seen(&graph, &pods, &object("parent", &[], Some("foregroundDeletion"))),
        [look("child"), look("parent")]
    );
    assert_eq!(
        seen(&graph, &pods, &object("parent", &[], Some("foregroundDeletion"))),
        []
    );
    assert_eq!(gone("child"), [look("parent")]);
    assert_eq!(gone("parent"), []);
    assert_eq!(graph.len(), 0);
}

#[test]
fn owner_removed_enqueues_dependents() {
    let (graph, pods) = (Graph::default(), Arc::new(ApiResource::of::<Pod>()));
    seen(&graph, &pods, &object("parent", &[], None));
    seen(&graph, &pods, &object("a", &[("parent", false)], None));
    seen(&graph, &pods, &object("b", &[("parent", false)], None));
    assert_eq!(
        graph.gone(&Uid("parent".to_owned())).looks,
        [look("a"), look("b")]
    );
}

#[test]
fn owner_alive_keeps_dependents_unqueued() {
    let (graph, pods) = (Graph::default(), Arc::new(ApiResource::of::<Pod>()));
    seen(&graph, &pods, &object("parent", &[], None));
    assert_eq!(seen(&graph, &pods, &object("a", &[("parent", true)], None)), []);
    // One more owner, which is unknown; then an owner that goes.
    assert_eq!(
        seen(
            &graph,
            &pods,
            &object("a", &[("parent", true), ("other", false)], None)
        ),
        [look("a")]
    );
    seen(&graph, &pods, &object("parent", &[], Some("foregroundDeletion")));
    assert_eq!(
        seen(&graph, &pods, &object("late", &[("parent", true)], None)),
        [look("late")]
    );
}

#[test]
fn owner_in_another_namespace_is_no_owner() {
    let (graph, pods) = (Graph::default(), Arc::new(ApiResource::of::<Pod>()));
    let mut parent = (*object("parent", &[], None)).clone();
    parent.key.namespace = "another".to_owned();
    seen(&graph, &pods, &Arc::new(parent));
    assert_eq!(
        seen(&graph, &pods, &object("a", &[("parent", true)], None)),
        [look("a")]
    );
}

#[test]
fn orphaning_and_unblocking() {
    let (graph, pods) = (Graph::default(), Arc::new(ApiResource::of::<Pod>()));
    seen(&graph, &pods, &object("parent", &[], None));
    seen(&graph, &pods, &object("child", &[("parent", true)], None));
    let orphaning = seen(&graph, &pods, &object("parent", &[], Some("orphan")));
    assert_eq!(orphaning, [Key::Orphan(named("parent"))]);
    seen(&graph, &pods, &object("parent", &[], Some("foregroundDeletion")));
    assert_eq!(
        seen(&graph, &pods, &object("child", &[("parent", false)], None)),
        [look("parent"), look("child")]
    );
}

/// An object with 12,500 invented owners, of a megabyte, took ten times that before owners that were never seen had
/// entries of their own kind: 800 bytes each.
#[test]
fn invented_owners_take_little_memory() {
    const OWNERS: usize = 10_000;
    let (graph, pods) = (Graph::default(), Arc::new(ApiResource::of::<Pod>()));
    let uids: Vec<String> = (0..OWNERS)
        .map(|number| format!("00000000-0000-4000-8000-{number:012x}"))
        .collect();
    let owners: Vec<(&str, bool)> = uids.iter().map(|uid| (uid.as_str(), true)).collect();
    let child = object("child", &owners, None);
    let (wake, cost) = machinery_fuzz::cost(|| seen(&graph, &pods, &child));
    assert_eq!(wake, [look("child")], "and nothing is asked for them");
    assert_eq!(graph.len(), OWNERS + 1);
    assert!(cost.peak < OWNERS * 128, "{} bytes each", cost.peak / OWNERS);
    graph.gone(&child.uid);
    assert_eq!(graph.len(), 0);
}

#[test]
fn owners_that_come_later_have_the_dependents_that_claimed_them() {
    let (graph, pods) = (Graph::default(), Arc::new(ApiResource::of::<Pod>()));
    seen(&graph, &pods, &object("a", &[("parent", false)], None));
    seen(&graph, &pods, &object("b", &[("parent", false)], None));
    seen(&graph, &pods, &object("c", &[("parent", false)], None));
    graph.gone(&Uid("c".to_owned()));
    seen(&graph, &pods, &object("parent", &[], None));
    let parent = Uid("parent".to_owned());
    assert_eq!(graph.gone(&parent).looks, [look("a"), look("b")]);
    // Where its resource is served again, it has them again.
    seen(&graph, &pods, &object("parent", &[], None));
    assert_eq!(graph.dependents_after(&parent, None, 1).len(), 1);
    let first = Uid("a".to_owned());
    let rest = graph.dependents_after(&parent, Some(&first), 9);
    assert_eq!(
        rest.iter().map(|node| &*node.header.uid.0).collect::<Vec<_>>(),
        ["b"]
    );
}
