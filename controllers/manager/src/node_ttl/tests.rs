//! The table of upstream's `ttl_controller_test.go`: a band, a size, and the seconds that follow.

use super::{BANDS, band};

#[test]
fn node_ttl_follows_sizes_as_upstreams() {
    for (before, nodes, expected) in [
        (0, 1, 0),
        (0, 100, 0),
        (0, 101, 15),
        (1, 100, 15),
        (1, 90, 15),
        (1, 92, 15),
        (1, 89, 0),
        (4, 1799, 60),
        (4, 9999, 300),
        // Seen at once after a start.
        (0, 5000, 300),
        (4, 3, 0),
    ] {
        assert_eq!(
            BANDS[band(before, nodes)].seconds,
            expected,
            "{nodes} of {before}"
        );
    }
}
