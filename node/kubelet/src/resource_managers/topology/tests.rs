//! The topology manager's decisions beside those of upstream, recorded of its own tests.

use serde::Deserialize;
use std::collections::BTreeMap;

use super::merging::Nodes;
use super::options::TopologyOptions;
use super::policy::TopologyPolicy;
use crate::resource_managers::config::{TopologyManagerPolicy, TopologyManagerScope};
use crate::resource_managers::hints::{Hint, Hints};

type RecordedHint = (Option<Vec<u32>>, bool);

#[derive(Debug, Deserialize)]
struct Row {
    policy: String,
    nodes: Vec<u32>,
    distances: BTreeMap<u32, Option<Vec<u64>>>,
    closest: bool,
    providers: Vec<BTreeMap<String, Option<Vec<RecordedHint>>>>,
    hint: RecordedHint,
    admit: bool,
}

fn hint((nodes, preferred): &RecordedHint) -> Hint {
    Hint {
        nodes: nodes.as_ref().map(|nodes| nodes.iter().copied().collect()),
        preferred: *preferred,
    }
}

/// Calls of upstream's `Merge` in its tests.
#[test]
fn topology_hints_are_merged_as_upstreams() {
    let mut rows = 0;
    for line in include_str!("testdata/merging.jsonl").lines() {
        let row: Row = serde_json::from_str(line).unwrap();
        let distances = row.distances.iter();
        let policy = TopologyPolicy {
            policy: TopologyManagerPolicy::named(&row.policy).unwrap(),
            scope: TopologyManagerScope::Container,
            nodes: Nodes {
                numbers: row.nodes.clone(),
                distances: distances
                    .map(|(node, own)| (*node, own.clone().unwrap_or_default()))
                    .collect(),
                prefer_closest: row.closest,
            },
        };
        let providers: Vec<Hints> = row
            .providers
            .iter()
            .map(|own| {
                let own = own.iter();
                own.map(|(name, hints)| {
                    let hints = hints.as_ref().map(|hints| hints.iter().map(hint).collect());
                    (name.clone(), hints)
                })
                .collect()
            })
            .collect();
        assert_eq!(policy.merge(&providers), (hint(&row.hint), row.admit), "{row:?}");
        rows += 1;
    }
    assert!(rows > 100, "{rows}");
}

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
