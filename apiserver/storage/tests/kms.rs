//! Encryption at rest by a plugin (KMS v2): what is stored, rotations, restarts, and plugins that fail.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_kms_model::{KmsPlugin, endpoint};
use apiserver_storage::encryption::{Encryption, EncryptionConfigError, ResourceNames, UndecryptedValues};
use apiserver_storage::{
    Expect, Key, LogOptions, LogStorage, ObjectHeader, Op, ReadAt, Record, Storage, StorageError, Write,
};
use bytes::Bytes;
use machinery_runtime::Runtime;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const SECRET: &str = "/registry/secrets/default/golden";
const PREFIX: &[u8] = b"k8s:enc:kms:v2:golden:";
const PLAIN: &[u8] = b"value-of-the-secret";

/// A folder with a socket, and the runtime of a test.
struct Ground {
    runtime: Runtime,
    folder: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        Self {
            runtime: Runtime::real(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("kms.sock")
    }

    fn plugin(&self, key_id: &str) -> KmsPlugin {
        KmsPlugin::start(&self.runtime, &self.socket(), key_id).unwrap()
    }

    fn config(&self, name: &str, timeout: &str, more: &str) -> Vec<u8> {
        let endpoint = endpoint(&self.socket());
        let kms =
            format!("{{kms: {{apiVersion: v2, name: {name}, endpoint: '{endpoint}', timeout: {timeout}}}}}");
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n";
        format!("{head}- resources: [secrets]\n  providers: [{kms}{more}]\n").into_bytes()
    }

    /// Waits for the plugin as the start of a server does, on a thread that may block.
    async fn load(&self, config: Vec<u8>) -> Result<Arc<Encryption>, EncryptionConfigError> {
        let runtime = self.runtime.clone();
        let load = move || {
            let loaded = Encryption::new(&runtime, ResourceNames::default(), Path::new("/enc"), &config);
            loaded.map(Arc::new)
        };
        self.runtime.blocking(load).await.unwrap()
    }

    async fn encryption(&self, timeout: &str) -> Arc<Encryption> {
        self.load(self.config("golden", timeout, "")).await.unwrap()
    }

    async fn open(&self, encryption: &Arc<Encryption>) -> LogStorage {
        let options = LogOptions {
            encryption: Some(Arc::clone(encryption)),
            reserve_bytes: 0,
            ..LogOptions::new(self.folder.path().join("storage"))
        };
        LogStorage::open(&self.runtime, options).await.unwrap().0
    }

    async fn until(&self, mut holds: impl AsyncFnMut() -> bool) {
        let asking = async {
            while !holds().await {
                self.runtime.sleep(Duration::from_millis(5)).await;
            }
        };
        let limit = Duration::from_secs(60);
        self.runtime
            .timeout(limit, asking)
            .await
            .expect("it is so in time");
    }

    fn is_anywhere(&self, text: &[u8]) -> bool {
        let files = std::fs::read_dir(self.folder.path().join("storage")).unwrap();
        let files = files
            .map(|file| file.unwrap().path())
            .filter(|path| path.is_file());
        let mut contents = files.map(|path| std::fs::read(path).unwrap());
        contents.any(|bytes| bytes.windows(text.len()).any(|run| run == text))
    }
}

/// The last health; it is requested again.
fn health(encryption: &Encryption) -> Result<(), String> {
    encryption.ask_plugins();
    encryption.plugins_health().unwrap()
}

fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

fn put(text: &str) -> Vec<Write> {
    let record = Record {
        parts: [
            Bytes::from_static(b"a"),
            Bytes::from_static(b"b"),
            Bytes::from_static(PLAIN),
        ],
        fingerprint: 7,
        header: Arc::new(ObjectHeader::default()),
    };
    vec![Write {
        key: key(text),
        expect: Expect::Any,
        op: Op::Put { record, ttl: None },
    }]
}

async fn read(storage: &LogStorage, text: &str) -> Result<Vec<u8>, String> {
    let found = storage.get(&key(text), ReadAt::Latest).await;
    match found {
        Ok(found) => Ok(found.entry.unwrap().record.parts[2].to_vec()),
        Err(StorageError::Sealed { cause, .. }) => Err(cause),
        Err(other) => panic!("{other}"),
    }
}

#[derive(Deserialize)]
struct Golden {
    values: Vec<GoldenValue>,
}

#[derive(Deserialize)]
struct GoldenValue {
    key: String,
    plain: String,
    stored: String,
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    let pairs = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
    pairs.collect()
}

/// Values of upstream's server, with seeds and with plain keys.
#[tokio::test(flavor = "multi_thread")]
async fn kms_value_of_upstream_is_read() {
    let ground = Ground::new();
    let plugin = ground.plugin("golden-key");
    let encryption = ground.encryption("3s").await;
    let golden: Golden = serde_json::from_str(include_str!("../testdata/kms_golden.json")).unwrap();
    let (own, values) = (Arc::clone(&encryption), golden.values);
    assert_eq!(values.len(), 6);
    let opening = move || {
        for value in values {
            let stored = bytes_of(&value.stored);
            let (plain, seal) = own.open(&key(&value.key), &stored).unwrap();
            assert_eq!(String::from_utf8(plain).unwrap(), value.plain);
            // A value with a plain key is written again with a seed.
            let is_seed = value.stored.ends_with("2801");
            assert_eq!(seal == own.current_seal(&key(&value.key)), is_seed);
            let elsewhere = own.open(&key("/registry/secrets/default/other"), &stored);
            assert_eq!(elsewhere.unwrap_err(), "cipher: message authentication failed");
        }
    };
    ground.runtime.blocking(opening).await.unwrap();
    let calls = plugin.calls().decrypt;
    assert!(
        (2..=4).contains(&calls),
        "{calls}: once for each encrypted key, and once more since values at other places did not open"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn kms_value_is_stored_as_upstream_stores_it() {
    let ground = Ground::new();
    let plugin = ground.plugin("golden-key");
    let encryption = ground.encryption("3s").await;
    let (stored, seal) = encryption.seal(&key(SECRET), PLAIN).unwrap().unwrap();
    assert!(stored.starts_with(PREFIX));
    let (again, _) = encryption.seal(&key(SECRET), PLAIN).unwrap().unwrap();
    // The random bytes in front of the data, of which a key of its own is made.
    let info = PREFIX.len() + 2..PREFIX.len() + 2 + 32;
    assert_ne!(stored[info.clone()], again[info]);
    assert_eq!(encryption.open(&key(SECRET), &stored), Ok((PLAIN.to_vec(), seal)));
    assert_eq!(plugin.calls().decrypt, 0, "its own seed is known");
    let garbage = [PREFIX, b"\xff\xff\xff"].concat();
    assert!(encryption.open(&key(SECRET), &garbage).is_err());
    let shown = format!("{encryption:?} {seal:?}");
    assert!(shown.contains("Sealed") && !shown.contains("golden"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kms_values_come_back_after_a_restart() {
    let ground = Ground::new();
    let plugin = ground.plugin("one");
    let encryption = ground.encryption("3s").await;
    let storage = ground.open(&encryption).await;
    for at in 0..3 {
        storage.commit(put(&format!("{SECRET}{at}"))).await.unwrap();
    }
    let calls = plugin.calls();
    assert_eq!((calls.encrypt, calls.decrypt), (1, 0));
    storage.close().await;
    assert!(ground.is_anywhere(PREFIX) && !ground.is_anywhere(PLAIN));
    let encryption = ground.encryption("3s").await;
    let storage = ground.open(&encryption).await;
    assert!(storage.unopened().is_empty());
    assert_eq!(read(&storage, &format!("{SECRET}2")).await.unwrap(), PLAIN);
    assert_eq!(plugin.calls().decrypt, 1, "one seed for all values of a start");
    storage.close().await;
    assert!(!ground.is_anywhere(PLAIN));
}

/// The key of writes follows the plugin's, values of the one before are read and count as stale.
#[tokio::test(flavor = "multi_thread")]
async fn kms_key_is_rotated_by_the_plugin() {
    let ground = Ground::new();
    let plugin = ground.plugin("one");
    let encryption = ground.encryption("3s").await;
    let storage = ground.open(&encryption).await;
    let written = storage.commit(put(SECRET)).await.unwrap();
    let entry = written[0].entry.clone().unwrap();
    assert!(!storage.is_stale(&entry));
    let mut changes = encryption.changes();
    plugin.behave(|conduct| conduct.encrypts_with = Some("other".to_owned()));
    plugin.behave(|conduct| conduct.key_id = "two".to_owned());
    let is_refused = async || health(&encryption).is_err_and(|why| why.contains("failed to rotate DEK"));
    ground.until(is_refused).await;
    assert!(!storage.is_stale(&entry), "the key before stays in use");
    plugin.behave(|conduct| conduct.encrypts_with = None);
    ground.until(async || health(&encryption).is_ok()).await;
    changes.changed().await.unwrap();
    assert!(storage.is_stale(&entry));
    assert_eq!(read(&storage, SECRET).await.unwrap(), PLAIN);
    // The log writes everything with the new key, so that the old one is not needed by the next start.
    storage.keys_changed().await;
    ground.until(async || ground.is_anywhere(b"two")).await;
    storage.close().await;
    plugin.behave(|conduct| {
        conduct.lost_keys.insert("one".to_owned());
    });
    let encryption = ground.encryption("3s").await;
    let storage = ground.open(&encryption).await;
    assert_eq!(read(&storage, SECRET).await.unwrap(), PLAIN);
}

#[tokio::test(flavor = "multi_thread")]
async fn kms_plugin_that_starts_late_is_waited_for_by_nobody() {
    let ground = Ground::new();
    let plugin = ground.plugin("one");
    let encryption = ground.encryption("3s").await;
    let storage = ground.open(&encryption).await;
    storage.commit(put(SECRET)).await.unwrap();
    storage.commit(put("/registry/configmaps/a/b")).await.unwrap();
    storage.close().await;
    drop(plugin);
    std::fs::remove_file(ground.socket()).unwrap();

    let encryption = ground.encryption("100ms").await;
    let storage = ground.open(&encryption).await;
    let why = read(&storage, SECRET).await.unwrap_err();
    assert!(
        why.starts_with("failed to decrypt DEK, error: rpc error: code = DeadlineExceeded"),
        "{why}"
    );
    let refused = storage.commit(put(SECRET)).await.unwrap_err();
    assert_eq!(refused.to_string(), "got unexpected nil transformer");
    assert!(storage.backup().is_err(), "a backup holds nothing plain");
    let ill = encryption.plugins_health().unwrap().unwrap_err();
    assert_eq!(
        ill,
        "kms-provider-0: failed to perform status section of the healthz check for KMS Provider golden, error: rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    );
    assert_eq!(read(&storage, "/registry/configmaps/a/b").await.unwrap(), PLAIN);
    storage.commit(put("/registry/configmaps/a/b")).await.unwrap();

    let _plugin = ground.plugin("one");
    ground.until(async || health(&encryption).is_ok()).await;
    ground.until(async || read(&storage, SECRET).await.is_ok()).await;
    storage.commit(put(SECRET)).await.unwrap();
    assert!(storage.backup().unwrap().is_some());
}

/// Writes go on with the seed at hand; a hanging plugin keeps no reader waiting.
#[tokio::test(flavor = "multi_thread")]
async fn kms_plugin_that_dies_stops_no_write_at_once() {
    let ground = Ground::new();
    let plugin = ground.plugin("one");
    let encryption = ground.encryption("100ms").await;
    let storage = ground.open(&encryption).await;
    storage.commit(put(SECRET)).await.unwrap();
    plugin.behave(|conduct| conduct.hangs.extend(["Status", "Encrypt", "Decrypt"]));
    ground.until(async || health(&encryption).is_err()).await;
    storage.commit(put(SECRET)).await.unwrap();
    assert_eq!(read(&storage, SECRET).await.unwrap(), PLAIN);
    drop(plugin);
    storage.commit(put(SECRET)).await.unwrap();
    let counts = encryption.measures().kms;
    let is_late = |(own, _): (&(String, &'static str, String), _)| own.2 == "DeadlineExceeded";
    assert!(counts.calls.iter().any(is_late), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kms_plugin_that_answers_nonsense_is_ill() {
    let ground = Ground::new();
    let plugin = ground.plugin("one");
    let long = "k".repeat(1025);
    let check = async |expected: &str| {
        let encryption = ground.encryption("1s").await;
        let ill = encryption.plugins_health().unwrap().unwrap_err();
        assert!(ill.contains(expected), "{ill}\nwithout\n{expected}");
        assert!(ill.len() < 4096);
        assert!(encryption.seal(&key(SECRET), PLAIN).is_err());
    };
    plugin.behave(|own| own.ciphertext = Some(Vec::new()));
    check("errGen=failed to validate encrypted DEK source: encrypted DEK source is empty, ").await;
    plugin.behave(|own| own.ciphertext = Some(vec![0; 1025]));
    check("encrypted DEK source is 1025 bytes, which exceeds the max size of 1024").await;
    plugin.behave(|own| own.ciphertext = None);
    plugin.behave(|own| drop(own.annotations.insert("note".to_owned(), Vec::new())));
    check("failed to validate annotations: annotations: Invalid value: \"note\": should be a domain with at least two segments separated by dots").await;
    plugin.behave(|own| own.annotations = [("a.b".to_owned(), vec![0; 32 << 10])].into());
    check("total size of annotations is 32771, which exceeds the max size of 32768").await;
    plugin.behave(|own| own.annotations = [("a.b".to_owned(), vec![0; 1 << 20])].into());
    check("errGen=failed to encrypt DEK, error: rpc error: code = OutOfRange").await;
    plugin.behave(|own| own.annotations.clear());
    plugin.behave(|own| own.encrypts_with = Some(String::new()));
    check("failed to validate key id: keyID is empty").await;
    plugin.behave(|own| own.encrypts_with = None);
    plugin.behave(|own| own.key_id = String::new());
    check("kmsv2 Provider golden is not healthy, error: got invalid KMSv2 KeyID hash \"\": keyID is empty")
        .await;
    plugin.behave(|own| own.key_id.clone_from(&long));
    check("keyID is 1025 bytes, which exceeds the max size of 1024").await;
    plugin.behave(|own| own.key_id = "one".to_owned());
    plugin.behave(|own| own.version = "v1".to_owned());
    let encryption = ground.encryption("1s").await;
    let ill = encryption.plugins_health().unwrap().unwrap_err();
    assert!(
        ill.ends_with("error: expected KMSv2 API version v2, got v1"),
        "{ill}"
    );
    plugin.behave(|own| own.version = "v2beta1".to_owned());
    plugin.behave(|own| own.healthz = "x".repeat(1 << 16));
    let encryption = ground.encryption("1s").await;
    let ill = encryption.plugins_health().unwrap().unwrap_err();
    assert!(ill.contains("got unexpected healthz status: xxx") && ill.len() < 2048);
}

/// A key that does not open a value is decrypted again, after a pause.
#[tokio::test(flavor = "multi_thread")]
async fn kms_key_that_was_answered_wrongly_is_replaced_by_the_right_one() {
    let ground = Ground::new();
    let plugin = ground.plugin("one");
    let first = ground.encryption("1s").await;
    let (stored, _) = first.seal(&key(SECRET), PLAIN).unwrap().unwrap();
    let encryption = ground.encryption("1s").await;
    let opened = async || {
        let (own, stored) = (Arc::clone(&encryption), stored.clone());
        let opening = move || own.open(&key(SECRET), &stored);
        ground.runtime.blocking(opening).await.unwrap()
    };
    plugin.behave(|own| own.plaintext = Some(vec![0; 32]));
    opened().await.unwrap_err();
    plugin.behave(|own| own.plaintext = None);
    let changes = encryption.changes();
    ground.until(async || opened().await.is_ok()).await;
    assert!(changes.has_changed().unwrap(), "values are read again");
    let calls = plugin.calls().decrypt;
    assert!((2..=3).contains(&calls), "{calls}");
}

/// A key of the wrong length, and one that the plugin has lost.
#[tokio::test(flavor = "multi_thread")]
async fn kms_key_that_is_none_is_an_error_of_its_values() {
    let ground = Ground::new();
    let plugin = ground.plugin("one");
    let first = ground.encryption("1s").await;
    let (stored, _) = first.seal(&key(SECRET), PLAIN).unwrap().unwrap();
    let opened = async || {
        let own = ground.encryption("1s").await;
        let stored = stored.clone();
        let opening = move || own.open(&key(SECRET), &stored);
        ground.runtime.blocking(opening).await.unwrap()
    };
    plugin.behave(|own| own.plaintext = Some(vec![0; 31]));
    assert_eq!(
        opened().await.unwrap_err(),
        "invalid seed length 31 used for key generation"
    );
    plugin.behave(|own| own.plaintext = Some(vec![0; 32]));
    assert_eq!(
        opened().await.unwrap_err(),
        "cipher: message authentication failed"
    );
    plugin.behave(|own| own.plaintext = None);
    plugin.behave(|own| own.lost_keys = ["one".to_owned()].into());
    assert_eq!(
        opened().await.unwrap_err(),
        "failed to decrypt DEK, error: rpc error: code = NotFound desc = unknown key"
    );
    plugin.behave(|own| own.lost_keys.clear());
    assert_eq!(opened().await.unwrap().0, PLAIN);
}

#[tokio::test(flavor = "multi_thread")]
async fn kms_configuration_is_taken_once_its_plugin_is_healthy() {
    let ground = Ground::new();
    let encryption = ground.encryption("1s").await;
    assert!(
        encryption.seal(&key(SECRET), PLAIN).is_err(),
        "there is no plugin"
    );
    let reload = async |config: Vec<u8>| {
        let own = Arc::clone(&encryption);
        let lost = |_: &Encryption| Ok(UndecryptedValues::default());
        let reload = move || own.reload_unless_lost(Path::new("/enc"), &config, lost);
        ground.runtime.blocking(reload).await.unwrap()
    };
    let refused = reload(ground.config("other", "100ms", "")).await.unwrap_err();
    assert!(
        refused.to_string().starts_with(
            "health check for new transformers failed: kms-provider-0: failed to perform status"
        ),
        "{refused}"
    );
    let plugin = ground.plugin("one");
    assert_eq!(reload(ground.config("golden", "2s", "")).await, Ok(true));
    let (stored, _) = encryption.seal(&key(SECRET), PLAIN).unwrap().unwrap();
    // A plugin in the place of another one that does not know its key.
    plugin.behave(|own| {
        own.key_id = "two".to_owned();
        own.lost_keys = ["one".to_owned()].into();
    });
    let refused = reload(ground.config("golden", "1s", ""))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("does not decrypt the key that values are written with"),
        "{refused}"
    );
    assert!(encryption.open(&key(SECRET), &stored).is_ok());
}
