//! The kinds of the storage group that have rules of their own.

pub mod attachment;
pub mod validation;

use crate::table_strategy::{Kind, Traits};
use crate::validation_rules::ValidationRules;

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of(
        "csidrivers",
        Traits::PLAIN.returned().revision_wanted(),
        ValidationRules::NONE,
    ),
    Kind::of(
        "csinodes",
        Traits::PLAIN.returned().revision_wanted(),
        ValidationRules::NONE,
    ),
    Kind::of(
        "csistoragecapacities",
        Traits::PLAIN.revision_wanted(),
        ValidationRules::NONE,
    ),
    Kind::of(
        "storageclasses",
        Traits::PLAIN.returned(),
        ValidationRules::create(validation::validate_class).update(validation::validate_class_update),
    ),
    Kind::of(
        "volumeattachments",
        Traits::PLAIN.returned().revision_wanted(),
        ValidationRules::create(attachment::validate)
            .update(attachment::validate_update)
            .status(attachment::validate_status),
    ),
    Kind::of(
        "volumeattributesclasses",
        Traits::PLAIN.returned(),
        ValidationRules::NONE,
    ),
];
