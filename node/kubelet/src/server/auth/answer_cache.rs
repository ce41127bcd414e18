//! Cached answers of the API server, each until it expires.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;

/// Answers that a cache holds; a cache with more that are still valid is cleared.
const ANSWERS_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct AnswerCache<K, V> {
    table: Mutex<HashMap<K, (Duration, V)>>,
}

impl<K, V> Default for AnswerCache<K, V> {
    fn default() -> Self {
        Self {
            table: Mutex::default(),
        }
    }
}

impl<K: Hash + Eq, V: Clone> AnswerCache<K, V> {
    pub(super) fn get(&self, key: &K, now: Duration) -> Option<V> {
        let table = self.table.lock();
        table
            .get(key)
            .filter(|(until, _)| *until > now)
            .map(|(_, value)| value.clone())
    }

    pub(super) fn put(&self, key: K, value: V, now: Duration, age: Duration) {
        let mut table = self.table.lock();
        table.retain(|_, (until, _)| *until > now);
        if table.len() >= ANSWERS_MAX {
            table.clear();
        }
        table.insert(key, (now + age, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_cache_expires_and_is_bounded() {
        let cache = AnswerCache::<String, bool>::default();
        let (age, at) = (Duration::from_secs(120), Duration::from_secs);
        cache.put("one".to_owned(), true, at(0), age);
        assert_eq!(cache.get(&"one".to_owned(), at(119)), Some(true));
        assert_eq!(cache.get(&"other".to_owned(), at(0)), None);
        cache.put("two".to_owned(), false, at(120), age);
        assert_eq!(cache.get(&"two".to_owned(), at(120)), Some(false));
        let held = || cache.table.lock().len();
        assert_eq!(held(), 1, "what is too old is gone");
        for number in 0..2 * ANSWERS_MAX {
            cache.put(number.to_string(), false, at(121), age);
            assert!(held() <= ANSWERS_MAX);
        }
    }
}
