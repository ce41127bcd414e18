//! API extensions that speak for objects of others.

use super::bench::{Bench, Id};
use machinery_meta::Uid;

const POD: Id = id("v1", "Pod", "n", "pod");
const OWNER: Id = id("apps/v1", "Deployment", "n", "owner");
/// An extension's, with the uid of the owner.
const FAKE: Id = Id {
    uid: OWNER.uid,
    ..id("boats.example/v1", "Boat", "", "fake")
};
const OTHER_FAKE: Id = Id {
    api_version: "ships.example/v1",
    ..FAKE
};

const fn id(
    api_version: &'static str,
    kind: &'static str,
    namespace: &'static str,
    name: &'static str,
) -> Id {
    Id {
        api_version,
        kind,
        namespace,
        name,
        uid: name,
    }
}

/// Group of the object that has the owner's uid in the graph.
fn group_of(bench: &Bench) -> Option<String> {
    let known = bench.collector.graph.get(&Uid(OWNER.uid.to_owned()));
    known.map(|own| own.resource.group.to_string())
}

#[test]
fn extension_orphans_no_dependents_of_others() {
    for owner_is_seen in [true, false] {
        Bench::run(move |mut bench| async move {
            bench.create(OWNER, OWNER.object(&[]));
            if owner_is_seen {
                bench.see(OWNER, None, Some(&OWNER.object(&[])));
            }
            bench.add(POD, &POD.object(&[OWNER.reference()]));
            bench.add(FAKE, &FAKE.deleting("orphan", &[]));
            bench.work().await;
            let writes = bench.api.writes();
            let touched = writes.iter().find(|own| own.contains("/pods/"));
            assert_eq!(touched, None, "{owner_is_seen}");
        });
    }
}

#[test]
fn extension_orphans_what_means_its_object() {
    Bench::run(|mut bench| async move {
        bench.add(FAKE, &FAKE.deleting("orphan", &[]));
        bench.add(POD, &POD.object(&[FAKE.reference()]));
        bench.work().await;
        let writes = bench.api.writes();
        let freed = writes
            .iter()
            .any(|own| own.contains("/pods/") && own.contains("ownerReferences:[]"));
        assert!(freed, "{writes:?}");
    });
}

#[test]
fn owner_is_gone_when_its_own_store_says_so() {
    for fake_is_first in [true, false] {
        Bench::run(move |mut bench| async move {
            let (owner, fake) = (OWNER.object(&[]), FAKE.object(&[]));
            if fake_is_first {
                bench.add(FAKE, &fake);
            }
            bench.add(OWNER, &owner);
            bench.add(POD, &POD.object(&[OWNER.reference()]));
            bench.see(FAKE, None, Some(&fake));
            assert_eq!(group_of(&bench), Some("apps".to_owned()), "{fake_is_first}");
            bench.see(FAKE, Some(&fake), None);
            assert_eq!(group_of(&bench), Some("apps".to_owned()), "{fake_is_first}");
            bench.work().await;
            assert_eq!(bench.api.writes(), [""; 0], "{fake_is_first}: the owner is there");
            bench.api.remove(&OWNER.path());
            bench.see(OWNER, Some(&owner), None);
            bench.work().await;
            let deleted = "DELETE /api/v1/namespaces/n/pods/pod Background {resourceVersion:42,uid:pod} 200";
            assert_eq!(bench.api.writes(), [deleted], "{fake_is_first}");
        });
    }
}

#[test]
fn extension_speaks_for_no_object_of_another_extension() {
    Bench::run(|bench| async move {
        let (fake, other) = (FAKE.object(&[]), OTHER_FAKE.object(&[]));
        bench.add(FAKE, &fake);
        bench.see(OTHER_FAKE, None, Some(&other));
        bench.see(OTHER_FAKE, Some(&other), None);
        assert_eq!(group_of(&bench).as_deref(), Some("boats.example"));
    });
}

#[test]
fn owner_that_nobody_sees_any_more_is_asked_for() {
    Bench::run(|mut bench| async move {
        let owner = FAKE.object(&[]);
        bench.add(FAKE, &owner);
        bench.add(POD, &POD.object(&[FAKE.reference()]));
        bench.forget(FAKE, &owner);
        bench.work().await;
        assert_eq!(bench.api.writes(), [""; 0], "it is there");
        assert!(bench.api.reads().contains(&FAKE.path()));
    });
}
