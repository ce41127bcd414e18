//! Two lanes for the kubelets of a round: those that were quick last, and the others.
//!
//! The bearer of a bootstrap token, or a part of the network that is cut off, makes thousands of nodes that do not answer.
//! They wait in a lane of their own, behind nodes that failed less often and are older.

use machinery_meta::ObjectHeader;
use std::collections::HashMap;
use std::time::Duration;

/// A kubelet that answers within this is quick.
const QUICK: Duration = Duration::from_secs(1);

/// Nodes by lane, in the order in which they are read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lanes {
    pub(super) quick: Vec<Box<str>>,
    pub(super) others: Vec<Box<str>>,
}

/// The last attempt of each node.
#[derive(Debug, Default)]
pub(super) struct Standings(HashMap<Box<str>, Standing>);

#[derive(Debug, Clone, Copy, Default)]
struct Standing {
    is_quick: bool,
    /// Attempts without an answer since the last one.
    failed: u32,
}

impl Standings {
    /// The lanes of these nodes. Others are forgotten.
    pub(super) fn lanes<'a>(&mut self, nodes: impl Iterator<Item = &'a ObjectHeader>) -> Lanes {
        let mut lanes = Lanes::default();
        let (mut others, mut kept) = (Vec::new(), HashMap::new());
        for node in nodes {
            let name = node.key.name.as_str();
            let known = self.0.get(name).copied();
            if let Some(known) = known {
                kept.insert(name.into(), known);
            }
            let standing = known.unwrap_or_default();
            if standing.is_quick {
                lanes.quick.push(name.into());
            } else {
                others.push((standing.failed, node.creation_timestamp.as_deref(), name));
            }
        }
        others.sort_unstable();
        lanes.others = others.into_iter().map(|(_, _, name)| name.into()).collect();
        self.0 = kept;
        lanes
    }

    /// A node answered within this time, or did not.
    pub(super) fn note(&mut self, node: &str, answered: Option<Duration>) {
        let standing = self.0.entry(node.into()).or_default();
        standing.is_quick = answered.is_some_and(|took| took <= QUICK);
        standing.failed = match answered {
            Some(_) => 0,
            None => standing.failed.saturating_add(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_meta::ObjectKey;

    fn node(name: &str, created: &str) -> ObjectHeader {
        ObjectHeader {
            key: ObjectKey::cluster(name),
            creation_timestamp: Some(created.into()),
            ..ObjectHeader::default()
        }
    }

    #[track_caller]
    fn check(standings: &mut Standings, nodes: &[ObjectHeader], quick: &[&str], others: &[&str]) {
        let boxed = |names: &[&str]| names.iter().map(|name| Box::from(*name)).collect();
        let (quick, others) = (boxed(quick), boxed(others));
        assert_eq!(standings.lanes(nodes.iter()), Lanes { quick, others });
    }

    #[test]
    fn kubelets_that_do_not_answer_wait_behind_those_that_do() {
        let nodes = [
            node("silent", "2"),
            node("old", "1"),
            node("new", "3"),
            node("slow", "0"),
        ];
        let mut standings = Standings::default();
        check(&mut standings, &nodes, &[], &["slow", "old", "silent", "new"]);
        let second = Duration::from_secs(1);
        standings.note("old", Some(second));
        standings.note("slow", Some(9 * second));
        standings.note("silent", None);
        check(&mut standings, &nodes, &["old"], &["slow", "new", "silent"]);
        standings.note("silent", None);
        standings.note("new", None);
        check(&mut standings, &nodes, &["old"], &["slow", "new", "silent"]);
        standings.note("silent", Some(second));
        check(&mut standings, &nodes, &["silent", "old"], &["slow", "new"]);
        check(&mut standings, &nodes[..1], &["silent"], &[]);
        assert_eq!(standings.0.len(), 1, "nodes that went are forgotten");
    }
}
