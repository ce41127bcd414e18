//! Views take about what their objects are charged, whatever a tenant fills these with: the worst object of each kind that the
//! API takes, as its view. A row for each view; `every_view_is_measured` of `machinery-client` looks for them.

/// An object with this beside its metadata.
macro_rules! object {
    ($rest:literal) => {
        concat!(
            r#"{"metadata":{"name":"a","namespace":"n","uid":"u"},"#,
            $rest,
            "}"
        )
    };
}

mod accounts;
mod pods;
mod services;
mod storage;
mod workloads;

use machinery_client::Projection;
use machinery_client::view_cost::assert_views_take;
use machinery_fuzz::{filled, resident};

/// Most bytes of a view per byte that its object is charged. Twice is the text kept beside the object's bytes.
const MOST: f64 = 2.6;
/// The same where controllers or nodes write the list, or the cluster's administrators: as values.
const OF_COMPONENTS: f64 = 28.0;
/// The same for requirements of selectors, which are values.
const OF_REQUIREMENTS: f64 = 7.5;

const LABEL: &str = r##""#":"""##;
const CONDITION: &str = r##"{"type":"#","status":"True"}"##;

/// Asserts that the view of each of these objects, filled with items, takes at most this many times what the store charges.
#[track_caller]
fn check<P: Projection>(most: f64, objects: &[(&str, &str)]) {
    assert_views_take::<P>(most, objects, filled, resident);
}
