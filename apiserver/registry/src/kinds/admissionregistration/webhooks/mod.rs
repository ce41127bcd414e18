//! Rules that both kinds of webhook configurations have.

mod validation;
mod warnings;

pub(super) use validation::{mutating, mutating_update, validating, validating_update};
pub(super) use warnings::warnings;
