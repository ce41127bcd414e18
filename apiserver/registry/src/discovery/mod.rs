//! The kinds of the discovery group that have rules of their own.

pub mod endpoint_slice;

use crate::table_strategy::{Kind, Traits};
use crate::validation_rules::ValidationRules;

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[Kind::of(
    "endpointslices",
    Traits::COUNTED,
    ValidationRules::create(endpoint_slice::validation::validate)
        .update(endpoint_slice::validation::validate_update),
)];
