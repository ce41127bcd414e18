//! The kinds of the coordination group that have rules of their own.

pub mod lease;

use crate::table_strategy::{Kind, Traits};
use crate::validation_rules::ValidationRules;

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[Kind::of(
    "leases",
    Traits::PLAIN.any_finalizers().put_creates().revision_wanted(),
    ValidationRules::create(lease::validation::validate),
)];
