//! The small parsed header that stands beside the encoded bytes of an object.

use crate::fields::Fields;
use crate::key::{ObjectKey, Uid};
use crate::word::Word;

/// Fields of an object for generic code, selectors and dispatch, without decoding it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectHeader {
    pub key: ObjectKey,
    pub uid: Uid,
    pub generation: i64,
    /// Sorted by key.
    pub labels: Vec<(Box<str>, Box<str>)>,
    pub owners: Vec<OwnerRef>,
    pub finalizers: Vec<Box<str>>,
    /// RFC 3339, second precision.
    pub creation_timestamp: Option<Box<str>>,
    pub deletion_timestamp: Option<Box<str>>,
    /// Selectable fields of the kind by path; `metadata.name` and `metadata.namespace` are answered from `key`.
    pub fields: Fields,
}

/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnerRef {
    pub api_version: Word,
    pub kind: Word,
    pub name: Box<str>,
    pub uid: Uid,
    pub controller: bool,
    pub block_owner_deletion: bool,
}

impl OwnerRef {
    /// Returns the length of its texts, each of which users may make as long as an object.
    pub fn text_bytes(&self) -> usize {
        self.api_version.len() + self.kind.len() + self.name.len() + self.uid.0.len()
    }
}

impl ObjectHeader {
    pub fn label(&self, key: &str) -> Option<&str> {
        let found = self
            .labels
            .binary_search_by(|(own, _)| own.as_ref().cmp(key))
            .ok()?;
        Some(&self.labels[found].1)
    }

    /// The value of a selectable field, metadata included.
    pub fn field(&self, path: &str) -> Option<&str> {
        match path {
            "metadata.name" => Some(&self.key.name),
            "metadata.namespace" => Some(&self.key.namespace),
            _ => self.fields.get(path),
        }
    }

    /// Returns about how many bytes of memory it takes.
    pub fn footprint(&self) -> usize {
        /// A short text in a block of its own.
        const BLOCK: usize = 32;
        let labels = self
            .labels
            .iter()
            .map(|(key, value)| key.len() + value.len() + 2 * BLOCK);
        let finalizers = self.finalizers.iter().map(|finalizer| finalizer.len() + BLOCK);
        let owner = |owner: &OwnerRef| size_of::<OwnerRef>() + owner.text_bytes() + 4 * BLOCK;
        size_of::<Self>()
            + self.key.namespace.len()
            + self.key.name.len()
            + 4 * BLOCK
            + labels.sum::<usize>()
            + finalizers.sum::<usize>()
            + self.owners.iter().map(owner).sum::<usize>()
            + self.fields.packed_bytes()
    }

    pub fn controller(&self) -> Option<&OwnerRef> {
        self.owners.iter().find(|owner| owner.controller)
    }

    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_footprint_counts_each_text_of_its_owners() {
        let footprint = |owner: OwnerRef| {
            let owners = vec![owner];
            ObjectHeader {
                owners,
                ..ObjectHeader::default()
            }
            .footprint()
        };
        let (long, empty) = (|| "m".repeat(1_000), footprint(OwnerRef::default()));
        let fields: [fn(&mut OwnerRef, String); 4] = [
            |owner, text| owner.api_version = text.into(),
            |owner, text| owner.kind = text.into(),
            |owner, text| owner.name = text.into(),
            |owner, text| owner.uid.0 = text,
        ];
        for field in fields {
            let mut owner = OwnerRef::default();
            field(&mut owner, long());
            assert_eq!(footprint(owner), empty + 1_000);
        }
    }

    #[test]
    fn owners_share_the_words_of_their_kinds() {
        let owner = |number: usize| OwnerRef {
            api_version: "apps.example.com/v1".into(),
            kind: "ReplicaSetOfSomeSort".into(),
            name: format!("web-{number:04}").into(),
            uid: Uid(format!("5c1f9a3e-0000-4000-8000-{number:012}")),
            ..OwnerRef::default()
        };
        let first = owner(0);
        let before = machinery_fuzz::resident();
        let owners: Vec<OwnerRef> = (1..=1_000).map(owner).collect();
        let each = (machinery_fuzz::resident() - before) / owners.len();
        // The reference itself, its name and its uid.
        assert!(each <= size_of::<OwnerRef>() + 16 + 48, "{each}");
        assert_eq!(owners[0].kind, first.kind);
    }
}
