//! The kinds of the storage group that have rules of their own.

pub mod attachment;
pub mod validation;

use crate::rules::Rules;
use crate::table_strategy::{Kind, Traits};

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of(
        "csidrivers",
        Traits::PLAIN.returned().revision_wanted(),
        Rules::NONE,
    ),
    Kind::of(
        "csinodes",
        Traits::PLAIN.returned().revision_wanted(),
        Rules::NONE,
    ),
    Kind::of(
        "csistoragecapacities",
        Traits::PLAIN.revision_wanted(),
        Rules::NONE,
    ),
    Kind::of(
        "storageclasses",
        Traits::PLAIN.returned(),
        Rules::on(validation::validate_class).changed(validation::validate_class_update),
    ),
    Kind::of(
        "volumeattachments",
        Traits::PLAIN.returned().revision_wanted(),
        Rules::on(attachment::validate)
            .changed(attachment::validate_update)
            .status(attachment::validate_status),
    ),
    Kind::of("volumeattributesclasses", Traits::PLAIN.returned(), Rules::NONE),
];
