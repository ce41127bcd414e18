//! Answers of a plugin that are still good, within bounds.
//!
//! The namespace whose pods' questions hold the most loses its oldest where there is no room: the plugin is run for it again.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::account::Account;
use super::plugin::Answer;

/// Answers that are kept.
const ANSWERS_MAX: usize = 1_024;
/// Bytes of all of them. A longer answer than this is not kept.
const ANSWERS_BYTES_MAX: usize = 8 << 20;
/// Bytes of an entry beside its texts, about.
const ENTRY_BYTES: usize = 256;

/// Images and account that an answer counts for.
pub(super) type AnswerKey = (String, Option<AccountKey>);

/// An account, by the parts on which an answer depends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct AccountKey {
    names: [String; 3],
    annotations: Vec<(String, String)>,
    token_hash: Option<String>,
}

impl From<&Account> for AccountKey {
    fn from(account: &Account) -> Self {
        let own = &account.credential;
        Self {
            names: [own.namespace.clone(), own.name.clone(), own.uid.clone()],
            annotations: account.data.annotations.clone().into_iter().collect(),
            token_hash: account.token_hash.clone(),
        }
    }
}

impl AccountKey {
    fn bytes(&self) -> usize {
        let names = self.names.iter().map(String::len);
        let annotations = self
            .annotations
            .iter()
            .map(|(key, value)| key.len() + value.len());
        names.chain(annotations).sum()
    }
}

struct Kept {
    answer: Answer,
    until: Duration,
    bytes: usize,
    /// Namespace of the pod that it was given for.
    namespace: String,
    /// Greater than those of all answers before it.
    number: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Answers {
    kept: HashMap<AnswerKey, Kept>,
    last: u64,
}

impl Answers {
    /// The answer for these images and account, where it is still good.
    pub(super) fn get(&self, key: &AnswerKey, now: Duration) -> Option<&Answer> {
        let kept = self.kept.get(key)?;
        (kept.until >= now).then_some(&kept.answer)
    }

    /// Keeps an answer until a time.
    pub(super) fn keep(
        &mut self,
        key: AnswerKey,
        answer: &Answer,
        namespace: &str,
        [now, until]: [Duration; 2],
    ) {
        let account = key.1.as_ref().map_or(0, AccountKey::bytes);
        let texts = answer
            .auth
            .iter()
            .map(|(registry, auth)| ENTRY_BYTES + registry.len() + auth.username.len() + auth.password.len());
        let bytes = ENTRY_BYTES + key.0.len() + account + namespace.len() + texts.sum::<usize>();
        if bytes > ANSWERS_BYTES_MAX {
            return;
        }
        self.kept.retain(|_, kept| kept.until >= now);
        self.last += 1;
        let kept = Kept {
            answer: answer.clone(),
            until,
            bytes,
            namespace: namespace.to_owned(),
            number: self.last,
        };
        self.kept.insert(key, kept);
        while self.kept.len() > ANSWERS_MAX || self.bytes() > ANSWERS_BYTES_MAX {
            self.remove_oldest_of_the_greatest();
        }
    }

    fn bytes(&self) -> usize {
        self.kept.values().map(|kept| kept.bytes).sum()
    }

    fn remove_oldest_of_the_greatest(&mut self) {
        let mut shares: BTreeMap<&str, usize> = BTreeMap::new();
        let by_bytes = self.bytes() > ANSWERS_BYTES_MAX;
        for kept in self.kept.values() {
            *shares.entry(&kept.namespace).or_default() += if by_bytes { kept.bytes } else { 1 };
        }
        let greatest = shares.into_iter().max_by_key(|(_, share)| *share);
        let Some((greatest, _)) = greatest else { return };
        let own = self.kept.iter().filter(|(_, kept)| kept.namespace == greatest);
        let oldest = own
            .min_by_key(|(_, kept)| kept.number)
            .map(|(key, _)| key.clone());
        if let Some(oldest) = oldest {
            self.kept.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plugin::CacheKeyType;
    use super::*;
    use node_cri::v1::AuthConfig;

    const NOW: Duration = Duration::ZERO;

    fn answer(password_bytes: usize) -> Answer {
        let auth = AuthConfig {
            password: "p".repeat(password_bytes),
            ..AuthConfig::default()
        };
        Answer {
            key_type: CacheKeyType::Image,
            cache_nanoseconds: None,
            auth: vec![("registry.test".to_owned(), auth)],
        }
    }

    fn key(image: &str) -> AnswerKey {
        (image.to_owned(), None)
    }

    #[test]
    fn credential_plugin_answers_of_a_namespace_take_no_room_of_others() {
        for (count, bytes) in [(ANSWERS_MAX + 8, 1), (20, 1 << 20)] {
            let mut answers = Answers::default();
            let mut keep = |image: &str, namespace: &str, bytes: usize| {
                answers.keep(key(image), &answer(bytes), namespace, [NOW, NOW]);
            };
            keep("first", "shop", 1);
            for number in 0..count {
                keep(&number.to_string(), "evil", bytes);
            }
            keep("second", "shop", 1);
            let is_kept = |image: &str| answers.get(&key(image), NOW).is_some();
            assert!(is_kept("first") && is_kept("second"), "{count}");
            assert!(is_kept(&(count - 1).to_string()), "the newest is kept");
            assert!(!is_kept("0"), "the oldest is not");
            assert!(answers.kept.len() <= ANSWERS_MAX && answers.bytes() <= ANSWERS_BYTES_MAX);
        }
    }

    #[test]
    fn credential_plugin_answers_are_kept_as_long_as_they_are_good() {
        let mut answers = Answers::default();
        let at = Duration::from_secs;
        answers.keep(key("a"), &answer(1), "shop", [at(0), at(10)]);
        assert!(answers.get(&key("a"), at(10)).is_some());
        assert!(answers.get(&key("a"), at(11)).is_none());
        answers.keep(key("b"), &answer(1), "shop", [at(11), at(20)]);
        assert_eq!(answers.kept.len(), 1);
        answers.keep(key("c"), &answer(ANSWERS_BYTES_MAX), "shop", [at(11), at(20)]);
        assert_eq!(answers.kept.len(), 1, "too long a one");
    }
}
