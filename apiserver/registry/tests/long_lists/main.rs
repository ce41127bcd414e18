//! Long lists are looked at in one pass: four times the length costs about four times as much.
//!
//! Measured is the processor time of the test's own thread, beside that for a quarter of the length.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod generated;
mod rows;
mod stored;
mod verbs;

#[test]
fn lists_of_every_kind_cost_what_their_length_does_first_half() {
    generated::check(0, 2);
}

#[test]
fn lists_of_every_kind_cost_what_their_length_does_second_half() {
    generated::check(1, 2);
}

#[test]
fn lists_that_belong_together_cost_what_their_length_does_first_half() {
    rows::check(0, 2);
}

#[test]
fn lists_that_belong_together_cost_what_their_length_does_second_half() {
    rows::check(1, 2);
}
