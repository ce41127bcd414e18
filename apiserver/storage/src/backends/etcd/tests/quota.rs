//! The quota on etcd: what the mirror holds and what is on its way there.

use super::mirror::simulated;
use super::process::Process;
use super::{on, through};
use crate::suite::record;
use crate::{
    Claim, EtcdOptions, EtcdStorage, Expect, Key, Op, Prefix, Quota, RangeOptions, ReadAt, Storage,
    StorageError, Write,
};
use apiserver_etcd_model::{Etcd, FaultProfile};
use futures::future::join_all;
use machinery_runtime::Runtime;
use std::sync::atomic::Ordering;

const SHARE: u64 = 40_000;

fn options() -> EtcdOptions {
    EtcdOptions {
        quota: Quota {
            namespace_bytes: SHARE,
            ..Quota::default()
        },
        ..EtcdOptions::default()
    }
}

/// A write of an object of the suite's namespace.
fn write(name: &str, value: Option<&str>) -> Write {
    let op = match value {
        Some(value) => Op::Put {
            record: record(name, "n1", value),
            ttl: None,
        },
        None => Op::Delete,
    };
    Write {
        key: Key::parse(&format!("/registry/things/ns/{name}")).unwrap(),
        expect: Expect::Any,
        op,
    }
}

/// Reads what is there, so that the mirror has it.
async fn settled(storage: &EtcdStorage) -> Vec<String> {
    let all = Prefix::parse("/registry/").unwrap();
    storage.range(&all, &RangeOptions::default()).await.unwrap();
    storage.mirror.miscounted()
}

/// Forty writes at once, of which the share has room for a few.
async fn writes_on_their_way(storage: &EtcdStorage) {
    assert_eq!(settled(storage).await, Vec::<String>::new());
    let text = "x".repeat(4_000);
    let names: Vec<String> = (0..40).map(|at| format!("o{at}")).collect();
    let all = names
        .iter()
        .map(|name| storage.commit_for(Claim::User, vec![write(name, Some(&text))]));
    let answers = join_all(all).await;
    let written: Vec<usize> = (0..40).filter(|at| answers[*at].is_ok()).collect();
    let refused = |answer: &Result<_, _>| matches!(answer, Err(StorageError::NamespaceQuotaExceeded { .. }));
    let refused = answers.iter().filter(|answer| refused(answer)).count();
    assert!((5..10).contains(&written.len()), "{written:?}");
    assert_eq!(refused, 40 - written.len());
    assert_eq!(settled(storage).await, Vec::<String>::new());
    let used = storage.usage().bytes;
    assert!(used <= SHARE, "{used}");
    // A deletion makes room.
    let commit = async |write| storage.commit_for(Claim::User, vec![write]).await.unwrap();
    commit(write(&names[written[0]], None)).await;
    assert_eq!(settled(storage).await, Vec::<String>::new());
    commit(write("again", Some(&text))).await;
}

#[test]
fn quota_on_etcd_counts_writes_on_their_way() {
    simulated(async |runtime| {
        let far = FaultProfile {
            delay: std::time::Duration::from_millis(5),
            ..FaultProfile::none()
        };
        let etcd = Etcd::start(&runtime, far);
        let storage = through(etcd.transport(), &runtime, options()).await;
        writes_on_their_way(&storage).await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quota_on_real_etcd_counts_writes_on_their_way() {
    let Some(process) = Process::start() else { return };
    let storage = on(&process, &Runtime::real(), options()).await;
    writes_on_their_way(&storage).await;
}

async fn write_anything(runtime: Runtime, storage: &EtcdStorage) {
    for _ in 0..60 {
        let draw = |below: u64| runtime.random_u64() % below;
        let (name, size) = (format!("o{}", draw(12)), usize::try_from(draw(9_000)).unwrap());
        let text = "x".repeat(size);
        let value = (draw(4) > 0).then_some(text.as_str());
        let commit = storage.commit_for(Claim::User, vec![write(&name, value)]);
        // Some callers go away.
        let patience = std::time::Duration::from_millis(1 + draw(30));
        drop(runtime.timeout(patience, commit).await);
    }
}

#[test]
fn quota_on_etcd_counts_what_the_mirror_holds() {
    simulated(async |runtime| {
        let etcd = Etcd::start(&runtime, FaultProfile::rough(&runtime));
        let one = through(etcd.transport(), &runtime, options()).await;
        let other = through(etcd.transport(), &runtime, options()).await;
        futures::join!(
            write_anything(runtime.clone(), &one),
            write_anything(runtime.clone(), &other)
        );
        // Writes whose callers went away end.
        runtime.sleep(std::time::Duration::from_secs(1)).await;
        for storage in [&one, &other] {
            assert_eq!(settled(storage).await, Vec::<String>::new());
        }
        assert_eq!(one.usage().bytes, other.usage().bytes);
        // It is taken for another etcd, read as a whole, and counted again.
        let used = one.usage().bytes;
        let listed = one.mirror.now().unwrap().left;
        one.mirror.cluster.fetch_add(1, Ordering::Relaxed);
        one.mirror.doubted.notify_one();
        while one.mirror.now().unwrap().left < listed + used {
            runtime.sleep(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(settled(&one).await, Vec::<String>::new());
        assert_eq!(one.usage().bytes, used);
        // As a start counts it.
        let third = through(etcd.transport(), &runtime, options()).await;
        assert_eq!(settled(&third).await, Vec::<String>::new());
        assert_eq!(third.usage().bytes, one.usage().bytes);
        let read = third
            .get(&Key::parse("/registry/things/ns/o0").unwrap(), ReadAt::Latest)
            .await;
        assert!(read.is_ok());
    });
}
