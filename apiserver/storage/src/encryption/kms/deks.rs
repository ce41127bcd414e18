//! Decrypted keys of data, and those that the plugin still has to decrypt.
//!
//! A value whose key is not there notes its source; a task has the plugin decrypt what is noted. A thread that may block waits for
//! that, others get an error at once. A plugin that has not answered is not waited for again until it had a pause. A key that does
//! not open a value stays, and is decrypted again: the plugin may have answered wrongly, or the value is damaged.

use super::envelope::{Dek, Source, SourceHash};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Keys that are kept; the one that was not used for longest goes.
const MAX_KEPT: usize = 4096;
/// Sources that wait for the plugin.
const MAX_WANTED: usize = 256;
/// Pause before a source that could not be decrypted is tried again.
pub(super) const RETRY: Duration = Duration::from_secs(10);
/// Time after which a source that no read has needed is forgotten.
const FORGET: Duration = Duration::from_secs(600);
const NOT_YET: &str = "failed to decrypt DEK, error: the plugin has not answered yet";
const TOO_MANY: &str = "failed to decrypt DEK, error: too many keys wait for the plugin";

/// See the module.
#[derive(Default)]
pub(super) struct Deks {
    inner: Mutex<Inner>,
    /// For threads that wait, and for tasks that do.
    answered: Condvar,
    answers: watch::Sender<u64>,
    noted: Notify,
}

#[derive(Default)]
struct Inner {
    kept: HashMap<SourceHash, Kept>,
    wanted: HashMap<SourceHash, Wanted>,
    /// Counts uses.
    uses: u64,
    /// Time of the last call that was not answered.
    silent_at: Option<Duration>,
}

struct Kept {
    dek: Arc<Dek>,
    used: u64,
    /// Time at which it was last noted again, since it had not opened a value.
    doubted_at: Option<Duration>,
}

struct Wanted {
    source: Source,
    requested_at: Duration,
    failure: Option<(Duration, String)>,
}

/// Outcome of a call.
pub(super) enum Decrypted {
    Dek(Dek),
    /// The plugin or the key is wrong.
    Failed(String),
    /// The plugin has not answered.
    Silent(String),
}

impl Deks {
    /// Keeps a key; the number that is kept.
    pub(super) fn keep(&self, hash: SourceHash, dek: Arc<Dek>) -> usize {
        self.inner.lock().keep(hash, dek)
    }

    /// Returns the key, or the reason why it is missing, and requests a missing one from the plugin.
    pub(super) fn get_or_note(
        &self,
        hash: SourceHash,
        source: Source,
        now: Duration,
    ) -> Result<Arc<Dek>, String> {
        let mut inner = self.inner.lock();
        match inner.get(&hash) {
            Some(dek) => Ok(dek),
            None => Err(self.note(&mut inner, hash, source, now)),
        }
    }

    /// The same, after waiting for the plugin's answer where one can be expected.
    pub(super) fn get_or_wait(
        &self,
        hash: SourceHash,
        source: Source,
        (now, patience): (Duration, Duration),
    ) -> Result<Arc<Dek>, String> {
        let mut inner = self.inner.lock();
        if let Some(dek) = inner.get(&hash) {
            return Ok(dek);
        }
        let mut why = self.note(&mut inner, hash, source, now);
        loop {
            let is_silent = inner.silent_at.is_some_and(|at| now < at + RETRY);
            let is_waiting = inner.wanted.get(&hash).is_some_and(|own| own.failure.is_none());
            if is_silent || !is_waiting || self.answered.wait_for(&mut inner, patience).timed_out() {
                return inner.get(&hash).ok_or(why);
            }
            if let Some(dek) = inner.get(&hash) {
                return Ok(dek);
            }
            why = inner.failure(&hash).unwrap_or(why);
        }
    }

    /// Has the plugin decrypt a kept key again, after a pause since the last time.
    pub(super) fn doubt(&self, hash: SourceHash, source: Source, now: Duration) {
        let mut inner = self.inner.lock();
        let Some(kept) = inner.kept.get_mut(&hash) else {
            return;
        };
        if kept.doubted_at.is_none_or(|at| now >= at + RETRY) {
            kept.doubted_at = Some(now);
            self.note(&mut inner, hash, source, now);
        }
    }

    fn note(&self, inner: &mut Inner, hash: SourceHash, source: Source, now: Duration) -> String {
        if let Some(known) = inner.wanted.get_mut(&hash) {
            known.requested_at = now;
        } else if inner.wanted.len() >= MAX_WANTED {
            return TOO_MANY.to_owned();
        } else {
            let wanted = Wanted {
                source,
                requested_at: now,
                failure: None,
            };
            inner.wanted.insert(hash, wanted);
            self.noted.notify_one();
        }
        inner.failure(&hash).unwrap_or_else(|| NOT_YET.to_owned())
    }

    /// Sources to be decrypted now.
    pub(super) fn due(&self, now: Duration) -> Vec<(SourceHash, Source)> {
        let mut inner = self.inner.lock();
        inner.wanted.retain(|_, own| now < own.requested_at + FORGET);
        let is_due = |own: &Wanted| own.failure.as_ref().is_none_or(|(at, _)| now >= *at + RETRY);
        let due = inner.wanted.iter().filter(|(_, own)| is_due(own));
        due.map(|(hash, own)| (*hash, own.source.clone())).collect()
    }

    /// Waits until a source is noted.
    pub(super) async fn noted(&self) {
        self.noted.notified().await;
    }

    /// Takes the plugin's answer; the number of keys that are kept, and whether values may open that did not before.
    pub(super) fn answer(&self, hash: SourceHash, answer: Decrypted, now: Duration) -> (usize, bool) {
        let mut inner = self.inner.lock();
        let is_news = match answer {
            Decrypted::Dek(dek) => {
                inner.silent_at = None;
                inner.wanted.remove(&hash);
                let is_news = inner.kept.get(&hash).is_none_or(|kept| !kept.dek.is_same(&dek));
                inner.keep(hash, Arc::new(dek));
                is_news
            }
            Decrypted::Failed(why) => inner.fail(&hash, now, why),
            Decrypted::Silent(why) => {
                inner.silent_at = Some(now);
                inner.fail(&hash, now, why)
            }
        };
        let count = inner.kept.len();
        drop(inner);
        self.answered.notify_all();
        self.answers.send_modify(|answers| *answers += 1);
        (count, is_news)
    }

    /// Waits until the plugin has answered for each of these, however.
    pub(super) async fn settled(&self, hashes: &[SourceHash]) {
        let mut answers = self.answers.subscribe();
        while self.is_waiting(hashes) {
            if answers.changed().await.is_err() {
                return;
            }
        }
    }

    fn is_waiting(&self, hashes: &[SourceHash]) -> bool {
        let inner = self.inner.lock();
        let mut wanted = hashes.iter().filter_map(|hash| inner.wanted.get(hash));
        wanted.any(|own| own.failure.is_none())
    }
}

impl Inner {
    fn get(&mut self, hash: &SourceHash) -> Option<Arc<Dek>> {
        self.uses += 1;
        let kept = self.kept.get_mut(hash)?;
        kept.used = self.uses;
        Some(Arc::clone(&kept.dek))
    }

    fn keep(&mut self, hash: SourceHash, dek: Arc<Dek>) -> usize {
        self.uses += 1;
        let kept = Kept {
            dek,
            used: self.uses,
            // A pause goes on whatever the answer was.
            doubted_at: self.kept.get(&hash).and_then(|before| before.doubted_at),
        };
        self.kept.insert(hash, kept);
        if self.kept.len() > MAX_KEPT {
            let oldest = self.kept.iter().min_by_key(|(_, own)| own.used);
            let oldest = oldest.map(|(hash, _)| *hash);
            if let Some(oldest) = oldest {
                self.kept.remove(&oldest);
            }
        }
        self.kept.len()
    }

    fn failure(&self, hash: &SourceHash) -> Option<String> {
        let (_, why) = self.wanted.get(hash)?.failure.as_ref()?;
        Some(why.clone())
    }

    /// Notes a failure, which is no news for any value.
    fn fail(&mut self, hash: &SourceHash, now: Duration, why: String) -> bool {
        if let Some(own) = self.wanted.get_mut(hash) {
            own.failure = Some((now, why));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encryption::kms::api::EncryptResponse;
    use std::collections::BTreeMap;

    const NOW: Duration = Duration::from_secs(1000);

    fn source(number: usize) -> (SourceHash, Source) {
        let answer = EncryptResponse {
            ciphertext: number.to_be_bytes().to_vec(),
            key_id: "one".to_owned(),
            annotations: BTreeMap::new(),
        };
        let source = Source::of_seed(answer).unwrap();
        (source.hash(), source)
    }

    fn note(deks: &Deks, number: usize, now: Duration) -> Result<(), String> {
        let (hash, source) = source(number);
        deks.get_or_note(hash, source, now).map(drop)
    }

    fn seed() -> Dek {
        Dek::Seed(vec![0; 32])
    }

    #[test]
    fn kms_keys_that_are_kept_and_wanted_are_bounded() {
        let deks = Deks::default();
        for number in 0..MAX_WANTED {
            assert_eq!(note(&deks, number, NOW), Err(NOT_YET.to_owned()));
        }
        assert_eq!(note(&deks, MAX_WANTED, NOW), Err(TOO_MANY.to_owned()));
        assert_eq!(deks.due(NOW).len(), MAX_WANTED);
        let (first, _) = source(0);
        assert_eq!(deks.keep(first, Arc::new(seed())), 1);
        for number in 1..MAX_KEPT + 9 {
            assert!(
                deks.inner.lock().get(&first).is_some(),
                "the one that is used stays"
            );
            deks.keep(source(number).0, Arc::new(seed()));
        }
        assert_eq!(deks.keep(first, Arc::new(seed())), MAX_KEPT);
        assert!(deks.inner.lock().get(&source(1).0).is_none());
    }

    #[test]
    fn kms_key_that_failed_is_due_after_a_pause_and_forgotten_where_nobody_asks() {
        let deks = Deks::default();
        note(&deks, 1, NOW).unwrap_err();
        let (hash, wanted) = source(1);
        deks.answer(hash, Decrypted::Failed("no".to_owned()), NOW);
        assert_eq!(note(&deks, 1, NOW), Err("no".to_owned()));
        assert!(deks.due(NOW + RETRY / 2).is_empty());
        assert_eq!(deks.due(NOW + RETRY).len(), 1);
        assert!(deks.due(NOW + FORGET).is_empty());
        assert_eq!(note(&deks, 1, NOW), Err(NOT_YET.to_owned()));
        deks.answer(hash, Decrypted::Dek(seed()), NOW);
        assert!(deks.get_or_note(hash, wanted, NOW).is_ok());
        assert!(deks.due(NOW).is_empty());
    }

    /// With a patience that would end the test late, if at all.
    #[test]
    fn kms_plugin_that_was_silent_is_not_waited_for() {
        let deks = Deks::default();
        note(&deks, 1, NOW).unwrap_err();
        deks.answer(source(1).0, Decrypted::Silent("late".to_owned()), NOW);
        let (hash, wanted) = source(2);
        let patience = (NOW + RETRY / 2, Duration::from_secs(1 << 20));
        let waited = deks.get_or_wait(hash, wanted, patience);
        assert_eq!(waited.err(), Some(NOT_YET.to_owned()));
    }
}
