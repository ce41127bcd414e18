//! Values that a user makes as large as an object may be.

use crate::json;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::cell::OnceCell;

/// Bytes of JSON that are kept as a value; what controllers and charts write is shorter.
const SHORT: usize = 1024;

/// A value in a projection: decoded while its JSON is short, the JSON itself beyond. Decoded it may take sixteen times what
/// is stored, and what is stored is all that a tenant's share bounds. For lists there is [`LongList`](crate::LongList).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Folded<T>(Kept<T>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Kept<T> {
    Value(T),
    Json(Box<str>),
}

impl<T: Default> Default for Folded<T> {
    fn default() -> Self {
        Self(Kept::Value(T::default()))
    }
}

impl<T> Folded<T> {
    /// The length of its JSON where that is what is kept.
    pub fn json_bytes(&self) -> Option<usize> {
        match &self.0 {
            Kept::Value(_) => None,
            Kept::Json(json) => Some(json.len()),
        }
    }
}

impl<T: Clone + Default + DeserializeOwned> Folded<T> {
    /// The value. A long one is decoded at each call: callers keep it for as long as they look at it.
    pub fn get(&self) -> Cow<'_, T> {
        match &self.0 {
            Kept::Value(value) => Cow::Borrowed(value),
            Kept::Json(json) => Cow::Owned(decoded(json)),
        }
    }

    /// The value, a long one decoded into the cell by the first call, which passes to `on_decoding` the length of its JSON.
    pub fn get_once<'a>(&'a self, cell: &'a OnceCell<T>, on_decoding: impl FnOnce(usize)) -> &'a T {
        match &self.0 {
            Kept::Value(value) => value,
            Kept::Json(json) => cell.get_or_init(|| {
                on_decoding(json.len());
                decoded(json)
            }),
        }
    }
}

/// Decodes text that was decoded when it came: there is nothing in it that could not be read.
fn decoded<T: Default + DeserializeOwned>(json: &str) -> T {
    json::from_str(json).unwrap_or_default()
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Folded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let value = json::from_str(json.get()).map_err(D::Error::custom)?;
        Ok(Self(if json.get().len() <= SHORT {
            Kept::Value(value)
        } else {
            Kept::Json(json.into())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn folded_value_is_what_was_written_and_long_ones_are_decoded_once() {
        for count in [0, 1, 100, 300] {
            let plain: Vec<u32> = (1_000..1_000 + count).collect();
            let json = serde_json::to_string(&plain).unwrap();
            let folded: Folded<Vec<u32>> = serde_json::from_str(&json).unwrap();
            assert_eq!(*folded.get(), plain);
            let long = json.len() > SHORT;
            assert_eq!(folded.json_bytes(), long.then_some(json.len()), "{count}");
            let (cell, read) = (OnceCell::new(), Cell::new(0));
            for _ in 0..2 {
                assert_eq!(
                    *folded.get_once(&cell, |bytes| read.set(read.get() + bytes)),
                    plain
                );
            }
            assert_eq!(read.get(), if long { json.len() } else { 0 });
        }
        for wrong in ["[true]".to_owned(), format!("[{}true]", "1,".repeat(SHORT))] {
            assert!(serde_json::from_str::<Folded<Vec<u32>>>(&wrong).is_err());
        }
    }
}
