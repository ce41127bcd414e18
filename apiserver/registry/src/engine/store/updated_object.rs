//! The change that an update makes of the live object.

use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use crate::engine::managed_fields::Subject;
use crate::engine::metadata;
use crate::engine::options::Preconditions;
use async_trait::async_trait;
use machinery_meta::GroupVersionKind;
use machinery_schema::Tree;

/// The change a client requests, applied to the live object afresh in every attempt.
#[async_trait]
pub trait UpdatedObject: Send + Sync {
    /// The candidate made from the live object, defaults and all; `None` when there is none yet.
    async fn apply(&self, ctx: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError>;

    /// Reports whether the candidate already has its field owners.
    fn has_field_owners(&self) -> bool {
        false
    }

    /// Reports whether the client sent the candidate as it is.
    fn is_sent_whole(&self) -> bool {
        false
    }

    /// The kind of the candidate, where it is not the stored kind but a subresource's own (`Scale`).
    fn kind(&self) -> Option<GroupVersionKind> {
        None
    }

    /// The subject under which owners of such a candidate's fields are recorded.
    fn window(&self) -> Option<Subject<'_>> {
        None
    }

    /// The object to store of an admitted candidate of that kind.
    fn stored(&self, candidate: Tree, _live: &Tree) -> Result<Tree, RegistryError> {
        Ok(candidate)
    }

    /// A stored object as that kind shows it, which is what admission validates.
    fn view(&self, _stored: &Tree) -> Result<Option<Tree>, RegistryError> {
        Ok(None)
    }

    /// Preconditions on the live object (a uid in the body).
    fn preconditions(&self) -> Preconditions {
        Preconditions::default()
    }
}

/// An update is a whole object.
#[derive(Debug)]
pub struct Replacement(pub Tree);

#[async_trait]
impl UpdatedObject for Replacement {
    async fn apply(&self, _: &RequestContext, _: Option<&Tree>) -> Result<Tree, RegistryError> {
        Ok(self.0.clone())
    }

    fn is_sent_whole(&self) -> bool {
        true
    }

    fn preconditions(&self) -> Preconditions {
        let uid = metadata::uid(&self.0);
        let uid = (!uid.is_empty()).then(|| machinery_meta::Uid(uid.to_owned()));
        Preconditions {
            uid,
            resource_version: None,
        }
    }
}
