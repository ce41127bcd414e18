//! Texts one after the other in one piece of memory, with the end of each: a text of four bytes takes eight here, and forty
//! in a list of strings. [`TextMap`](crate::TextMap) and [`TextSet`](crate::TextSet) are made of them.

use serde::Deserializer;
use serde::de::{DeserializeSeed, Visitor};
use std::cmp::Ordering;
use std::fmt;

/// Texts by their place.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct PackedTexts {
    text: Box<str>,
    /// End of each text.
    ends: Box<[u32]>,
}

impl PackedTexts {
    /// The text at a place.
    ///
    /// # Panics
    /// A place beyond the last text.
    pub(crate) fn get(&self, place: usize) -> &str {
        let begin = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin as usize..self.ends[place] as usize]
    }

    /// Number of texts.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The place of a text among those at `0`, `step`, `2 * step` …, which must be in their order.
    pub(crate) fn search(&self, text: &str, step: usize) -> Option<usize> {
        let (mut from, mut to) = (0, self.len() / step);
        while from < to {
            let middle = from.midpoint(to);
            match self.get(step * middle).cmp(text) {
                Ordering::Equal => return Some(step * middle),
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
            }
        }
        None
    }
}

impl<T: AsRef<str>> FromIterator<T> for PackedTexts {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        let mut packing = PackingTexts::default();
        texts.into_iter().for_each(|text| packing.push(text.as_ref()));
        packing.build()
    }
}

/// Texts in the order in which they come.
#[derive(Default)]
pub(crate) struct PackingTexts {
    text: String,
    ends: Vec<u32>,
}

impl PackingTexts {
    /// Adds a text; nothing of four gigabytes comes through the API.
    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
    }

    /// The texts, in as many bytes as they take.
    pub(crate) fn build(self) -> PackedTexts {
        PackedTexts {
            text: self.text.into(),
            ends: self.ends.into(),
        }
    }
}

/// Reads one text and adds it.
impl<'de> DeserializeSeed<'de> for &mut PackingTexts {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for &mut PackingTexts {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.push(text);
        Ok(())
    }
}
