//! The kinds of the scheduling group that have rules of their own.

pub mod priority_class;

use crate::table_strategy::{Kind, Traits};
use crate::validation_rules::ValidationRules;

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[Kind::of(
    "priorityclasses",
    Traits::COUNTED,
    ValidationRules::create(priority_class::validation::validate)
        .update(priority_class::validation::validate_update),
)];
