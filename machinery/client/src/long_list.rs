//! Lists that a user makes as long as an object may be.

use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;
use std::marker::PhantomData;

/// Items that are kept as values; what controllers and charts write has fewer.
const SHORT: usize = 16;

/// A list in a projection: values while it is short, JSON beyond. As values a list may take ten times what is stored (a
/// toleration of 22 bytes took 112 and its texts), and what is stored is all that a tenant's share bounds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LongList<T>(Kept<T>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Kept<T> {
    Values(Box<[T]>),
    Json(Box<str>),
}

impl<T> Default for LongList<T> {
    fn default() -> Self {
        Self(Kept::Values(Box::default()))
    }
}

impl<T: Clone + DeserializeOwned> LongList<T> {
    /// The items. Those of a long list are decoded at each call: callers keep them for as long as they look at them.
    pub fn items(&self) -> Cow<'_, [T]> {
        match &self.0 {
            Kept::Values(values) => Cow::Borrowed(values),
            // It was made from items: there is nothing in it that could not be read.
            Kept::Json(json) => Cow::Owned(crate::json::from_str(json).unwrap_or_default()),
        }
    }

    /// A number that the list has at most, without decoding it: an item takes four bytes of JSON at least.
    pub fn most_items(&self) -> usize {
        match &self.0 {
            Kept::Values(values) => values.len(),
            Kept::Json(json) => json.len() / 4,
        }
    }

    /// The items, those of a long list decoded into the cell by the first call, which passes to `on_decoding` their number.
    pub fn items_once<'a>(
        &'a self,
        decoded: &'a OnceCell<Box<[T]>>,
        on_decoding: impl FnOnce(usize),
    ) -> &'a [T] {
        if let Kept::Values(values) = &self.0 {
            return values;
        }
        decoded.get_or_init(|| {
            let items: Box<[T]> = self.items().into_owned().into();
            on_decoding(items.len());
            items
        })
    }
}

impl<'de, T: Deserialize<'de> + Serialize> Deserialize<'de> for LongList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

struct Items<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Serialize> Visitor<'de> for Items<T> {
    type Value = LongList<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<LongList<T>, A::Error> {
        let mut values: Vec<T> = Vec::new();
        while values.len() < SHORT {
            match items.next_element()? {
                Some(item) => values.push(item),
                None => return Ok(LongList(Kept::Values(values.into()))),
            }
        }
        let Some(more) = items.next_element::<T>()? else {
            return Ok(LongList(Kept::Values(values.into())));
        };
        let error = <A::Error as serde::de::Error>::custom::<serde_json::Error>;
        values.push(more);
        let mut json = serde_json::to_string(&values).map_err(error)?;
        drop(values);
        json.pop();
        while let Some(item) = items.next_element::<T>()? {
            json.push(',');
            json.push_str(&serde_json::to_string(&item).map_err(error)?);
        }
        json.push(']');
        Ok(LongList(Kept::Json(json.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Toleration;
    use std::cell::Cell;

    #[test]
    fn long_list_has_all_items_and_takes_no_more_than_was_written() {
        for count in [0, 1, SHORT - 1, SHORT, SHORT + 1, SHORT + 2, 3_000] {
            let items: Vec<String> = (0..count)
                .map(|number| format!(r#"{{"key":"k{number}","operator":"Exists"}}"#))
                .collect();
            let json = format!("[{}]", items.join(","));
            let list: LongList<Toleration> = serde_json::from_str(&json).unwrap();
            let plain: Vec<Toleration> = serde_json::from_str(&json).unwrap();
            assert_eq!(&*list.items(), plain, "{count}");
            let (cell, decoded) = (OnceCell::new(), Cell::new(0));
            for _ in 0..2 {
                let once = list.items_once(&cell, |items| decoded.set(decoded.get() + items));
                assert_eq!(once, plain, "{count}");
            }
            assert_eq!(decoded.get(), if count > SHORT { count } else { 0 });
            match list.0 {
                Kept::Values(values) => assert_eq!(values.len(), count.min(SHORT)),
                Kept::Json(own) => assert!(count > SHORT && own.len() <= json.len(), "{count}"),
            }
        }
        assert!(serde_json::from_str::<LongList<Toleration>>(r#"[{"key":1}]"#).is_err());
    }
}
