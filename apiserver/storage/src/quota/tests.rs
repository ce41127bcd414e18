use super::ledger::Held;
use super::*;
use crate::{Entry, Expect, Key, ObjectHeader, ObjectKey, Op, Record, Revision, StorageError, Write};
use bytes::Bytes;
use machinery_fuzz::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// An object of so many bytes of text.
#[derive(Debug, Clone, Copy)]
struct Object {
    namespace: &'static str,
    name: &'static str,
    bytes: usize,
    is_deleting: bool,
    finalizers: usize,
    /// A delete's policy has added its finalizer.
    is_orphaning: bool,
    ttl: Option<Duration>,
}

fn object(namespace: &'static str, name: &'static str, bytes: usize) -> Object {
    Object {
        namespace,
        name,
        bytes,
        is_deleting: false,
        finalizers: 0,
        is_orphaning: false,
        ttl: None,
    }
}

impl Object {
    fn key(&self) -> Key {
        Key::parse(&format!("/registry/things/{}/{}", self.namespace, self.name).replace("//", "/")).unwrap()
    }

    fn record(&self) -> Record {
        let finalizers = (0..self.finalizers).map(|at| format!("f{at}").into());
        let header = ObjectHeader {
            key: ObjectKey::new(self.namespace, self.name),
            deletion_timestamp: self.is_deleting.then(|| "2026-11-23T00:00:00Z".into()),
            finalizers: finalizers
                .chain(self.is_orphaning.then(|| "orphan".into()))
                .collect(),
            ..ObjectHeader::default()
        };
        Record {
            parts: [Bytes::new(), Bytes::new(), Bytes::from(vec![b'x'; self.bytes])],
            fingerprint: 0,
            header: Arc::new(header),
        }
    }

    fn put(&self) -> Write {
        let op = Op::Put {
            record: self.record(),
            ttl: self.ttl,
        };
        Write {
            key: self.key(),
            expect: Expect::Any,
            op,
        }
    }

    fn entry(&self) -> Arc<Entry> {
        Arc::new(Entry {
            key: self.key(),
            revision: Revision(1),
            created: Revision(1),
            expires: self.ttl.map(|_| 1),
            record: self.record(),
            seal: Default::default(),
        })
    }
}

const SHARE: u64 = 100_000;

/// A ledger that holds these.
fn ledger(held: &[Object]) -> Ledger {
    let quota = Quota {
        store_bytes: 800_000,
        namespace_bytes: SHARE,
        system_namespaces: vec!["kube-system".into()],
    };
    let entries: Vec<Arc<Entry>> = held.iter().map(Object::entry).collect();
    Ledger::of(quota, entries.iter())
}

/// Writes `new` in the place of `old` into a store that holds `held` and `old`.
#[track_caller]
fn check(held: &[Object], old: Option<Object>, new: Object, claim: Claim, expected: &str) {
    let all: Vec<Object> = held.iter().copied().chain(old).collect();
    let mut ledger = ledger(&all);
    let before = [old.map(|old| old.entry())];
    let found = match ledger.admit(&[new.put()], &before, claim) {
        Ok(()) => "passes",
        Err(StorageError::NamespaceQuotaExceeded { .. }) => "share",
        Err(StorageError::StoreQuotaExceeded) => "store",
        Err(other) => panic!("{other}"),
    };
    assert_eq!(found, expected);
    let after = if found == "passes" { Some(new) } else { old };
    let all: Vec<Arc<Entry>> = held.iter().copied().chain(after).map(|own| own.entry()).collect();
    let counted = Ledger::of(Quota::default(), all.iter());
    assert_eq!(ledger.differences(&counted), Vec::<String>::new());
}

#[test]
fn quota_bounds_growth_of_a_namespace_and_nothing_else() {
    let full = object("a", "full", 99_000);
    let held = [full];
    let own = |bytes| object("a", "x", bytes);
    check(&held, None, own(2_000), Claim::User, "share");
    check(&held, None, own(2_000), Claim::System, "share");
    check(&held, None, object("b", "x", 2_000), Claim::User, "passes");
    check(&held, None, object("", "x", 90_000), Claim::User, "passes");
    check(
        &held,
        None,
        object("kube-system", "x", 200_000),
        Claim::User,
        "passes",
    );
    // Changes that do not grow their object, and those of the system within its spare room.
    check(&held, Some(own(5_000)), own(5_000), Claim::User, "passes");
    check(&held, Some(own(5_000)), own(4_000), Claim::User, "passes");
    check(&held, Some(own(5_000)), own(5_001), Claim::User, "share");
    check(&held, Some(own(5_000)), own(9_000), Claim::System, "passes");
    check(&held, Some(own(5_000)), own(90_000), Claim::System, "share");
}

#[test]
fn quota_lets_a_full_namespace_delete() {
    let held = [object("a", "full", 99_000)];
    let own = |bytes, is_deleting, finalizers| Object {
        is_deleting,
        finalizers,
        ..object("a", "x", bytes)
    };
    let live = Some(own(5_000, false, 2));
    check(&held, live, own(5_100, true, 3), Claim::User, "passes");
    let deleted = Some(own(5_000, true, 2));
    check(&held, deleted, own(5_100, true, 2), Claim::User, "share");
    // A write that takes a finalizer has no more room than another change.
    check(&held, deleted, own(5_000, true, 1), Claim::User, "passes");
    check(&held, deleted, own(5_300, true, 1), Claim::User, "share");
    check(&held, deleted, own(20_000, true, 1), Claim::User, "share");
    check(&held, deleted, own(20_000, true, 1), Claim::System, "passes");
    // Another delete has, whose policy adds one.
    let orphaning = |bytes| Object {
        is_orphaning: true,
        ..own(bytes, true, 2)
    };
    check(&held, deleted, orphaning(5_100), Claim::User, "passes");
    let orphaned = Some(orphaning(5_100));
    check(&held, orphaned, orphaning(5_200), Claim::User, "share");
}

/// A group that deletes `gone` and puts `put`, in a store that holds `held` and `gone`, and where there is one `old`.
#[track_caller]
fn check_along(held: &[Object], gone: Object, old: Option<Object>, put: Object, expected: &str) {
    let all: Vec<Object> = held.iter().copied().chain([gone]).chain(old).collect();
    let mut ledger = ledger(&all);
    let delete = Write {
        key: gone.key(),
        expect: Expect::Present,
        op: Op::Delete,
    };
    let (group, before) = (
        [delete, put.put()],
        [Some(gone.entry()), old.map(|old| old.entry())],
    );
    let said = |found: Result<(), StorageError>| match found {
        Ok(()) => "passes",
        Err(StorageError::NamespaceQuotaExceeded { .. }) => "share",
        Err(StorageError::StoreQuotaExceeded) => "store",
        Err(other) => panic!("{other}"),
    };
    let reserved = ledger.reserve(&group, &before, Claim::User);
    assert_eq!(said(reserved.map(|reserved| ledger.release(&reserved))), expected);
    let found = said(ledger.admit(&group, &before, Claim::User));
    assert_eq!(found, expected);
    let is_written = found == "passes";
    let after = if is_written {
        vec![put]
    } else {
        old.into_iter().chain([gone]).collect()
    };
    let all: Vec<Arc<Entry>> = held.iter().copied().chain(after).map(|own| own.entry()).collect();
    let counted = Ledger::of(Quota::default(), all.iter());
    assert_eq!(ledger.differences(&counted), Vec::<String>::new());
}

#[test]
fn quota_lets_what_has_no_namespace_go_along_with_a_deletion() {
    let held = [object("a", "full", 98_000)];
    let bitmap = |bytes| object("", "bitmap", bytes);
    check_along(&held, object("a", "x", 100), None, bitmap(750_000), "passes");
    // A service that gives its address back is a tenant's, and so is what it says beside.
    let (address, service) = (object("", "address", 100), object("a", "x", 100));
    check_along(&held, address, Some(service), object("a", "x", 50_000), "share");
    check_along(&held, address, Some(service), object("a", "x", 100), "passes");
    let held = ["b", "c", "d", "e", "f", "g", "h"].map(|own| object(own, "full", 98_000));
    check_along(&held, address, Some(service), object("a", "x", 50_000), "store");
}

#[test]
fn quota_counts_what_expires_for_itself() {
    let event = |name, bytes| Object {
        ttl: Some(Duration::from_secs(1)),
        ..object("a", name, bytes)
    };
    let held = [object("a", "full", 99_000)];
    check(&held, None, event("e", 50_000), Claim::User, "passes");
    let held = [event("full", 99_000)];
    check(&held, None, event("e", 2_000), Claim::User, "share");
    check(&held, None, object("a", "x", 2_000), Claim::User, "passes");
}

#[test]
fn quota_of_the_store_keeps_a_reserve() {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    // Within the share each, 700,000 is what users may have together.
    let held: Vec<Object> = names.iter().map(|own| object(own, "full", 98_000)).collect();
    let own = |bytes| object("h", "x", bytes);
    check(&held, None, own(20_000), Claim::User, "store");
    check(&held, None, own(20_000), Claim::System, "store");
    check(&held, Some(own(1_000)), own(20_000), Claim::System, "passes");
    check(&held, Some(own(1_000)), own(70_000), Claim::System, "store");
    check(&held, Some(own(1_000)), own(70_000), Claim::User, "store");
    check(&held, None, object("", "x", 70_000), Claim::System, "passes");
    check(&held, None, object("", "x", 70_000), Claim::User, "store");
    check(
        &held,
        None,
        object("kube-system", "x", 70_000),
        Claim::User,
        "passes",
    );
    check(&held, None, object("", "x", 120_000), Claim::System, "store");
}

#[test]
fn quota_of_zero_sets_no_bound() {
    let mut ledger = Ledger::of(Quota::default(), std::iter::empty());
    let large = object("a", "x", 3 << 20);
    for _ in 0..4 {
        ledger.admit(&[large.put()], &[None], Claim::User).unwrap();
    }
    assert_eq!(ledger.usage().bytes, 4 * large.entry().footprint() as u64);
}

#[test]
fn quota_refusal_says_what_upstreams_would() {
    let mut ledger = ledger(&[object("a", "full", 99_000)]);
    let new = object("a", "x", 2_000);
    let refused = ledger.admit(&[new.put()], &[None], Claim::User).unwrap_err();
    let (requested, used) = (new.entry().footprint(), ledger.usage().bytes);
    assert_eq!(
        refused.to_string(),
        format!(
            "exceeded quota: storage, requested: bytes={requested}, used: bytes={used}, limited: bytes={SHARE}; \
             delete objects of namespace \"a\" to make room"
        )
    );
    let usage = ledger.usage();
    assert_eq!((usage.refused_by_namespace, usage.refused_by_store), (1, 0));
    assert_eq!(usage.largest[0].lasting_bytes, used);
}

#[test]
fn quota_usage_names_the_largest_namespaces() {
    let names: Vec<String> = (0..40).map(|at| format!("n{at:02}")).collect();
    let names: Vec<&'static str> = names.into_iter().map(|name| &*name.leak()).collect();
    // Of two namespaces each that take as much, the one whose name is first.
    let sizes = names
        .iter()
        .enumerate()
        .map(|(at, name)| (*name, 1_000 * (at % 20)));
    let held: Vec<Object> = sizes.map(|(name, bytes)| object(name, "x", bytes)).collect();
    let largest = ledger(&held).usage().largest;
    let found: Vec<&str> = largest.iter().map(|own| own.namespace.as_str()).collect();
    let expected = [
        "n19", "n39", "n18", "n38", "n17", "n37", "n16", "n36", "n15", "n35",
    ];
    assert_eq!(found, expected);
    assert_eq!(ledger(&held[..3]).usage().largest.len(), 3);
}

#[test]
fn quota_store_is_full_until_there_is_room() {
    let mut ledger = ledger(&[]);
    let own = object("", "x", 699_000);
    ledger.admit(&[own.put()], &[None], Claim::System).unwrap();
    assert!(!ledger.is_full());
    let refused = ledger.admit(&[object("a", "x", 2_000).put()], &[None], Claim::User);
    assert!(refused.is_err() && ledger.is_full());
    ledger.change(Some(Held::of(&own.entry())), None);
    assert!(!ledger.is_full());
}

/// Random groups, some refused, some taken back: what is counted is what is there, and no namespace has more than changes
/// by the system may make of it.
#[test]
fn quota_account_of_any_writes_is_that_of_what_is_there() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut ledger = ledger(&[]);
        let mut there: BTreeMap<Key, Arc<Entry>> = BTreeMap::new();
        let mut refused = 0;
        for _ in 0..3_000 {
            let mut group = Vec::new();
            for _ in 0..=random.below(3) {
                let write = any_write(&mut random, &there);
                if group
                    .iter()
                    .all(|(other, _): &(Write, _)| other.key != write.0.key)
                {
                    group.push(write);
                }
            }
            let (writes, entries): (Vec<Write>, Vec<Option<Arc<Entry>>>) = group.into_iter().unzip();
            let before: Vec<_> = writes
                .iter()
                .map(|write| there.get(&write.key).cloned())
                .collect();
            let claim = [Claim::User, Claim::System][random.below(2)];
            if ledger.admit(&writes, &before, claim).is_err() {
                refused += 1;
            } else if random.below(4) == 0 {
                ledger.take_back(&writes, &before);
            } else {
                for (write, entry) in writes.iter().zip(entries) {
                    match (&write.op, entry) {
                        (Op::Check, _) => {}
                        (_, Some(entry)) => drop(there.insert(write.key.clone(), entry)),
                        (_, None) => drop(there.remove(&write.key)),
                    }
                }
            }
            let counted = Ledger::of(Quota::default(), there.values());
            assert_eq!(ledger.differences(&counted), Vec::<String>::new(), "seed {seed}");
            let usage = ledger.usage();
            let own = usage.largest.iter().find(|own| own.namespace == "a");
            let most = own.map_or(0, |own| own.lasting_bytes.max(own.expiring_bytes));
            assert!(most <= SHARE / 2 * 3, "seed {seed}: {usage:?}");
        }
        assert!(refused > 0, "seed {seed} meets no bound");
    }
}

/// A write, and what it makes.
fn any_write(random: &mut Random, there: &BTreeMap<Key, Arc<Entry>>) -> (Write, Option<Arc<Entry>>) {
    let namespaces = ["a", "b", "", "kube-system"];
    let names = ["1", "2", "3", "4", "5", "6"];
    let own = Object {
        ttl: (random.below(5) == 0).then_some(Duration::from_secs(1)),
        ..object(
            namespaces[random.below(4)],
            names[random.below(6)],
            random.below(60_000),
        )
    };
    let (key, present) = (own.key(), there.contains_key(&own.key()));
    match random.below(8) {
        0 if present => (
            Write {
                key,
                expect: Expect::Any,
                op: Op::Delete,
            },
            None,
        ),
        1 => (
            Write {
                key,
                expect: Expect::Any,
                op: Op::Check,
            },
            None,
        ),
        _ => (own.put(), Some(own.entry())),
    }
}

/// A Namespace that sets this share.
fn namespace(name: &'static str, share: &str) -> Write {
    let mut write = object("", name, 10).put();
    write.key = Key::parse(&format!("/registry/namespaces/{name}")).unwrap();
    let Op::Put { record, .. } = &mut write.op else {
        unreachable!("it puts")
    };
    let mut header = ObjectHeader::clone(&record.header);
    header.labels = vec![(OWN_SHARE.into(), share.into())];
    record.header = Arc::new(header);
    write
}

fn entry_of(write: &Write) -> Arc<Entry> {
    let Op::Put { record, .. } = &write.op else {
        unreachable!("it puts")
    };
    Arc::new(Entry {
        key: write.key.clone(),
        revision: Revision(1),
        created: Revision(1),
        expires: None,
        record: record.clone(),
        seal: Default::default(),
    })
}

/// Reports whether so many bytes fit into a namespace.
fn fits(ledger: &mut Ledger, bytes: usize) -> bool {
    let write = [object("a", "x", bytes).put()];
    let fits = ledger.admit(&write, &[None], Claim::User).is_ok();
    if fits {
        ledger.take_back(&write, &[None]);
    }
    fits
}

#[test]
fn namespace_sets_its_own_share_and_loses_it_with_its_label_and_itself() {
    let mut ledger = ledger(&[]);
    assert!(fits(&mut ledger, 90_000) && !fits(&mut ledger, 150_000));
    let (wide, narrow, none) = (
        namespace("a", "200k"),
        namespace("a", "20k"),
        namespace("a", "much"),
    );
    let put = |ledger: &mut Ledger, write: &Write, before: Option<&Write>| {
        let group = [write.clone()];
        ledger
            .admit(&group, &[before.map(entry_of)], Claim::System)
            .unwrap();
    };
    put(&mut ledger, &wide, None);
    assert!(fits(&mut ledger, 150_000) && !fits(&mut ledger, 250_000));
    put(&mut ledger, &narrow, Some(&wide));
    assert!(fits(&mut ledger, 15_000) && !fits(&mut ledger, 25_000));
    // What was not written is as it was before.
    ledger.take_back(std::slice::from_ref(&narrow), &[Some(entry_of(&wide))]);
    assert!(fits(&mut ledger, 150_000));
    put(&mut ledger, &none, Some(&wide));
    assert!(!fits(&mut ledger, 150_000));
    put(&mut ledger, &wide, Some(&none));
    let gone = Write {
        op: Op::Delete,
        ..wide.clone()
    };
    put(&mut ledger, &gone, Some(&wide));
    assert!(!fits(&mut ledger, 150_000));
    // A start reads it.
    let quota = Quota {
        namespace_bytes: SHARE,
        ..Quota::default()
    };
    let mut read = Ledger::of(quota, [entry_of(&wide)].iter());
    assert!(fits(&mut read, 150_000) && !fits(&mut read, 250_000));
    assert_eq!(read.usage().own_shares, [("a".to_owned(), 200_000)]);
}

#[test]
fn quota_bounds_what_users_store_without_a_namespace() {
    let held = [object("", "full", 390_000)];
    check(&held, None, object("", "x", 20_000), Claim::User, "share");
    check(&held, None, object("", "x", 20_000), Claim::System, "passes");
    check(&held, None, object("b", "x", 20_000), Claim::User, "passes");
}
