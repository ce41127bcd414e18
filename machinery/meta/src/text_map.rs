//! Maps of texts, packed: a label of eight bytes of JSON takes ten here, and sixty in a tree of boxes.

use crate::packed_texts::{PackedTexts, PackingTexts};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Names and values in the order of the names, none twice: labels, annotations, resources. It is made once and read often.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct TextMap {
    /// Each name, and its value after it.
    parts: PackedTexts,
}

impl TextMap {
    /// The value under a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let place = self.parts.search(name, 2)?;
        Some(self.parts.get(place + 1))
    }

    /// Names and values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        (0..self.len()).map(|pair| (self.parts.get(2 * pair), self.parts.get(2 * pair + 1)))
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.parts.len() / 2
    }

    /// Reports whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sorts pairs by name; of names that came twice the last value stays.
    fn of_pairs(parts: PackedTexts) -> Self {
        let raw = Self { parts };
        if raw.iter().is_sorted_by(|left, right| left.0 < right.0) {
            return raw;
        }
        let mut pairs: Vec<(&str, &str)> = raw.iter().collect();
        pairs.reverse();
        // Stable: the last value of a name is the first one now.
        pairs.sort_by_key(|(name, _)| *name);
        pairs.dedup_by_key(|(name, _)| *name);
        let parts = pairs.into_iter().flat_map(|(name, value)| [name, value]);
        Self {
            parts: parts.collect(),
        }
    }
}

impl fmt::Debug for TextMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for TextMap {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut packing = PackingTexts::default();
        for (name, value) in pairs {
            packing.push(name.as_ref());
            packing.push(value.as_ref());
        }
        Self::of_pairs(packing.build())
    }
}

impl Serialize for TextMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for TextMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Pairs)
    }
}

struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = TextMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<TextMap, A::Error> {
        let mut packing = PackingTexts::default();
        while pairs.next_key_seed(&mut packing)?.is_some() {
            pairs.next_value_seed(&mut packing)?;
        }
        Ok(TextMap::of_pairs(packing.build()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_fuzz::resident;
    use std::collections::BTreeMap;

    #[test]
    fn text_map_answers_as_a_tree_does() {
        for pairs in [
            &[][..],
            &[("a", "1")],
            &[("b", "2"), ("a", "1"), ("", ""), ("ab", "")],
            &[("a", "1"), ("c", "3"), ("a", "2"), ("b", ""), ("a", "4")],
        ] {
            let tree: BTreeMap<&str, &str> = pairs.iter().copied().collect();
            let map: TextMap = pairs.iter().copied().collect();
            assert_eq!(map.iter().collect::<BTreeMap<_, _>>(), tree);
            assert!(map.iter().map(|(name, _)| name).is_sorted());
            assert_eq!(
                (map.len(), map.is_empty()),
                (tree.len(), tree.is_empty()),
                "{pairs:?}"
            );
            for name in ["", "a", "aa", "ab", "b", "c", "d"] {
                assert_eq!(map.get(name), tree.get(name).copied(), "{pairs:?} {name}");
            }
            assert_eq!(map, tree.iter().collect());
        }
    }

    #[test]
    fn text_map_takes_about_what_was_written() {
        let before = resident();
        let map: TextMap = (0..10_000).map(|number| (format!("{number:04}"), "")).collect();
        assert_eq!(map.len(), 10_000);
        let json = 10_000 * r#""0000":"","#.len();
        assert!(resident() - before < json * 3 / 2, "{}", resident() - before);
    }
}
