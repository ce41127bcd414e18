//! Words that many objects share: kinds and API versions of owners.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Words that a thread remembers; a cluster has a few hundred kinds.
const REMEMBERED: usize = 1024;
/// Bytes of a word that is remembered.
const LONGEST: usize = 128;

thread_local! {
    static KNOWN: RefCell<HashSet<Arc<str>>> = RefCell::default();
}

/// A text that takes memory once for all that have it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Word(Arc<str>);

impl Word {
    /// The one copy of this text that the thread knows. A long text is a copy of its own.
    pub fn of(text: &str) -> Self {
        if text.len() > LONGEST {
            return Self(text.into());
        }
        KNOWN.with_borrow_mut(|known| {
            if let Some(own) = known.get(text) {
                return Self(Arc::clone(own));
            }
            if known.len() >= REMEMBERED {
                known.clear();
            }
            let own: Arc<str> = text.into();
            known.insert(Arc::clone(&own));
            Self(own)
        })
    }
}

impl Default for Word {
    fn default() -> Self {
        Self::of("")
    }
}

impl Deref for Word {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        Self::of(text)
    }
}

impl From<String> for Word {
    fn from(text: String) -> Self {
        Self::of(&text)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = Word;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E>(self, text: &str) -> Result<Word, E> {
                Ok(Word::of(text))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_shared_while_they_are_short_and_few() {
        let (one, other) = (Word::of("ReplicaSet"), Word::from("ReplicaSet".to_owned()));
        assert!(Arc::ptr_eq(&one.0, &other.0));
        let long = "x".repeat(LONGEST + 1);
        assert!(!Arc::ptr_eq(&Word::of(&long).0, &Word::of(&long).0));
        for number in 0..3 * REMEMBERED {
            let text = format!("k{number}");
            assert_eq!(*Word::of(&text), *text);
            assert!(KNOWN.with_borrow(|known| known.len() <= REMEMBERED));
        }
        assert_eq!(*one, *"ReplicaSet");
    }
}
