//! Checks and formats that several kinds use.

pub mod columns;
pub mod conditions;
pub mod label_selector;
pub(crate) mod not_enforced;
pub mod validation;
