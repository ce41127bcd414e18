//! Rules that policies of both kinds and their bindings have.

mod binding;
mod policy;

pub(super) use binding::{binding, mutating_operations};
pub(super) use policy::{Compiler, Stored, same_conditions, spec};
