//! PriorityClass: a name for a priority.
pub mod validation;
