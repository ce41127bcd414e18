//! CSIStorageCapacity: the room that a driver has in a part of the cluster.

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;

pub(crate) static KIND: Kind =
    Kind::of("storage.k8s.io", "csistoragecapacities").traits(Traits::PLAIN.revision_wanted());
