//! Watch events and lists as they are sent, borrowed from their bytes.

use machinery_meta::{ObjectHeader, ObjectKey, Revision, Uid};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// Items of a page, from a server that knows no pages.
const MAX_ITEMS: usize = 1 << 16;

#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

#[derive(Deserialize)]
pub(super) struct Brief<'a> {
    #[serde(borrow)]
    pub(super) metadata: BriefMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BriefMeta<'a> {
    #[serde(default, borrow)]
    pub(super) resource_version: Cow<'a, str>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

impl BriefMeta<'_> {
    pub(super) fn ends_initial_events(&self) -> bool {
        let annotations = self.annotations.as_ref();
        annotations
            .and_then(|all| all.get("k8s.io/initial-events-end"))
            .is_some_and(|value| value == "true")
    }
}

/// An object of which it is read which one it is, and whether it is to go.
#[derive(Deserialize)]
struct Partial<'a> {
    #[serde(borrow)]
    metadata: PartialMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartialMeta<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default, borrow)]
    namespace: Cow<'a, str>,
    #[serde(default, borrow)]
    uid: Cow<'a, str>,
    #[serde(default, borrow)]
    resource_version: Cow<'a, str>,
    #[serde(default)]
    deletion_timestamp: Option<Box<str>>,
}

/// Reads name, namespace, uid, time of deletion and revision from an object's JSON; none where one of these cannot be read.
pub(super) fn partial_header(json: &str) -> Option<(ObjectHeader, Revision)> {
    let meta = serde_json::from_str::<Partial<'_>>(json).ok()?.metadata;
    let header = ObjectHeader {
        key: ObjectKey::new(meta.namespace, meta.name),
        uid: Uid(meta.uid.into_owned()),
        deletion_timestamp: meta.deletion_timestamp,
        ..ObjectHeader::default()
    };
    Some((header, meta.resource_version.parse().unwrap_or(Revision::ZERO)))
}

#[derive(Deserialize)]
pub(super) struct List<'a> {
    #[serde(borrow)]
    pub(super) metadata: ListMeta<'a>,
    #[serde(default, borrow, deserialize_with = "items")]
    pub(super) items: Vec<&'a RawValue>,
}

/// Items of a list, which may be `null`; more than any page has are none.
fn items<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<&'a RawValue>, D::Error> {
    struct Items;

    impl<'de> Visitor<'de> for Items {
        type Value = Vec<&'de RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the items of a list")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = all.next_element()? {
                if items.len() == MAX_ITEMS {
                    return Err(serde::de::Error::custom("more items than a list may have"));
                }
                items.push(item);
            }
            Ok(items)
        }
    }
    deserializer.deserialize_any(Items)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMeta<'a> {
    #[serde(default, borrow)]
    pub(super) resource_version: Cow<'a, str>,
    #[serde(default, rename = "continue", borrow)]
    pub(super) next: Cow<'a, str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_has_items_none_or_null_and_no_more_than_so_many() {
        let items = |text: &str| {
            let body = format!(r#"{{"metadata": {{"resourceVersion": "1"}}{text}}}"#);
            serde_json::from_str::<List<'_>>(&body)
                .map(|list| list.items.len())
                .ok()
        };
        assert_eq!(items(""), Some(0));
        assert_eq!(items(r#", "items": null"#), Some(0));
        assert_eq!(items(r#", "items": [{}, 1]"#), Some(2));
        let many = |number: usize| format!(r#", "items": [{}1]"#, "1,".repeat(number - 1));
        assert_eq!(items(&many(MAX_ITEMS)), Some(MAX_ITEMS));
        assert_eq!(items(&many(MAX_ITEMS + 1)), None);
    }
}
