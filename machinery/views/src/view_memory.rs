//! Views take about what their objects are charged, whatever a tenant fills these with: the worst object of each kind that the
//! API takes, as its view. A row for each view; `every_view_is_measured` of `machinery-client` looks for them.

use crate::{Service, Slice};
use machinery_client::Projection;
use machinery_client::view_cost::assert_views_take;
use machinery_fuzz::{filled, resident};

/// Largest ratio of a view's memory to the charge of its object.
const MOST: f64 = 2.6;

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
fn views_of_services_and_slices_take_what_is_charged() {
    check::<Service>(
        MOST,
        &[
            (
                object!(r#""spec":{"clusterIP":"1.1.1.1","ports":[@]}"#),
                r##"{"name":"#","protocol":"TCP","port":1,"targetPort":1}"##,
            ),
            (
                object!(r#""spec":{"clusterIP":"1.1.1.1","ports":[@]}"#),
                r##"{"name":"#","port":1}"##,
            ),
            (
                object!(r#""spec":{"clusterIP":"1.1.1.1","externalIPs":[@]}"#),
                r##""1.1.1.1""##,
            ),
            (
                object!(r#""spec":{"clusterIP":"1.1.1.1","loadBalancerSourceRanges":[@]}"#),
                r##""1.1.1.0/24""##,
            ),
        ],
    );
    check::<Slice>(
        MOST,
        &[
            (
                object!(r#""addressType":"IPv4","endpoints":[@]"#),
                r##"{"addresses":["1.1.1.1"]}"##,
            ),
            (
                object!(r#""addressType":"IPv6","endpoints":[@]"#),
                r##"{"addresses":["::1"]}"##,
            ),
            (
                object!(r#""addressType":"IPv6","endpoints":[@]"#),
                r##"{"addresses":["::1"],"hostname":"#"}"##,
            ),
            (
                object!(r#""addressType":"IPv4","endpoints":[@]"#),
                r##"{"addresses":["1.1.1.1"],"nodeName":"#"}"##,
            ),
            (
                object!(r#""addressType":"IPv4","endpoints":[],"ports":[@]"#),
                r##"{"name":"#","port":1000,"protocol":"TCP"}"##,
            ),
        ],
    );
}
