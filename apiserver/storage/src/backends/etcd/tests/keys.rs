//! Encryption of what servers share through etcd, and the keys that a reload may take away.

use super::mirror::{simulated, two};
use super::process::Process;
use super::{TextCodec, on_the_model, through};
use crate::encryption::{Encryption, EncryptionConfigError, ResourceNames};
use crate::{EtcdOptions, EtcdStorage, Key, Prefix, RangeOptions, ReadAt, Storage, StorageError};
use apiserver_etcd_model::{Etcd, FaultProfile};
use machinery_runtime::Runtime;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const OLD_KEY: &str =
    "secretbox: {keys: [{name: old, secret: YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=}]}";
const NEW_KEY: &str = "aesgcm: {keys: [{name: new, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}";
const IDENTITY: &str = "identity: {}";

fn encryption(providers: &[&str]) -> Vec<u8> {
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n";
    let list = providers.iter().map(|own| format!("  - {own}\n"));
    format!(
        "{head}- resources: [secrets]\n  providers:\n{}",
        list.collect::<String>()
    )
    .into_bytes()
}

/// A server with these providers for Secrets, and its configuration to change.
async fn encrypting(etcd: &Etcd, runtime: &Runtime, providers: &[&str]) -> (EtcdStorage, Arc<Encryption>) {
    let path = Path::new("/enc");
    let own = Encryption::new(runtime, ResourceNames::default(), path, &encryption(providers));
    let own = Arc::new(own.unwrap());
    let options = EtcdOptions {
        encryption: Some(Arc::clone(&own)),
        ..EtcdOptions::default()
    };
    (through(etcd.transport(), runtime, options).await, own)
}

/// Values in etcd, as a client of etcd reads them.
async fn stored_value(storage: &EtcdStorage) -> String {
    let mut kv = storage.remote.kv().unwrap();
    let answer = kv.get("/knarr/registry/keys", None).await.unwrap();
    String::from_utf8_lossy(answer.kvs()[0].value()).into_owned()
}

#[test]
fn shared_value_is_encrypted_as_secrets_are_and_follows_their_key() {
    simulated(async |runtime| {
        let etcd = Etcd::start(&runtime, FaultProfile::none());
        let plain = on_the_model(&etcd, &runtime).await;
        let agree = async |storage: &EtcdStorage| {
            let agreed = storage.shared().unwrap().agree("keys", b"offer".to_vec()).await;
            agreed.map(|value| String::from_utf8(value).unwrap())
        };
        assert_eq!(agree(&plain).await.unwrap(), "offer");
        assert_eq!(
            stored_value(&plain).await,
            "offer",
            "plain without a configuration"
        );
        // The first server that has a key for Secrets re-encrypts it, when it starts.
        let (first, config) = encrypting(&etcd, &runtime, &[OLD_KEY, IDENTITY]).await;
        assert_eq!(agree(&first).await.unwrap(), "offer");
        let stored = stored_value(&plain).await;
        assert!(stored.starts_with("k8s:enc:secretbox:v1:old:") && !stored.contains("offer"));
        let sealed = agree(&plain).await.unwrap_err();
        assert!(matches!(sealed, StorageError::Sealed { .. }), "{sealed}");
        let (stranger, _) = encrypting(&etcd, &runtime, &[NEW_KEY]).await;
        let sealed = agree(&stranger).await.unwrap_err();
        assert!(matches!(sealed, StorageError::Sealed { .. }), "{sealed}");
        // A rotation: the new key in front on one server, while another one only reads it.
        let (second, _) = encrypting(&etcd, &runtime, &[OLD_KEY, NEW_KEY]).await;
        let path = Path::new("/enc");
        config.reload(path, &encryption(&[NEW_KEY, OLD_KEY])).unwrap();
        let reseal = async |storage: &EtcdStorage| storage.shared().unwrap().reseal("keys").await.unwrap();
        assert!(reseal(&first).await && !reseal(&first).await);
        assert!(stored_value(&plain).await.starts_with("k8s:enc:aesgcm:v1:new:"));
        assert_eq!(agree(&second).await.unwrap(), "offer");
        // Back to plain text, which needs no key.
        config
            .reload(path, &encryption(&[IDENTITY, NEW_KEY, OLD_KEY]))
            .unwrap();
        assert!(reseal(&first).await);
        assert_eq!(agree(&plain).await.unwrap(), "offer");
        assert!(!first.shared().unwrap().reseal("nothing").await.unwrap());
    });
}

#[test]
fn shared_value_that_is_not_encrypted_anew_is_told() {
    simulated(async |runtime| {
        let etcd = Etcd::start(&runtime, FaultProfile::none());
        let (storage, config) = encrypting(&etcd, &runtime, &[OLD_KEY]).await;
        let shared = storage.shared().unwrap();
        shared.agree("keys", b"offer".to_vec()).await.unwrap();
        // Nothing is known before it is read.
        assert!(!storage.is_encryption_behind());
        shared.note_keys().await.unwrap();
        assert!(!storage.is_encryption_behind());
        let path = Path::new("/enc");
        config.reload(path, &encryption(&[NEW_KEY, OLD_KEY])).unwrap();
        assert!(storage.is_encryption_behind());
        assert!(shared.reseal("keys").await.unwrap());
        assert!(!storage.is_encryption_behind());
        // Another server may do it, which is seen with the next look.
        config.reload(path, &encryption(&[OLD_KEY, NEW_KEY])).unwrap();
        let (other, _) = encrypting(&etcd, &runtime, &[OLD_KEY, NEW_KEY]).await;
        assert!(other.shared().unwrap().reseal("keys").await.unwrap());
        assert!(storage.is_encryption_behind());
        shared.note_keys().await.unwrap();
        assert!(!storage.is_encryption_behind());
    });
}

#[test]
fn shared_value_is_that_of_the_first_who_offered_one() {
    simulated(async |runtime| {
        let etcd = Etcd::start(&runtime, FaultProfile::none());
        let (one, other, _) = two(&etcd, &runtime).await;
        let agree = async |storage: &EtcdStorage, value: &str| {
            let shared = storage.shared().unwrap();
            String::from_utf8(shared.agree("keys", value.into()).await.unwrap()).unwrap()
        };
        let (first, second) = futures::join!(agree(&one, "a"), agree(&other, "b"));
        assert_eq!(first, second);
        assert_eq!(agree(&one, "c").await, first);
        // No list, no watch and no key of the API leads there.
        let everything = RangeOptions::default();
        let page = one
            .range(&Prefix::parse("/").unwrap(), &everything)
            .await
            .unwrap();
        assert_eq!(page.entries, []);
        let key = Key::parse("/knarr/registry/keys").unwrap();
        assert!(matches!(
            one.get(&key, ReadAt::Latest).await,
            Err(StorageError::InvalidKey(_))
        ));
    });
}

/// A reload as the server does it.
async fn reload(
    storage: &EtcdStorage,
    config: &Encryption,
    providers: &[&str],
) -> Result<bool, EncryptionConfigError> {
    storage.shared().unwrap().note_keys().await.unwrap();
    let lost = |next: &Encryption| storage.lost_by(next);
    config.reload_unless_lost(Path::new("/enc"), &encryption(providers), lost)
}

async fn listed(storage: &EtcdStorage, runtime: &Runtime) {
    while storage.mirror.now().is_none() {
        runtime.sleep(Duration::from_millis(20)).await;
    }
}

/// The rotation of the shared values alone: no object is stored.
async fn rotation_of_shared_values(
    (first, config): (EtcdStorage, Arc<Encryption>),
    second: EtcdStorage,
    runtime: &Runtime,
) {
    let agreed = first.shared().unwrap().agree("keys", b"offer".to_vec()).await;
    assert_eq!(agreed.unwrap(), b"offer");
    listed(&first, runtime).await;
    let refused = reload(&first, &config, &[NEW_KEY, IDENTITY]).await.unwrap_err();
    let told = "1 stored value could no longer be decrypted, /knarr/registry/keys first";
    assert!(refused.to_string().starts_with(told), "{refused}");
    assert_eq!(
        reload(&first, &config, &[NEW_KEY, OLD_KEY, IDENTITY]).await,
        Ok(true)
    );
    assert!(
        reload(&first, &config, &[NEW_KEY]).await.is_err(),
        "written with the old key still"
    );
    // Another server re-encrypts it.
    second.shared().unwrap().agree("keys", Vec::new()).await.unwrap();
    assert_eq!(reload(&first, &config, &[NEW_KEY]).await, Ok(true));
    let agreed = first.shared().unwrap().agree("keys", Vec::new()).await;
    assert_eq!(agreed.unwrap(), b"offer");
}

#[test]
fn encryption_key_of_shared_values_is_kept_by_a_reload() {
    simulated(async |runtime| {
        let etcd = Etcd::start(&runtime, FaultProfile::none());
        let first = encrypting(&etcd, &runtime, &[OLD_KEY, IDENTITY]).await;
        let (second, _) = encrypting(&etcd, &runtime, &[NEW_KEY, OLD_KEY]).await;
        rotation_of_shared_values(first, second, &runtime).await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encryption_key_of_shared_values_is_kept_by_a_reload_on_a_real_etcd() {
    let Some(process) = Process::start() else { return };
    let runtime = Runtime::real();
    // Ready when it answers.
    let storage = super::on(&process, &runtime, EtcdOptions::default()).await;
    storage.close().await;
    let open = async |providers: &[&str]| {
        let own = Encryption::new(
            &runtime,
            ResourceNames::default(),
            Path::new("/enc"),
            &encryption(providers),
        );
        let own = Arc::new(own.unwrap());
        let options = EtcdOptions {
            endpoints: vec![process.endpoint.clone()],
            encryption: Some(Arc::clone(&own)),
            ..EtcdOptions::default()
        };
        let storage = EtcdStorage::connect(&runtime, &options).await.unwrap();
        storage.codec().unwrap().fill(Arc::new(TextCodec));
        (storage, own)
    };
    let first = open(&[OLD_KEY, IDENTITY]).await;
    let (second, _) = open(&[NEW_KEY, OLD_KEY]).await;
    rotation_of_shared_values(first, second, &runtime).await;
}

/// A server that has not read anything cannot say that nothing is encrypted with a key.
#[test]
fn encryption_key_is_kept_by_a_reload_until_the_values_in_etcd_are_read() {
    simulated(async |runtime| {
        let etcd = Etcd::start(&runtime, FaultProfile::none());
        let config = Encryption::new(
            &runtime,
            ResourceNames::default(),
            Path::new("/enc"),
            &encryption(&[OLD_KEY]),
        );
        let config = Arc::new(config.unwrap());
        let options = EtcdOptions {
            endpoints: vec!["http://model".to_owned()],
            encryption: Some(Arc::clone(&config)),
            ..EtcdOptions::default()
        };
        // The storage does not follow etcd before it has a codec of values.
        let storage = EtcdStorage::connect_through(&runtime, &options, etcd.transport())
            .await
            .unwrap();
        let unread = reload(&storage, &config, &[NEW_KEY])
            .await
            .unwrap_err()
            .to_string();
        assert!(unread.contains("the values in etcd are not read yet"), "{unread}");
        storage.codec().unwrap().fill(Arc::new(TextCodec));
        listed(&storage, &runtime).await;
        let lost = |next: &Encryption| storage.lost_by(next);
        let shared = config.reload_unless_lost(Path::new("/enc"), &encryption(&[NEW_KEY, IDENTITY]), lost);
        assert_eq!(shared, Ok(true), "they were read with the first reload");
    });
}
