//! Looks at objects and their owners: what is requested, what is written, and what is waited for.

use super::bench::{Bench, Id};
use serde_json::{Value, json};
use std::time::Duration;

const OWNER: Id = pod("owner");
const CHILD: Id = pod("child");
const OTHER: Id = pod("other");
const ELSEWHERE: Id = Id {
    namespace: "m",
    ..pod("elsewhere")
};
const NODE: Id = Id {
    api_version: "v1",
    kind: "Node",
    namespace: "",
    name: "node",
    uid: "node",
};

const fn pod(name: &'static str) -> Id {
    Id {
        api_version: "v1",
        kind: "Pod",
        namespace: "n",
        name,
        uid: name,
    }
}

fn reference(owner: Id, blocks: bool) -> Value {
    let mut reference = owner.reference();
    reference["blockOwnerDeletion"] = json!(blocks);
    reference
}

fn deleted(id: Id, how: &str) -> String {
    let (path, uid) = (id.path(), id.uid);
    format!("DELETE {path} {how} {{resourceVersion:42,uid:{uid}}} 200")
}

/// The owner's finalizer alone says that it waits; upstream's `classifyReferences` requests nothing else.
#[test]
fn dependents_of_a_waiting_owner_go_whether_they_block_it_or_not() {
    for is_seen in [true, false] {
        Bench::run(move |mut bench| async move {
            let owner = OWNER.deleting("foregroundDeletion", &[]);
            bench.create(OWNER, owner.clone());
            if is_seen {
                bench.see(OWNER, None, Some(&owner));
            }
            // It has a blocking dependent too, so that its finalizer is not removed before.
            bench.add(OTHER, &OTHER.object(&[reference(OWNER, true)]));
            bench.add(CHILD, &CHILD.object(&[reference(OWNER, false)]));
            bench.work().await;
            let expected = [deleted(CHILD, "Background"), deleted(OTHER, "Background")];
            let mut writes = bench.api.writes();
            writes.retain(|write| write.starts_with("DELETE"));
            writes.sort();
            assert_eq!(writes, expected, "owner seen: {is_seen}");
        });
    }
}

#[test]
fn dependents_that_another_owns_lose_the_waiting_owner_and_nothing_else() {
    Bench::run(|mut bench| async move {
        bench.add(OTHER, &OTHER.object(&[]));
        bench.add(OWNER, &OWNER.deleting("foregroundDeletion", &[]));
        let mut kept = reference(OTHER, false);
        kept["controller"] = json!(false);
        let child = CHILD.object(&[kept, reference(OWNER, true)]);
        bench.add(CHILD, &child);
        bench.work().await;
        let kept = "{apiVersion:v1,blockOwnerDeletion:false,controller:false,kind:Pod,name:other,uid:other}";
        let path = CHILD.path();
        let sent = format!("PATCH {path} {{ownerReferences:[{kept}],resourceVersion:42,uid:child}} 200");
        assert_eq!(bench.api.writes(), [sent]);
        assert!(bench.left.is_empty());
    });
}

/// A cycle is opened once, and then the collector does not ask again whether it is open.
#[test]
fn cycles_of_waiting_objects_open_and_are_not_polled() {
    for blocks in [true, false] {
        Bench::run(move |mut bench| async move {
            bench.add(
                OWNER,
                &OWNER.deleting("foregroundDeletion", &[reference(CHILD, true)]),
            );
            bench.add(OTHER, &OTHER.object(&[reference(OWNER, true)]));
            bench.add(CHILD, &CHILD.object(&[reference(OWNER, blocks)]));
            bench.work().await;
            let mut writes = bench.api.writes();
            writes.retain(|write| write.contains("/child"));
            let (path, open) = (
                CHILD.path(),
                "{apiVersion:v1,blockOwnerDeletion:false,kind:Pod,name:owner,uid:owner}",
            );
            let opened =
                format!("PATCH {path} {{ownerReferences:[{open}],resourceVersion:42,uid:child}} 200");
            let after =
                |revision| format!("DELETE {path} Foreground {{resourceVersion:{revision},uid:child}} 200");
            match blocks {
                true => assert_eq!(writes, [opened, after(43)]),
                false => assert_eq!(writes, [after(42)]),
            }
            assert!(bench.left.is_empty(), "{:?}", bench.left);
        });
    }
}

/// A tenant who knows a uid neither holds another's object, nor has it carry out his patches.
#[test]
fn dependents_out_of_reach_neither_hold_an_owner_nor_are_set_free() {
    let foreign = |owner: Id| {
        let elsewhere = ELSEWHERE.deleting("example.com/held", &[reference(owner, true)]);
        let node = NODE.object(&[reference(owner, true)]);
        (elsewhere, node)
    };
    for finalizer in ["foregroundDeletion", "orphan"] {
        Bench::run(move |mut bench| async move {
            let (elsewhere, node) = foreign(OWNER);
            bench.add(ELSEWHERE, &elsewhere);
            bench.add(NODE, &node);
            bench.add(OWNER, &OWNER.deleting(finalizer, &[]));
            bench.work().await;
            let released = format!("PATCH {} {{finalizers:[],resourceVersion:42}} 200", OWNER.path());
            assert_eq!(bench.api.writes(), [released], "{finalizer}");
        });
    }
}

#[test]
fn finalizers_go_from_objects_that_others_write_meanwhile() {
    Bench::run(|mut bench| async move {
        bench.add(OWNER, &OWNER.deleting("foregroundDeletion", &[]));
        let revisions = [50, 60, 70].map(|revision| json!({"resourceVersion": revision.to_string()}));
        bench.api.write_before_writes(revisions);
        bench.work().await;
        let path = OWNER.path();
        let sent = [(42, 409), (50, 409), (60, 409), (70, 200)].map(|(revision, code)| {
            format!("PATCH {path} {{finalizers:[],resourceVersion:{revision}}} {code}")
        });
        assert_eq!(bench.api.writes(), sent);
    });
}

#[test]
fn references_go_from_objects_that_others_write_meanwhile() {
    Bench::run(|mut bench| async move {
        bench.add(OWNER, &OWNER.deleting("orphan", &[]));
        bench.add(CHILD, &CHILD.object(&[reference(OWNER, true)]));
        bench.api.write_before_writes([json!({"resourceVersion": "50"})]);
        bench.work().await;
        let path = CHILD.path();
        let sent = [(42, 409), (50, 200)].map(|(revision, code)| {
            format!("PATCH {path} {{ownerReferences:[],resourceVersion:{revision},uid:child}} {code}")
        });
        assert_eq!(bench.api.writes()[..2], sent);
        assert!(bench.left.is_empty());
    });
}

/// Upstream has a goroutine for each dependent, none of which waits for another or fails it.
#[test]
fn orphan_dependents_are_set_free_at_once_whichever_fails() {
    Bench::run(|mut bench| async move {
        bench.add(OWNER, &OWNER.deleting("orphan", &[]));
        bench.add(OTHER, &OTHER.object(&[]));
        let dependents = ["a", "b", "c"].map(pod);
        for dependent in dependents {
            bench.add(dependent, &dependent.object(&[reference(OWNER, false)]));
        }
        let others = json!({"resourceVersion": "50", "ownerReferences": [reference(OWNER, false), reference(OTHER, false)]});
        bench.api.write_before_writes([others]);
        bench.work().await;
        assert_eq!(
            bench.api.methods()[..6],
            ["GET", "GET", "GET", "PATCH", "PATCH", "PATCH"]
        );
        let freed = |writes: &[String]| writes.iter().filter(|own| own.ends_with(" 200")).count();
        assert_eq!(
            (freed(&bench.api.writes()), bench.left.len()),
            (2, 1),
            "{:?}",
            bench.api.writes()
        );
        bench.work().await;
        // The third one and the owner's finalizer.
        assert_eq!((freed(&bench.api.writes()), bench.left.len()), (4, 0));
    });
}

/// Upstream reports the first of an object's references; roles and the like have names that no event may have.
#[test]
fn references_into_another_namespace_are_reported_once_for_objects_of_any_name() {
    const ROLE: Id = Id {
        api_version: "rbac.authorization.k8s.io/v1",
        kind: "Role",
        name: "system:child",
        ..CHILD
    };
    Bench::run(|mut bench| async move {
        let second = Id {
            name: "second",
            uid: "second",
            ..ELSEWHERE
        };
        for owner in [ELSEWHERE, second] {
            bench.add(owner, &owner.object(&[]));
        }
        let role = ROLE.object(&[reference(ELSEWHERE, true), reference(second, true)]);
        bench.add(ROLE, &role);
        // Written again, it is not reported again.
        bench.see(ROLE, Some(&role), Some(&role));
        bench.work().await;
        let reported = "n Warning OwnerRefInvalidNamespace ownerRef [v1/Pod, namespace: n, name: elsewhere, uid: elsewhere] \
            does not exist in namespace \"n\" involvedObject{kind=Role,apiVersion=rbac.authorization.k8s.io/v1}";
        assert_eq!(bench.api.events(), [reported]);
        assert_eq!(bench.api.writes(), [deleted(ROLE, "Background")]);
    });
}

/// A client that deletes an object with its own options is not overruled.
#[test]
fn deletes_stop_where_somebody_deletes_the_object_first() {
    Bench::run(|mut bench| async move {
        bench.add(CHILD, &CHILD.object(&[reference(OWNER, true)]));
        bench
            .api
            .write_before_writes([json!({"resourceVersion": "50", "finalizers": ["orphan"],
            "deletionTimestamp": "2026-01-01T00:00:00Z"})]);
        bench.work().await;
        assert_eq!(bench.api.writes().len(), 1);
        assert!(bench.left.is_empty());
    });
}

/// The name of an owner is text of a tenant, and becomes no path.
#[test]
fn owners_with_names_that_no_object_has_are_not_asked_for() {
    for name in ["victim/proxy/admin", "..", "a%2Fb"] {
        Bench::run(move |mut bench| async move {
            let mut owner = OWNER.reference();
            owner["name"] = json!(name);
            bench.add(CHILD, &CHILD.object(&[owner]));
            bench.work().await;
            assert_eq!(bench.api.reads(), [CHILD.path()], "{name}");
            assert_eq!(bench.api.writes(), [""; 0]);
            assert_eq!(bench.left.len(), 1);
        });
    }
}

/// Owners of kinds that are not served are invented in a moment: their dependents wait longer and longer.
#[test]
fn objects_wait_longer_each_time_for_what_may_never_come() {
    Bench::run(|mut bench| async move {
        let mut owner = OWNER.reference();
        owner["kind"] = json!("Invented");
        bench.add(CHILD, &CHILD.object(&[owner]));
        let mut waits = Vec::new();
        for _ in 0..40 {
            bench.work().await;
            waits.extend(bench.left.values().map(|wait| wait.expect("no failure")));
        }
        let longest = Duration::from_secs(1000);
        assert_eq!(waits[0], Duration::from_millis(200));
        assert_eq!(waits[39], longest);
        let doubles = |two: &[Duration]| two[1] == (two[0] * 2).min(longest);
        assert!(waits.windows(2).all(doubles), "{waits:?}");
    });
}

/// A restore of what the server stores brings back what was seen to go, the dependent's store first.
#[test]
fn owners_that_come_back_by_a_restore_are_asked_for_again() {
    Bench::run(|mut bench| async move {
        let child = CHILD.object(&[reference(OWNER, true)]);
        bench.add(CHILD, &child);
        bench.work().await;
        assert_eq!(bench.api.writes(), [deleted(CHILD, "Background")]);
        bench.see(CHILD, Some(&child), None);
        bench.create(OWNER, OWNER.object(&[]));
        bench.restore().await;
        bench.add(CHILD, &child);
        bench.work().await;
        assert_eq!(bench.api.writes().len(), 1, "the owner is there again");
    });
}

/// The same where the restore comes between two turns of one look.
#[test]
fn looks_that_go_on_after_a_restore_begin_anew() {
    Bench::run(|mut bench| async move {
        let names: Vec<String> = (0..40).map(|number| format!("owner-{number}")).collect();
        let owners: Vec<Value> = names
            .iter()
            .map(|name| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name}))
            .collect();
        bench.add(CHILD, &CHILD.object(&owners));
        bench.work().await;
        assert_eq!((bench.left.len(), bench.api.writes().len()), (1, 0));
        let back = Id {
            name: "owner-0",
            uid: "owner-0",
            ..OWNER
        };
        bench.create(back, back.object(&[]));
        bench.restore().await;
        for _ in 0..4 {
            bench.work().await;
        }
        let kept = bench.api.writes();
        assert!(
            kept.iter().all(|write| write.starts_with("PATCH")) && kept.len() == 1,
            "{kept:?}"
        );
    });
}
