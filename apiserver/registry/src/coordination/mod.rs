//! The kinds of the coordination group that have rules of their own.

pub mod lease;

use crate::rules::Rules;
use crate::table_strategy::{Kind, Traits};

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[Kind::of(
    "leases",
    Traits::PLAIN.any_finalizers().put_creates().revision_wanted(),
    Rules::on(lease::validation::validate),
)];
