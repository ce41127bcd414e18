//! Rules that both kinds of webhook configurations have.

mod not_enforced;
mod rules;
mod validation;
mod warnings;

pub(super) use not_enforced::{conditions, refusal};
pub(super) use validation::{mutating, mutating_update, validating, validating_update};
pub(super) use warnings::warnings;
