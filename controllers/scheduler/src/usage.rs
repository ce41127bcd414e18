//! Live usage of nodes: the last sample of each, and what pods placed since may add to it.
//!
//! A sample says what the pods of a node took of its CPU and memory some seconds ago. A pod that was placed after that counts
//! with its request on top, or a burst of pods would all go to the node that was the idlest before it.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// A sample that is older says nothing.
pub const MAX_AGE: Duration = Duration::from_mins(2);
/// Time after its placement in which a pod is not in a sample yet: it starts, and usage is a mean over some time.
const SETTLING: Duration = Duration::from_secs(30);
/// Pods of one node that are counted on top of a sample; older ones are left out.
const MAX_PLACED: usize = 256;

/// Usage of a node as it was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub node: Box<str>,
    pub milli_cpu: i64,
    pub memory: i64,
    /// Time of the measurement, by the clock of the scheduler.
    pub taken_at: Duration,
}

/// A pod that came after the sample.
#[derive(Debug, Clone, Copy)]
struct PlacedPod {
    at: Duration,
    milli_cpu: i64,
    memory: i64,
}

#[derive(Debug, Default)]
struct OfNode {
    sample: Option<Sample>,
    placed: VecDeque<PlacedPod>,
}

/// See the module; by name of the node.
#[derive(Debug, Default)]
pub struct NodeUsages {
    nodes: HashMap<Box<str>, OfNode>,
}

/// CPU in thousandths and memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    pub milli_cpu: i64,
    pub memory: i64,
}

impl NodeUsages {
    /// New samples, in place of all before.
    pub fn set(&mut self, samples: Vec<Sample>) {
        let mut before = std::mem::take(&mut self.nodes);
        for sample in samples {
            let mut placed = before.remove(&sample.node).unwrap_or_default().placed;
            let is_in_it = |pod: &PlacedPod| pod.at + SETTLING <= sample.taken_at;
            placed.retain(|pod| !is_in_it(pod));
            let own = OfNode {
                sample: Some(sample.clone()),
                placed,
            };
            self.nodes.insert(sample.node, own);
        }
    }

    /// Usage is not requested any more.
    pub fn forget(&mut self) {
        self.nodes.clear();
    }

    /// A pod with these requests goes to the node.
    pub fn placed(&mut self, node: &str, requests: Used, now: Duration) {
        let Some(own) = self.nodes.get_mut(node) else {
            return;
        };
        if own.placed.len() >= MAX_PLACED {
            own.placed.pop_front();
        }
        own.placed.push_back(PlacedPod {
            at: now,
            milli_cpu: requests.milli_cpu,
            memory: requests.memory,
        });
    }

    /// Probable usage of the node now; `None` where it is unknown.
    pub fn of(&self, node: &str, now: Duration) -> Option<Used> {
        let own = self.nodes.get(node)?;
        let sample = own.sample.as_ref()?;
        if sample.taken_at + MAX_AGE < now {
            return None;
        }
        let used = Used {
            milli_cpu: sample.milli_cpu,
            memory: sample.memory,
        };
        Some(own.placed.iter().fold(used, |used, pod| Used {
            milli_cpu: used.milli_cpu.saturating_add(pod.milli_cpu),
            memory: used.memory.saturating_add(pod.memory),
        }))
    }

    /// Nodes whose usage is known.
    pub fn known(&self, now: Duration) -> usize {
        let names = self.nodes.keys();
        names.filter(|name| self.of(name, now).is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn sample(milli_cpu: i64, seconds: u32) -> Sample {
        Sample {
            node: "n".into(),
            milli_cpu,
            memory: 0,
            taken_at: SECOND * seconds,
        }
    }

    fn milli_cpu(usages: &NodeUsages, seconds: u32) -> Option<i64> {
        usages.of("n", SECOND * seconds).map(|used| used.milli_cpu)
    }

    #[test]
    fn usage_counts_pods_that_no_sample_has_yet() {
        let mut usages = NodeUsages::default();
        let pod = Used {
            milli_cpu: 100,
            memory: 0,
        };
        usages.placed("n", pod, SECOND);
        assert_eq!(milli_cpu(&usages, 1), None, "no sample");
        usages.set(vec![sample(500, 1)]);
        usages.placed("n", pod, SECOND * 2);
        usages.placed("n", pod, SECOND * 10);
        assert_eq!(milli_cpu(&usages, 10), Some(700));
        usages.set(vec![sample(560, 33)]);
        assert_eq!(milli_cpu(&usages, 33), Some(660), "the first has settled");
        usages.set(vec![sample(650, 60)]);
        assert_eq!(milli_cpu(&usages, 60), Some(650));
        assert_eq!(
            (milli_cpu(&usages, 180), usages.known(SECOND * 180)),
            (Some(650), 1)
        );
        assert_eq!(
            (milli_cpu(&usages, 181), usages.known(SECOND * 181)),
            (None, 0),
            "too old"
        );
        usages.set(Vec::new());
        assert_eq!(milli_cpu(&usages, 61), None);
    }

    #[test]
    fn pods_counted_on_top_are_bounded() {
        let mut usages = NodeUsages::default();
        usages.set(vec![sample(0, 0)]);
        for _ in 0..2 * MAX_PLACED {
            let pod = Used {
                milli_cpu: 1,
                memory: 0,
            };
            usages.placed("n", pod, SECOND);
        }
        assert_eq!(milli_cpu(&usages, 1), Some(256));
    }
}
