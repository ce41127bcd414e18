//! The kinds of the discovery group that have rules of their own.

pub mod endpoint_slice;

use crate::rules::Rules;
use crate::table_strategy::{Kind, Traits};

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[Kind::of(
    "endpointslices",
    Traits::COUNTED,
    Rules::on(endpoint_slice::validation::validate).changed(endpoint_slice::validation::validate_update),
)];
