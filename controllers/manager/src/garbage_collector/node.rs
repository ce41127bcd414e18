//! An object of the graph, and what it says of its owners.

use super::finalizers::waits_for_dependents;
use super::keys::{Key, Object};
use machinery_client::ApiResource;
use machinery_meta::{ObjectHeader, OwnerRef, Uid};
use std::sync::Arc;

/// An object.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) resource: Arc<ApiResource>,
    pub(super) header: Arc<ObjectHeader>,
    /// An API extension says that it is there.
    pub(super) of_extension: bool,
}

/// Standing of an object with a uid beside an earlier one with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precedence {
    /// The object as it is now.
    Same,
    /// Another's, which counts instead.
    Higher,
    /// Another's, which does not count.
    Lower,
}

impl Node {
    pub(super) fn owners(&self) -> &[OwnerRef] {
        &self.header.owners
    }

    /// Compares this with what is known of its uid. The server makes uids, so that what it says of one is true; of extensions
    /// the first is believed.
    pub(super) fn precedence(&self, known: &Self) -> Precedence {
        match (self.of_extension, known.of_extension) {
            _ if self.resource == known.resource => Precedence::Same,
            (false, false) => Precedence::Same,
            (false, true) => Precedence::Higher,
            (true, true) if self.resource.group == known.resource.group => Precedence::Same,
            (true, _) => Precedence::Lower,
        }
    }

    /// Reports whether a reference that has this object's uid is its to take away: any for the server's, and for an
    /// extension's those that mean it.
    pub(super) fn may_free(&self, reference: &OwnerRef, namespace: &str) -> bool {
        !self.of_extension || self.is_meant(reference, namespace)
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.header.is_deleting()
    }

    /// Reports whether an object waits for its dependents to go.
    pub(super) fn waits_for_dependents(&self) -> bool {
        waits_for_dependents(&self.header)
    }

    /// Reports whether this object is the owner that a reference from a namespace means.
    pub(super) fn is_meant(&self, owner: &OwnerRef, namespace: &str) -> bool {
        self.reaches(namespace)
            && *owner.kind == *self.resource.kind
            && *owner.name == *self.header.key.name
            && is_api_version(&self.resource, &owner.api_version)
    }

    /// Reports whether an object of this namespace may have this one as its owner.
    pub(super) fn reaches(&self, namespace: &str) -> bool {
        let own = &self.header.key.namespace;
        own.is_empty() || own == namespace
    }

    /// Reports whether this object's reference to `owner` makes the owner's foreground deletion wait.
    pub(super) fn blocks(&self, owner: &Uid) -> bool {
        self.owners()
            .iter()
            .any(|own| own.uid == *owner && own.block_owner_deletion)
    }

    pub(super) fn object(&self) -> Object {
        Object {
            namespace: self.header.key.namespace.clone(),
            uid: self.header.uid.clone(),
        }
    }

    /// The key of an attempt to delete it.
    pub(super) fn attempt_key(&self) -> Key {
        Key::Delete(self.object())
    }
}

fn is_api_version(resource: &ApiResource, text: &str) -> bool {
    let (group, version) = text.split_once('/').unwrap_or(("", text));
    *group == *resource.group && *version == *resource.version
}
