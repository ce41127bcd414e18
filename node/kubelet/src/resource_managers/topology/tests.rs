//! Options of the topology manager.

use super::options::TopologyOptions;

#[test]
fn topology_options_are_read_as_upstreams() {
    let read =
        |name: &str, value: &str| TopologyOptions::parse(&[(name.to_owned(), value.to_owned())].into());
    assert!(read("prefer-closest-numa-nodes", "true").unwrap().prefer_closest);
    assert_eq!(read("max-allowable-numa-nodes", "9").unwrap().nodes_max, 9);
    for (name, value, error) in [
        ("other", "1", "unknown Topology Manager Policy option: \"other\""),
        (
            "max-allowable-numa-nodes",
            "7",
            "the minimum value of \"max-allowable-numa-nodes\" should not be less than 8",
        ),
        (
            "max-allowable-numa-nodes",
            "many",
            "unable to convert policy option to integer \"max-allowable-numa-nodes\": strconv.Atoi: parsing \"many\": invalid \
             syntax",
        ),
        (
            "prefer-closest-numa-nodes",
            "1.5",
            "bad value for option \"prefer-closest-numa-nodes\": strconv.ParseBool: parsing \"1.5\": invalid syntax",
        ),
    ] {
        assert_eq!(read(name, value).unwrap_err(), error);
    }
}
