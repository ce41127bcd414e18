//! Views take about what their objects are charged, whatever a tenant fills these with: the worst object of each kind that the
//! API takes, as its view. A row for each view; `every_view_is_measured` of `machinery-client` looks for them.

use crate::model::NodeView;
use machinery_client::Projection;
use machinery_client::view_cost::assert_views_take;
use machinery_fuzz::{filled, resident};

/// Largest ratio of a view's memory to the charge of its object.
const MOST: f64 = 2.3;

/// Asserts that the view of each of these objects, filled with items, takes at most this many times what the store charges.
#[track_caller]
fn check<P: Projection>(most: f64, objects: &[(&str, &str)]) {
    assert_views_take::<P>(most, objects, filled, resident);
}

/// An object with this beside its metadata.
macro_rules! object {
    ($rest:literal) => {
        concat!(
            r#"{"metadata":{"name":"a","namespace":"n","labels":{"kubernetes.io/service-name":"s"}},"#,
            $rest,
            "}"
        )
    };
}

#[test]
fn view_of_a_node_takes_what_is_charged() {
    check::<NodeView>(
        MOST,
        &[(
            object!(r#""status":{"addresses":[@]}"#),
            r##"{"type":"InternalIP","address":"1.1.1.1"}"##,
        )],
    );
}
