//! Sets of texts, packed: a value of four bytes takes eight here, and forty in a list of strings.

use crate::packed_texts::{PackedTexts, PackingTexts};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// Texts in their order, none twice: values of a selector's requirement. It is made once and read often.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct TextSet {
    texts: PackedTexts,
}

impl TextSet {
    /// Reports whether a text is there.
    pub fn contains(&self, text: &str) -> bool {
        self.texts.search(text, 1).is_some()
    }

    /// Texts in their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|place| self.texts.get(place))
    }

    /// The only text, where there is one.
    pub fn single(&self) -> Option<&str> {
        (self.len() == 1).then(|| self.texts.get(0))
    }

    /// Number of texts.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Reports whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn of_texts(texts: PackedTexts) -> Self {
        let raw = Self { texts };
        if raw.iter().is_sorted_by(|left, right| left < right) {
            return raw;
        }
        let mut texts: Vec<&str> = raw.iter().collect();
        texts.sort_unstable();
        texts.dedup();
        Self {
            texts: texts.into_iter().collect(),
        }
    }
}

impl fmt::Debug for TextSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl<T: AsRef<str>> FromIterator<T> for TextSet {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        Self::of_texts(texts.into_iter().collect())
    }
}

impl<'de> Deserialize<'de> for TextSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Texts)
    }
}

struct Texts;

impl<'de> Visitor<'de> for Texts {
    type Value = TextSet;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<TextSet, A::Error> {
        let mut packing = PackingTexts::default();
        while texts.next_element_seed(&mut packing)?.is_some() {}
        Ok(TextSet::of_texts(packing.build()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::value::{Error, SeqDeserializer};
    use std::collections::BTreeSet;

    #[test]
    fn text_set_answers_as_a_tree_does() {
        for texts in [&[][..], &["a"], &["b", "a", "", "ab"], &["a", "c", "a", "b", "c"]] {
            let tree: BTreeSet<&str> = texts.iter().copied().collect();
            let list = SeqDeserializer::<_, Error>::new(texts.iter().copied());
            let (read, json) = (TextSet::deserialize(list).unwrap(), format!("{texts:?}"));
            let set: TextSet = texts.iter().collect();
            assert_eq!(set, read, "{json}");
            assert!(set.iter().eq(tree.iter().copied()), "{json}");
            assert_eq!((set.len(), set.is_empty()), (tree.len(), tree.is_empty()));
            assert_eq!(set.single(), (tree.len() == 1).then_some("a"));
            for text in ["", "a", "aa", "ab", "b", "c", "d"] {
                assert_eq!(set.contains(text), tree.contains(text), "{json} {text}");
            }
        }
    }

    #[test]
    fn text_set_takes_about_what_was_written() {
        let before = machinery_fuzz::resident();
        let set: TextSet = (0..10_000).rev().map(|number| format!("{number:04}")).collect();
        let taken = machinery_fuzz::resident() - before;
        assert!(set.len() == 10_000 && taken <= 90_000, "{taken} bytes");
    }
}
