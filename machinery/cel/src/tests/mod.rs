//! Comparisons with what upstream answers; the data is recorded from it.

mod limits;
mod objects;
mod recorded;
mod rules;
mod work;
