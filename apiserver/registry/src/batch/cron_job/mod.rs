mod schedule;
pub mod validation;
