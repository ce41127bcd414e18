//! Maps of texts, packed: a label of eight bytes of JSON takes ten here, and sixty in a tree of boxes.

use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Names and values in the order of the names, none twice: labels, annotations, resources. It is made once and read often.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct TextMap {
    /// Each name, and its value after it.
    text: Box<str>,
    /// End of each text.
    ends: Box<[u32]>,
}

impl TextMap {
    /// The value under a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = from.midpoint(to);
            match self.part(2 * middle).cmp(name) {
                std::cmp::Ordering::Equal => return Some(self.part(2 * middle + 1)),
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        None
    }

    /// Names and values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        (0..self.len()).map(|place| (self.part(2 * place), self.part(2 * place + 1)))
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.ends.len() / 2
    }

    /// Reports whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn part(&self, place: usize) -> &str {
        let begin = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin as usize..self.ends[place] as usize]
    }
}

impl fmt::Debug for TextMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Parts in the order in which they came.
#[derive(Default)]
struct Builder {
    text: String,
    ends: Vec<u32>,
}

impl Builder {
    /// Ends a part; no map of a gigabyte comes through the API.
    fn end(&mut self) {
        self.ends.push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
    }

    /// Sorts by name; of names that came twice the last value stays.
    fn build(self) -> TextMap {
        let raw = TextMap {
            text: self.text.into(),
            ends: self.ends.into(),
        };
        let names = || (0..raw.len()).map(|place| raw.part(2 * place));
        if names().is_sorted_by(|left, right| left < right) {
            return raw;
        }
        let mut places: Vec<usize> = (0..raw.len()).collect();
        places.sort_by(|left, right| {
            let by_name = raw.part(2 * left).cmp(raw.part(2 * right));
            by_name.then(right.cmp(left))
        });
        places.dedup_by(|one, other| raw.part(2 * *one) == raw.part(2 * *other));
        let mut sorted = Self::default();
        for part in places.into_iter().flat_map(|place| [2 * place, 2 * place + 1]) {
            sorted.text.push_str(raw.part(part));
            sorted.end();
        }
        TextMap {
            text: sorted.text.into(),
            ends: sorted.ends.into(),
        }
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for TextMap {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut builder = Builder::default();
        for (name, value) in pairs {
            builder.text.push_str(name.as_ref());
            builder.end();
            builder.text.push_str(value.as_ref());
            builder.end();
        }
        builder.build()
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
        let mut builder = Builder::default();
        while pairs.next_key_seed(Part(&mut builder))?.is_some() {
            pairs.next_value_seed(Part(&mut builder))?;
        }
        Ok(builder.build())
    }
}

/// One text, put where the others are.
struct Part<'a>(&'a mut Builder);

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Part<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.text.push_str(text);
        self.0.end();
        Ok(())
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
