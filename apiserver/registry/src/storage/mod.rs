//! The kinds of the storage group that have rules of their own.

pub mod validation;
