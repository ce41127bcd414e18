//! Keys of a KMS plugin on an etcd that servers share, each with a seed of its own.

use super::through;
use crate::encryption::{Encryption, ResourceNames};
use crate::suite::record;
use crate::{
    EtcdOptions, EtcdStorage, Expect, Key, Op, Prefix, ReadAt, Revision, Storage, StorageError, WatchFilter,
    WatchRequest, Write,
};
use apiserver_etcd_model::{Etcd, FaultProfile};
use apiserver_kms_model::{KmsPlugin, endpoint};
use machinery_runtime::Runtime;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A server with the plugin at a socket, which it waits for.
async fn server(etcd: &Etcd, runtime: &Runtime, socket: &Path) -> EtcdStorage {
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n";
    let endpoint = endpoint(socket);
    let kms = format!("kms: {{apiVersion: v2, name: model, endpoint: '{endpoint}', timeout: 300ms}}");
    let file = format!("{head}- resources: [secrets]\n  providers:\n  - {kms}\n");
    let names = ResourceNames::default();
    let own = Encryption::new(runtime, names, Path::new("/enc"), file.as_bytes());
    let options = EtcdOptions {
        encryption: Some(Arc::new(own.unwrap())),
        ..EtcdOptions::default()
    };
    through(etcd.transport(), runtime, options).await
}

fn key(name: &str) -> Key {
    Key::parse(&format!("/registry/secrets/ns/{name}")).unwrap()
}

async fn put(storage: &EtcdStorage, name: &str) -> Revision {
    let write = Write {
        key: key(name),
        expect: Expect::Any,
        op: Op::Put {
            record: record(name, "n1", "text"),
            ttl: None,
        },
    };
    storage.commit(vec![write]).await.unwrap()[0].revision
}

async fn is_read(storage: &EtcdStorage, name: &str, at: Revision) -> bool {
    match storage.get(&key(name), ReadAt::NotBefore(at)).await {
        Ok(found) => found.entry.is_some(),
        Err(StorageError::Sealed { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kms_values_of_other_servers_are_read_as_they_come() {
    let (runtime, folder) = (Runtime::real(), tempfile::tempdir().unwrap());
    let socket = folder.path().join("kms.sock");
    let plugin = KmsPlugin::start(&runtime, &socket, "one").unwrap();
    let etcd = Etcd::start(&runtime, FaultProfile::none());
    let first = server(&etcd, &runtime, &socket).await;
    let second = server(&etcd, &runtime, &socket).await;
    let everything = WatchRequest {
        interests: vec![WatchFilter::prefix(Prefix::parse("/registry/").unwrap())],
        after: second.current_revision().await.unwrap(),
    };
    let mut cursor = second.watch(everything).await.unwrap();
    let at = put(&first, "a").await;
    let limit = Duration::from_secs(60);
    let events = runtime.timeout(limit, cursor.next_batch(16)).await;
    let events = events.expect("it comes in time").unwrap();
    assert!(events[0].entry.is_some());
    assert!(is_read(&second, "a", at).await && is_read(&first, "a", at).await);
    assert_eq!(plugin.calls().decrypt, 1, "by the second server alone");

    // A plugin that hangs costs what it is for.
    plugin.behave(|conduct| conduct.hangs.extend(["Decrypt"]));
    let third = server(&etcd, &runtime, &socket).await;
    let late = put(&third, "b").await;
    assert!(!is_read(&second, "b", late).await);
    assert!(is_read(&second, "a", late).await && is_read(&third, "b", late).await);
    assert_eq!(second.unopened().count, 1);
    plugin.behave(|conduct| conduct.hangs.clear());
    let mut changes = second.encryption().unwrap().changes();
    let readable = async {
        while !is_read(&second, "b", late).await {
            changes.changed().await.unwrap();
            second.keys_changed().await;
        }
    };
    runtime.timeout(limit, readable).await.expect("it is so in time");
    assert!(second.unopened().is_empty());
}
