//! CSIStorageCapacity: the room that a driver has in a part of the cluster.

mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("storage.k8s.io", "csistoragecapacities")
    .traits(Traits::PLAIN.revision_wanted())
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update));
