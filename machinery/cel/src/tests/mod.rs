//! Comparisons with what upstream answers; the data is recorded from it.

mod limits;
mod recorded;
mod rules;
