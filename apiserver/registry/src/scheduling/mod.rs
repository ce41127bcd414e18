//! The kinds of the scheduling group that have rules of their own.

pub mod priority_class;
