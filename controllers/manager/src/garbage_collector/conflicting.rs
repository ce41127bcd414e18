//! References that do not agree with the objects of their uid: the cases of upstream's `TestConflictingData`, with the
//! deletions and events that it expects, and the objects that are reconciled again and again in the end.

use super::bench::{Bench, Id};
use super::keys::Key;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const POD1: Id = id("v1", "Pod", "ns1", "podname1", "poduid1");
const POD2: Id = id("v1", "Pod", "ns1", "podname2", "poduid2");
const POD2_NS2: Id = id("v1", "Pod", "ns2", "podname2", "poduid2");
const NODE: Id = id("v1", "Node", "", "nodename", "nodeuid1");
const OLD_ROLE: Id = id(
    "rbac.authorization.k8s.io/v1beta1",
    "Role",
    "ns1",
    "role1",
    "roleuid1",
);
const ROLE: Id = id("rbac.authorization.k8s.io/v1", "Role", "ns1", "role1", "roleuid1");
const DEPLOYMENT: Id = id("apps/v1", "Deployment", "ns1", "deployment1", "deploymentuid1");
/// A version not served any more, still referenced.
const OLD_DEPLOYMENT: Id = id(
    "extensions/v1beta1",
    "Deployment",
    "ns1",
    "deployment1",
    "deploymentuid1",
);
/// No such object: the uid is the Deployment's.
const SECRET: Id = id("v1", "Secret", "ns1", "secretname", "deploymentuid1");
const SECRET_OF_POD2: Id = id("v1", "Secret", "ns1", "podname2", "poduid2");
const NAMESAKE_OF_POD2: Id = id("v1", "Pod", "ns1", "podname3", "poduid2");
const BAD_CHILD: Id = id("v1", "Pod", "ns1", "badpod", "badpoduid");
const GOOD_CHILD: Id = id("v1", "Pod", "ns1", "goodpod", "goodpoduid");

const fn id(
    api_version: &'static str,
    kind: &'static str,
    namespace: &'static str,
    name: &'static str,
    uid: &'static str,
) -> Id {
    Id {
        api_version,
        kind,
        namespace,
        name,
        uid,
    }
}

/// A step of a case.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The API has the object, owned by another.
    Have(Id, Option<Id>),
    /// The API has it no more.
    Lose(Id),
    /// The object's store has it, owned by another.
    See(Id, Option<Id>),
    /// The object's store has it no more.
    Gone(Id, Option<Id>),
    Work,
}

/// Facts in the end.
#[derive(Debug, Default)]
struct Expected {
    deleted: &'static [Id],
    events: &'static [&'static str],
    /// Uids of objects that are reconciled again.
    retried: &'static [&'static str],
}

const FOREIGN_POD: &str = "ns1 Warning OwnerRefInvalidNamespace ownerRef [v1/Pod, namespace: ns1, name: podname2, uid: poduid2] does not exist in namespace \"ns1\" involvedObject{kind=Pod,apiVersion=v1}";
const FOREIGN_NODE: &str = "default Warning OwnerRefInvalidNamespace ownerRef [v1/Pod, namespace: , name: podname1, uid: poduid1] does not exist in namespace \"\" involvedObject{kind=Node,apiVersion=v1}";

fn owned(id: Id, owner: Option<Id>) -> Value {
    let owners: Vec<Value> = owner.iter().map(Id::reference).collect();
    id.object(&owners)
}

fn check(name: &'static str, steps: &'static [Step], expected: Expected) {
    Bench::run(move |mut bench| async move {
        for step in steps {
            match *step {
                Step::Have(id, owner) => bench.create(id, owned(id, owner)),
                Step::Lose(id) => bench.api.remove(&id.path()),
                Step::See(id, owner) => bench.see(id, None, Some(&owned(id, owner))),
                Step::Gone(id, owner) => bench.see(id, Some(&owned(id, owner)), None),
                Step::Work => bench.work().await,
            }
        }
        let deleted = |own: &Id| {
            let (path, uid) = (own.path(), own.uid);
            format!("DELETE {path} Background {{resourceVersion:42,uid:{uid}}} 200")
        };
        let deleted: Vec<_> = expected.deleted.iter().map(deleted).collect();
        assert_eq!(bench.api.writes(), deleted, "{name}");
        assert_eq!(bench.api.events(), expected.events, "{name}");
        assert_eq!(retried(&bench.left), expected.retried, "{name}");
    });
}

fn retried<T>(left: &BTreeMap<Key, T>) -> Vec<&str> {
    let uids = left.keys().map(|key| match key {
        Key::Delete(object) | Key::Orphan(object) => &*object.uid.0,
        Key::Discovery | Key::Stores => "the stores",
    });
    uids.collect()
}

#[test]
fn owners_that_are_cluster_scoped_are_owners_everywhere() {
    use Step::{Have, See, Work};
    let steps = &[
        Have(NODE, None),
        Have(POD1, Some(NODE)),
        See(POD1, Some(NODE)),
        Work,
        See(NODE, None),
        Work,
    ];
    check(
        "good child in ns1 -> cluster-scoped owner",
        steps,
        Expected::default(),
    );
    let expected = Expected {
        retried: &["poduid1"],
        ..Expected::default()
    };
    check("before the owner is seen", &steps[..4], expected);
}

#[test]
fn owners_of_another_namespace_are_reported_and_own_nothing() {
    use Step::{Gone, Have, See, Work};
    let child_first = &[
        Have(POD1, Some(POD2)),
        Have(POD2_NS2, None),
        See(POD1, Some(POD2_NS2)),
        See(POD2_NS2, None),
        Work,
        Gone(POD1, Some(POD2_NS2)),
        Work,
    ];
    let owner_first = &[
        Have(POD1, Some(POD2)),
        Have(POD2_NS2, None),
        See(POD2_NS2, None),
        Work,
        See(POD1, Some(POD2)),
        Work,
        Gone(POD1, Some(POD2)),
        Work,
    ];
    let expected = || Expected {
        deleted: &[POD1],
        events: &[FOREIGN_POD],
        ..Expected::default()
    };
    check(
        "bad child in ns1 -> owner in ns2 (child first)",
        child_first,
        expected(),
    );
    check(
        "bad child in ns1 -> owner in ns2 (owner first)",
        owner_first,
        expected(),
    );
}

#[test]
fn cluster_scoped_objects_with_namespaced_owners_stay() {
    use Step::{Have, See, Work};
    let child_first = &[
        Have(NODE, Some(POD1)),
        Have(POD1, None),
        See(NODE, Some(POD1)),
        Work,
        See(POD1, None),
        Work,
    ];
    let owner_first = &[
        Have(NODE, Some(POD1)),
        Have(POD1, None),
        See(POD1, None),
        Work,
        See(NODE, Some(POD1)),
        Work,
    ];
    let expected = || Expected {
        events: &[FOREIGN_NODE],
        ..Expected::default()
    };
    check(
        "bad cluster-scoped child -> owner in ns1 (child first)",
        child_first,
        expected(),
    );
    check(
        "bad cluster-scoped child -> owner in ns1 (owner first)",
        owner_first,
        expected(),
    );
}

/// Upstream's issue 98040.
#[test]
fn cluster_scoped_objects_with_namespaced_owners_stay_beside_good_dependents() {
    use Step::{Gone, Have, See, Work};
    let missing = || Expected {
        deleted: &[POD2],
        ..Expected::default()
    };
    check(
        "cluster-scoped bad child, namespaced good child, missing parent",
        &[
            Have(POD2, Some(POD1)),
            Have(NODE, Some(POD1)),
            See(NODE, Some(POD1)),
            See(POD2, Some(POD1)),
            Work,
            Gone(POD2, Some(POD1)),
            Work,
        ],
        missing(),
    );
    check(
        "cluster-scoped bad child, namespaced good child, late observed parent",
        &[
            Have(POD1, None),
            Have(POD2, Some(POD1)),
            Have(NODE, Some(POD1)),
            See(NODE, Some(POD1)),
            See(POD2, Some(POD1)),
            Work,
            See(POD1, None),
            Work,
        ],
        Expected {
            events: &[FOREIGN_NODE],
            ..Expected::default()
        },
    );
    check(
        "namespaced good child, cluster-scoped bad child, missing parent",
        &[
            Have(POD2, Some(POD1)),
            Have(NODE, Some(POD1)),
            See(POD2, Some(POD1)),
            See(NODE, Some(POD1)),
            Work,
            Gone(POD2, Some(POD1)),
            Work,
        ],
        missing(),
    );
}

#[test]
fn owners_of_another_served_version_own() {
    use Step::{Gone, Have, Lose, See, Work};
    let steps = &[
        Have(ROLE, None),
        Have(OLD_ROLE, None),
        Have(POD1, Some(OLD_ROLE)),
        See(POD1, Some(OLD_ROLE)),
        Work,
        See(ROLE, None),
        Work,
        Lose(ROLE),
        Lose(OLD_ROLE),
        Gone(ROLE, None),
        Work,
    ];
    let name = "good child -> existing owner with non-preferred accessible API version";
    check(name, &steps[..7], Expected::default());
    let expected = Expected {
        deleted: &[POD1],
        ..Expected::default()
    };
    check(name, steps, expected);
}

/// Owners of a version that is not served may be there: their dependents stay, and are reconciled again and again.
#[test]
fn owners_of_a_version_that_is_not_served_keep_their_dependents() {
    use Step::{Gone, Have, Lose, See, Work};
    let kept = || Expected {
        retried: &["poduid1"],
        ..Expected::default()
    };
    check(
        "child -> existing owner with inaccessible API version (child first)",
        &[
            Have(DEPLOYMENT, None),
            Have(POD1, Some(OLD_DEPLOYMENT)),
            See(POD1, Some(OLD_DEPLOYMENT)),
            Work,
            See(DEPLOYMENT, None),
            Work,
            Lose(DEPLOYMENT),
            Gone(DEPLOYMENT, None),
            Work,
        ],
        kept(),
    );
    check(
        "child -> existing owner with inaccessible API version (owner first)",
        &[
            Have(DEPLOYMENT, None),
            Have(POD1, Some(OLD_DEPLOYMENT)),
            See(DEPLOYMENT, None),
            See(POD1, Some(OLD_DEPLOYMENT)),
            Work,
            Lose(DEPLOYMENT),
            Gone(DEPLOYMENT, None),
            Work,
        ],
        kept(),
    );
    let deleted = || Expected {
        deleted: &[POD2],
        retried: &["poduid1"],
        ..Expected::default()
    };
    check(
        "child -> non-existent owner with inaccessible API version (inaccessible parent apiVersion first)",
        &[
            Have(POD1, Some(OLD_DEPLOYMENT)),
            Have(POD2, Some(DEPLOYMENT)),
            See(POD1, Some(OLD_DEPLOYMENT)),
            See(POD2, Some(DEPLOYMENT)),
            Work,
            Gone(POD2, Some(DEPLOYMENT)),
            Work,
        ],
        deleted(),
    );
    check(
        "child -> non-existent owner with inaccessible API version (accessible parent apiVersion first)",
        &[
            Have(POD1, Some(OLD_DEPLOYMENT)),
            Have(POD2, Some(DEPLOYMENT)),
            See(POD2, Some(DEPLOYMENT)),
            See(POD1, Some(OLD_DEPLOYMENT)),
            Work,
            Gone(POD2, Some(DEPLOYMENT)),
            Work,
        ],
        deleted(),
    );
}

#[test]
fn owners_of_another_kind_own_nothing_and_keep_their_own() {
    use Step::{Gone, Have, See, Work};
    let expected = || Expected {
        deleted: &[BAD_CHILD],
        ..Expected::default()
    };
    check(
        "bad child -> existing owner with incorrect API version (bad child, good child, bad parent delete, good parent)",
        &[
            Have(DEPLOYMENT, None),
            Have(BAD_CHILD, Some(SECRET)),
            Have(GOOD_CHILD, Some(DEPLOYMENT)),
            See(BAD_CHILD, Some(SECRET)),
            See(GOOD_CHILD, Some(DEPLOYMENT)),
            Work,
            See(DEPLOYMENT, None),
            Gone(BAD_CHILD, Some(SECRET)),
            Work,
        ],
        expected(),
    );
    check(
        "bad child -> existing owner with incorrect API version (bad child, good child, good parent, bad parent delete)",
        &[
            Have(DEPLOYMENT, None),
            Have(BAD_CHILD, Some(SECRET)),
            Have(GOOD_CHILD, Some(DEPLOYMENT)),
            See(BAD_CHILD, Some(SECRET)),
            See(GOOD_CHILD, Some(DEPLOYMENT)),
            See(DEPLOYMENT, None),
            Work,
            Gone(BAD_CHILD, Some(SECRET)),
            Work,
        ],
        expected(),
    );
    check(
        "bad child -> existing owner with incorrect API version (good child, bad child, good parent)",
        &[
            Have(DEPLOYMENT, None),
            Have(BAD_CHILD, Some(SECRET)),
            Have(GOOD_CHILD, Some(DEPLOYMENT)),
            See(GOOD_CHILD, Some(DEPLOYMENT)),
            See(BAD_CHILD, Some(SECRET)),
            Work,
            See(DEPLOYMENT, None),
            Gone(BAD_CHILD, Some(SECRET)),
            Work,
        ],
        expected(),
    );
    check(
        "good parent, then bad child",
        &[
            Have(DEPLOYMENT, None),
            Have(BAD_CHILD, Some(SECRET)),
            See(DEPLOYMENT, None),
            See(BAD_CHILD, Some(SECRET)),
            Work,
        ],
        expected(),
    );
    let of_a_secret = &[
        Have(POD2, None),
        See(POD2, None),
        Have(BAD_CHILD, Some(SECRET_OF_POD2)),
        See(BAD_CHILD, Some(SECRET_OF_POD2)),
        Work,
    ];
    check("kind alone differs", of_a_secret, expected());
    let of_a_name = &[
        Have(POD2, None),
        See(POD2, None),
        Have(BAD_CHILD, Some(NAMESAKE_OF_POD2)),
        See(BAD_CHILD, Some(NAMESAKE_OF_POD2)),
        Work,
    ];
    check("name alone differs", of_a_name, expected());
}

/// Upstream's issue 114603: a client that writes an object fast does not keep it.
#[test]
fn deletes_hold_for_the_owners_that_were_decided_on() {
    Bench::run(|mut bench| async move {
        let (parent, child) = (owned(POD1, None), owned(POD2, Some(POD1)));
        bench.see(POD1, None, Some(&parent));
        bench.add(POD2, &child);
        bench.see(POD1, Some(&parent), None);
        bench.api.write_before_writes([
            json!({"ownerReferences": [ROLE.reference()], "resourceVersion": "43"}),
            json!({"resourceVersion": "44"}),
        ]);
        bench.work().await;
        assert_eq!(retried(&bench.left), ["poduid2"]);
        bench.work().await;
        let path = POD2.path();
        let delete = |conditions: &str| format!("DELETE {path} Background {{{conditions}uid:poduid2}} ");
        let expected = [
            delete("resourceVersion:42,") + "409",
            delete("resourceVersion:43,") + "409",
            delete("") + "200",
        ];
        assert_eq!(bench.api.writes(), expected);
        assert!(bench.left.is_empty());
        let role = bench
            .api
            .reads()
            .iter()
            .filter(|path| **path == ROLE.path())
            .count();
        assert_eq!(role, 1, "the first owner was seen to go, the other was asked for");
        assert!(!bench.api.reads().contains(&POD1.path()));
    });
}
