//! VolumeAttachment: a volume that is to be, or is, attached to a node.

mod columns;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("storage.k8s.io", "volumeattachments")
    .traits(Traits::PLAIN.returned().revision_wanted())
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(validation::validate_status),
    )
    .prepare_for_update(crate::engine::metadata::keep_in_status)
    .columns(columns::cells);
