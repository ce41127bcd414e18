//! Projections of objects for the readers of a resource, and indexes by which they find objects.

use crate::object::Object;
use machinery_meta::{ObjectHeader, Uid};

/// The slim form of an object that its readers share, made once per event.
///
/// `project` gets the JSON; decode it into a private struct that names only the fields that are read (tens of times
/// cheaper than a whole `k8s-openapi` type), and keep no more of it than readers request.
pub trait Projection: Send + Sync + Sized + 'static {
    /// The indexes that stores of this projection keep.
    const INDEXES: &'static [Index<Self>] = &[];
    /// Keeps the object's bytes with it, for [`Object::decode`].
    const KEEP_BYTES: bool = false;
    /// False where the header is all that is read: the rest of an object is not kept then, not even until the end of a list.
    const READS_OBJECT: bool = true;
    /// Makes the projection where a former version of the object is in the store, and shares what it has in common with that;
    /// `None` where that would save nothing.
    const PROJECT_AFTER: Option<ProjectAfter<Self>> = None;

    /// Makes the projection; an error drops the event with a warning in the log.
    fn project(header: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error>;
}

/// Readers that need the header only.
impl Projection for () {
    const READS_OBJECT: bool = false;

    fn project(_: &ObjectHeader, _: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(())
    }
}

/// Makes the projection of an object after a former one under its name, which may have been another object's.
pub type ProjectAfter<P> = fn(&P, &ObjectHeader, &[u8]) -> Result<P, serde_json::Error>;

/// The name of an index, used where it is declared and where it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IndexName(pub &'static str);

impl IndexName {
    /// Objects of one namespace.
    pub const NAMESPACE: Self = Self("namespace");
    /// Objects whose controller has this uid and is of this namespace: `<namespace>/<uid>`. Read by `Informer::controlled`.
    pub(crate) const CONTROLLER: Self = Self("controller");
    /// Objects one of whose owners has this uid.
    pub const OWNER: Self = Self("owner");
}

/// Calls back with each value under which an object is found.
pub type IndexValues<P> = fn(&Object<P>, &mut dyn FnMut(&str));

/// A declared index: its name and the values under which an object is found.
#[derive(Debug)]
pub struct Index<P> {
    /// Name under which readers use the index.
    pub name: IndexName,
    /// Calls back with each value of the object.
    pub values: IndexValues<P>,
}

impl<P> Index<P> {
    /// Index by namespace.
    pub const NAMESPACE: Self = Self {
        name: IndexName::NAMESPACE,
        values: |object, each| each(&object.header.key.namespace),
    };
    /// By the controlling owner: the object's namespace and the owner's uid. The namespace is part of it since the author of an
    /// object writes its owner references: an object of another namespace that names the uid has no owner here.
    pub const CONTROLLER: Self = Self {
        name: IndexName::CONTROLLER,
        values: |object, each| {
            if let Some(owner) = object.header.controller() {
                each(&controlled_by(&object.header.key.namespace, &owner.uid));
            }
        },
    };
    /// Index by every owner's uid.
    pub const OWNER: Self = Self {
        name: IndexName::OWNER,
        values: |object, each| object.header.owners.iter().for_each(|owner| each(&owner.uid.0)),
    };
}

/// Value of [`Index::CONTROLLER`] for the objects of a namespace whose controller has this uid.
pub(crate) fn controlled_by(namespace: &str, uid: &Uid) -> String {
    format!("{namespace}/{}", uid.0)
}
