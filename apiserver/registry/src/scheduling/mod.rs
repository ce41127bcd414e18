//! The kinds of the scheduling group that have rules of their own.

pub mod priority_class;

use crate::rules::Rules;
use crate::table_strategy::{Kind, Traits};

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[Kind::of(
    "priorityclasses",
    Traits::COUNTED,
    Rules::on(priority_class::validation::validate).changed(priority_class::validation::validate_update),
)];
