//! Questions how a plugin is, and the seed that follows its key.

use super::{NO_STATE, Plugin, State, seconds};
use crate::encryption::kms::api::EncryptRequest;
use crate::encryption::kms::envelope::{Dek, Source, check_key_id, hash_of_id};
use crate::encryption::kms::service::rpc_text;
use crate::encryption::transformer::aggregate;
use std::sync::Arc;
use std::time::Duration;

/// Interval between questions how a healthy plugin is.
const HEALTHY_INTERVAL: Duration = Duration::from_secs(60);
/// The same of another one.
const UNHEALTHY_INTERVAL: Duration = Duration::from_secs(10);
/// Time for which values are written with a seed whose key the plugin has not named since.
const WRITES: Duration = Duration::from_secs(180);
/// Bytes of a plugin's own words that are passed on.
const WORDS_BYTES_MAX: usize = 1 << 10;
const VERSIONS: [&str; 2] = ["v2", "v2beta1"];
const NO_TIME: &str = "0001-01-01T00:00:00Z";

impl Plugin {
    pub(super) async fn probe_for_ever(self: Arc<Self>) {
        loop {
            let is_healthy = self.probe().await;
            let pause = if is_healthy {
                HEALTHY_INTERVAL
            } else {
                UNHEALTHY_INTERVAL
            };
            tokio::select! {
                biased;
                () = self.requested.notified() => {}
                () = self.runtime.sleep(pause) => {}
            }
        }
    }

    /// Asks the plugin how it is, and goes by its answer; whether it is healthy.
    async fn probe(&self) -> bool {
        let result = self.check().await;
        let is_healthy = result.is_ok();
        let now = self.runtime.monotonic();
        let mut health = self.health.lock();
        let before = health.last.replace((result, now)).map(|(before, _)| before);
        let last = health.last.as_ref().map(|(last, _)| last);
        // The same failure at each turn is one line.
        match (last, before) {
            (Some(Err(error)), Some(Ok(())) | None) => {
                tracing::error!(
                    provider = self.name,
                    error,
                    "kms plugin failed health check probe"
                );
            }
            (Some(Ok(())), Some(Err(_))) => tracing::info!(provider = self.name, "kms plugin is healthy"),
            _ => {}
        }
        drop(health);
        self.probed.notify_all();
        is_healthy
    }

    async fn check(&self) -> Result<(), String> {
        let name = &self.name;
        let answer = self.service.status().await.map_err(|status| {
            format!(
                "failed to perform status section of the healthz check for KMS Provider {name}, error: {}",
                rpc_text(&status)
            )
        })?;
        let mut problems = Vec::new();
        if answer.healthz != "ok" {
            problems.push(format!(
                "got unexpected healthz status: {}",
                words(&answer.healthz)
            ));
        }
        problems.extend(self.version_problem(&answer.version));
        if let Err((code, why)) = check_key_id(&answer.key_id) {
            self.observers.measures.misnamed(name, code);
            let hash = hash_of_id(&answer.key_id);
            problems.push(format!("got invalid KMSv2 KeyID hash {hash:?}: {why}"));
        } else {
            let now = self.runtime.now().as_millisecond();
            self.observers.measures.named(name, &answer.key_id, now);
            problems.extend(self.rotate(&answer.key_id).await.err());
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "kmsv2 Provider {name} is not healthy, error: {}",
                aggregate(problems)
            )),
        }
    }

    /// A version that is none of ours, or another than that of the first answer.
    fn version_problem(&self, version: &str) -> Option<String> {
        if !VERSIONS.contains(&version) {
            return Some(format!("expected KMSv2 API version v2, got {}", words(version)));
        }
        let mut health = self.health.lock();
        if health.version.is_empty() {
            version.clone_into(&mut health.version);
        }
        let first = &health.version;
        (first != version).then(|| {
            format!(
                "KMSv2 API version should not change after the initial status response version {first}, got {version}"
            )
        })
    }

    /// Takes a seed of the key that the plugin names. A failure leaves the one before, which is written with until its end.
    async fn rotate(&self, key_id: &str) -> Result<(), String> {
        let (now, wall) = (self.runtime.monotonic(), self.runtime.now());
        let ends = (now + WRITES, wall + WRITES);
        let before = self.state.read().clone();
        if let Some(before) = before.as_ref().filter(|own| own.source.key_id == key_id) {
            let longer = State {
                ends,
                ..State::clone(before)
            };
            *self.state.write() = Some(Arc::new(longer));
            return Ok(());
        }
        let uid = self.runtime.uuid().to_string();
        let generated = self.generate(&uid).await;
        let (why, named) = match generated {
            Ok((dek, source)) if source.key_id == key_id => {
                self.take(State { dek, source, ends });
                return Ok(());
            }
            Ok((_, source)) => ("<nil>".to_owned(), source.key_id),
            Err(why) => (why, String::new()),
        };
        let (state_error, state_key, state_ends) = match &before {
            Some(own) => ("<nil>", own.source.key_id.as_str(), seconds(own.ends.1)),
            None => (NO_STATE, "", NO_TIME.to_owned()),
        };
        Err(format!(
            "failed to rotate DEK uid={uid:?}, useSeed=true, errState={state_error}, errGen={why}, statusKeyIDHash={:?}, encryptKeyIDHash={:?}, stateKeyIDHash={:?}, expirationTimestamp={state_ends}",
            hash_of_id(key_id),
            hash_of_id(&named),
            hash_of_id(state_key)
        ))
    }

    /// A new seed, and what the plugin made of it.
    async fn generate(&self, uid: &str) -> Result<(Arc<Dek>, Source), String> {
        let seed = Dek::new_seed();
        let request = EncryptRequest {
            plaintext: seed.to_vec(),
            uid: uid.to_owned(),
        };
        let answer = self.service.encrypt(request).await;
        let answer =
            answer.map_err(|status| format!("failed to encrypt DEK, error: {}", rpc_text(&status)))?;
        let source = Source::of_seed(answer)?;
        Ok((Arc::new(Dek::Seed(seed.to_vec())), source))
    }

    /// Writes with a seed from now on.
    fn take(&self, state: State) {
        let kept = self.deks.keep(state.source.hash(), Arc::clone(&state.dek));
        self.observers.measures.kept(&self.name, kept);
        tracing::info!(
            provider = self.name,
            key_id_hash = hash_of_id(&state.source.key_id),
            "a key of the KMS plugin is written with"
        );
        *self.state.write() = Some(Arc::new(state));
        self.observers.changes.send_modify(|changes| *changes += 1);
    }
}

/// The words of a plugin, cut where they are long.
fn words(text: &str) -> &str {
    &text[..text.floor_char_boundary(WORDS_BYTES_MAX)]
}
