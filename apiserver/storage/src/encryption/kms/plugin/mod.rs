//! One plugin: the seed that values are written with, which [`probing`] keeps up with the plugin's key, and the keys that were decrypted.

mod probing;

use super::api::DecryptRequest;
use super::deks::{Decrypted, Deks, RETRY};
use super::envelope::{Dek, Source, SourceHash, hash_of_id};
use super::measures::{FROM, KmsMeasures, TO};
use super::service::{Service, rpc_text};
use crate::encryption::Seal;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use machinery_runtime::Runtime;
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tonic::Code;

/// Age of an answer from which a health check requests another.
const HEALTHY_AGE: Duration = Duration::from_secs(20);
const UNHEALTHY_AGE: Duration = Duration::from_secs(3);
/// Calls that decrypt at once.
const CALLS_AT_ONCE: usize = 8;
const NO_STATE: &str = "got unexpected nil transformer";

/// Counters, and the signal of changed keys, which outlive a configuration.
#[derive(Debug, Clone)]
pub(in crate::encryption) struct Observers {
    pub(in crate::encryption) measures: Arc<KmsMeasures>,
    /// Counts changes of the key that is written with, and keys that were decrypted.
    pub(in crate::encryption) changes: Arc<watch::Sender<u64>>,
}

/// The place of a plugin in the configuration.
#[derive(Debug, Clone)]
pub(in crate::encryption) struct PluginConfig {
    pub(in crate::encryption) name: String,
    pub(in crate::encryption) socket: PathBuf,
    /// Of one call.
    pub(in crate::encryption) timeout: Duration,
}

/// See the module.
pub(in crate::encryption) struct Plugin {
    name: String,
    prefix: String,
    timeout: Duration,
    runtime: Runtime,
    service: Service,
    observers: Observers,
    /// The seed of writes; once it is there, there is one for good.
    state: RwLock<Option<Arc<State>>>,
    health: Mutex<Health>,
    probed: Condvar,
    requested: Notify,
    deks: Deks,
}

#[derive(Clone)]
struct State {
    dek: Arc<Dek>,
    source: Source,
    /// By the clock that does not jump, and by the wall clock.
    ends: (Duration, Timestamp),
}

#[derive(Default)]
struct Health {
    /// With the time of the answer.
    last: Option<(Result<(), String>, Duration)>,
    /// Of the first answer.
    version: String,
}

impl Plugin {
    /// Begins to ask the plugin how it is, as long as the scope of the runtime lives.
    pub(in crate::encryption) fn start(
        config: &PluginConfig,
        runtime: &Runtime,
        observers: Observers,
    ) -> Arc<Self> {
        let PluginConfig {
            name,
            socket,
            timeout,
        } = config;
        let measures = Arc::clone(&observers.measures);
        let own = Arc::new(Self {
            name: name.clone(),
            prefix: format!("k8s:enc:kms:v2:{name}:"),
            timeout: *timeout,
            runtime: runtime.clone(),
            service: Service::new((name, socket.clone(), *timeout), runtime.clone(), measures),
            observers,
            state: RwLock::default(),
            health: Mutex::default(),
            probed: Condvar::new(),
            requested: Notify::new(),
            deks: Deks::default(),
        });
        let (probing, decrypting) = (Arc::clone(&own), Arc::clone(&own));
        runtime
            .spawn("kms status", async move { probing.probe_for_ever().await })
            .detach();
        runtime
            .spawn(
                "kms decryption",
                async move { decrypting.decrypt_for_ever().await },
            )
            .detach();
        own
    }

    /// The prefix of its values.
    pub(in crate::encryption) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Blocks until the plugin has answered once, or its time is over.
    pub(in crate::encryption) fn wait_until_requested(&self) {
        let most = self.timeout * 2 + self.timeout / 2;
        let mut health = self.health.lock();
        let _ = self
            .probed
            .wait_while_for(&mut health, |health| health.last.is_none(), most);
    }

    /// Returns the plugin's last health, and requests it again if that is old.
    pub(in crate::encryption) fn health(&self) -> Result<(), String> {
        let now = self.runtime.monotonic();
        let health = self.health.lock();
        let Some((last, at)) = &health.last else {
            return Err(format!("kmsv2 Provider {} has not answered yet", self.name));
        };
        let age = if last.is_ok() { HEALTHY_AGE } else { UNHEALTHY_AGE };
        if now >= *at + age {
            self.requested.notify_one();
        }
        last.clone()
    }

    /// Requests the plugin's health now.
    pub(in crate::encryption) fn ask(&self) {
        self.requested.notify_one();
    }

    /// Reports why values cannot be written, if they cannot: there was no seed yet, or its time is over.
    pub(in crate::encryption) fn can_seal(&self) -> Result<(), String> {
        let state = self.state.read().clone().ok_or(NO_STATE)?;
        let (end, end_at) = state.ends;
        if self.runtime.monotonic() <= end {
            return Ok(());
        }
        Err(format!(
            "encryptedDEKSource with keyID hash {:?} expired at {} (current time is {})",
            hash_of_id(&state.source.key_id),
            seconds(end_at),
            seconds(self.runtime.now())
        ))
    }

    /// Reports whether there is a seed: then there is one from now on.
    pub(in crate::encryption) fn has_seed(&self) -> bool {
        self.state.read().is_some()
    }

    /// The stored form of a value. Fails only before there is a seed.
    pub(in crate::encryption) fn seal(&self, plain: &[u8], place: &[u8]) -> Result<(Vec<u8>, Seal), String> {
        let state = self.state.read().clone().ok_or(NO_STATE)?;
        let object = state.source.stored_with(state.dek.seal(plain, place));
        let stored = [self.prefix.as_bytes(), &object].concat();
        let now = self.runtime.now().as_millisecond();
        let measures = &self.observers.measures;
        measures.used(TO, &self.name, &state.source.key_id, now);
        Ok((stored, self.seal_of(&state.source)))
    }

    /// The value of what is behind the prefix of a stored form.
    pub(in crate::encryption) fn open(
        &self,
        stored: &[u8],
        place: &[u8],
        may_block: bool,
    ) -> Result<(Vec<u8>, Seal), String> {
        let (source, data) = Source::read(stored)?;
        let (hash, now) = (source.hash(), self.runtime.monotonic());
        let (key_id, seal) = (source.key_id.clone(), self.seal_of(&source));
        let dek = match may_block {
            true => self.deks.get_or_wait(hash, source, (now, self.timeout * 2)),
            false => self.deks.get_or_note(hash, source, now),
        }?;
        let now = self.runtime.now().as_millisecond();
        self.observers.measures.used(FROM, &self.name, &key_id, now);
        let opened = dek.open(&data, place);
        if opened.is_err() {
            let (source, _) = Source::read(stored)?;
            self.deks.doubt(hash, source, self.runtime.monotonic());
        }
        Ok((opened?, seal))
    }

    /// Notes the keys of stored forms, without their prefix, and waits for the plugin to decrypt them; in no case longer than its
    /// calls take.
    pub(in crate::encryption) async fn prepare(&self, stored: &[&[u8]]) {
        let now = self.runtime.monotonic();
        let mut missing: HashSet<SourceHash> = HashSet::new();
        for (source, _) in stored.iter().filter_map(|stored| Source::read(stored).ok()) {
            let hash = source.hash();
            if !missing.contains(&hash) && self.deks.get_or_note(hash, source, now).is_err() {
                missing.insert(hash);
            }
        }
        let missing: Vec<SourceHash> = missing.into_iter().collect();
        let settled = self.deks.settled(&missing);
        // What is not there then is an error of its value.
        let _ = self.runtime.timeout(self.timeout * 2, settled).await;
    }

    /// The seal of values that are written now.
    pub(in crate::encryption) fn current_seal(&self) -> Seal {
        let state = self.state.read();
        state.as_ref().map_or_else(
            || Seal::of_plugin(&self.name, 0),
            |state| self.seal_of(&state.source),
        )
    }

    /// Reports whether it wrote a value with this seal, with whichever key.
    pub(in crate::encryption) fn has(&self, seal: Seal) -> bool {
        seal.is_of_plugin(&self.name)
    }

    /// Reports whether it decrypts the seed that another one writes with; blocks until it has.
    pub(in crate::encryption) fn decrypts_writes_of(&self, other: &Self) -> bool {
        let Some(state) = other.state.read().clone() else {
            return true;
        };
        let now = self.runtime.monotonic();
        let (hash, source) = (state.source.hash(), state.source.clone());
        self.deks
            .get_or_wait(hash, source, (now, self.timeout * 2))
            .is_ok()
    }

    fn seal_of(&self, source: &Source) -> Seal {
        let mut hasher = DefaultHasher::new();
        (&source.key_id, source.is_outdated()).hash(&mut hasher);
        Seal::of_plugin(&self.name, hasher.finish())
    }

    async fn decrypt_for_ever(self: Arc<Self>) {
        loop {
            let due = self.deks.due(self.runtime.monotonic());
            if due.is_empty() {
                tokio::select! {
                    biased;
                    () = self.deks.noted() => {}
                    () = self.runtime.sleep(RETRY) => {}
                }
                continue;
            }
            let calls = stream::iter(due);
            calls
                .for_each_concurrent(CALLS_AT_ONCE, |(hash, source)| self.decrypt(hash, source))
                .await;
        }
    }

    async fn decrypt(&self, hash: SourceHash, source: Source) {
        let request = DecryptRequest {
            ciphertext: source.encrypted.clone(),
            uid: self.runtime.uuid().to_string(),
            key_id: source.key_id.clone(),
            annotations: source.annotations.clone(),
        };
        let answer = match self.service.decrypt(request).await {
            Ok(answer) => match Dek::of(&source, answer.plaintext) {
                Ok(dek) => Decrypted::Dek(dek),
                Err(why) => Decrypted::Failed(why),
            },
            Err(status) => {
                let why = format!("failed to decrypt DEK, error: {}", rpc_text(&status));
                match status.code() {
                    Code::DeadlineExceeded | Code::Unavailable => Decrypted::Silent(why),
                    _ => Decrypted::Failed(why),
                }
            }
        };
        let (kept, is_news) = self.deks.answer(hash, answer, self.runtime.monotonic());
        if is_news {
            self.observers.changes.send_modify(|changes| *changes += 1);
        }
        self.observers.measures.kept(&self.name, kept);
    }
}

/// A time as Go's RFC 3339 writes it.
fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
