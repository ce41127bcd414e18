//! Usage from the last two samples of each node and container (metrics-server's `pkg/storage`).
//!
//! A sample counts only where it is newer than the one before, of the same start. Samples that the last round did not renew are
//! forgotten, so that nothing stale is shown and memory is bounded by what runs.

use super::PERIOD;
use super::text::{NodeSamples, Point};
use apiserver_endpoints::{NodeUsage, PodUsage, ResourceUsage, Usage};
use machinery_meta::ObjectKey;
use std::collections::HashMap;
use std::time::Duration;

/// A container that began within the last round and has run so long is measured since its start.
const FRESH_FROM: Duration = Duration::from_secs(10);

type Containers = HashMap<Box<str>, Pair>;

/// The last sample, and the one before where there is one to compare with.
#[derive(Debug, Clone, Copy)]
struct Pair {
    last: Point,
    before: Option<Point>,
}

/// Samples of all nodes and their pods.
#[derive(Debug, Default)]
pub(super) struct Samples {
    nodes: HashMap<Box<str>, Pair>,
    pods: HashMap<ObjectKey, Containers>,
}

impl Samples {
    /// Takes what one round brought.
    pub(super) fn store(&mut self, round: Vec<(Box<str>, NodeSamples)>) {
        let (mut nodes, mut pods) = (HashMap::new(), HashMap::new());
        for (name, samples) in round {
            for (key, containers) in samples.pods {
                let known = self.pods.get(&key);
                let pairs = containers.into_iter().map(|(name, last)| {
                    let known = known.and_then(|known| known.get(&name));
                    (name, Pair::of_container(last, known))
                });
                pods.insert(key, pairs.collect());
            }
            if let Some(last) = samples.node {
                let pair = Pair::of_node(last, self.nodes.get(&name));
                nodes.insert(name, pair);
            }
        }
        *self = Self { nodes, pods };
    }

    /// Usage of all that has two samples; of a pod, all its containers or none.
    pub(super) fn usage(&self) -> ResourceUsage {
        let nodes = self.nodes.iter().filter_map(|(name, pair)| {
            let (at, window, usage) = pair.usage()?.ok()?;
            Some((name.clone(), NodeUsage { at, window, usage }))
        });
        let pods = self.pods.iter();
        let pods = pods.filter_map(|(key, containers)| Some((key.clone(), pod_usage(containers)?)));
        ResourceUsage {
            nodes: nodes.collect(),
            pods: pods.collect(),
        }
    }
}

fn pod_usage(containers: &Containers) -> Option<PodUsage> {
    let (mut earliest, mut all) = (None, Vec::with_capacity(containers.len()));
    for (name, pair) in containers {
        let Ok((at, window, usage)) = pair.usage()? else {
            continue;
        };
        all.push((name.clone(), usage));
        if earliest.is_none_or(|(known, _)| at < known) {
            earliest = Some((at, window));
        }
    }
    all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let (at, window) = earliest?;
    Some(PodUsage {
        at,
        window,
        containers: all.into(),
    })
}

/// A cumulative figure that has become less.
struct Decreased;

impl Pair {
    fn of_node(last: Point, known: Option<&Self>) -> Self {
        let before = known.and_then(|known| known.before(&last));
        Self { last, before }
    }

    fn of_container(last: Point, known: Option<&Self>) -> Self {
        let age = Duration::try_from(last.at.duration_since(last.started));
        if age.is_ok_and(|age| (FRESH_FROM..PERIOD).contains(&age)) {
            let before = Point {
                at: last.started,
                cpu_nanoseconds: 0,
                ..last
            };
            let before = Some(before);
            return Self { last, before };
        }
        // One that has restarted since starts over.
        let known = known.filter(|known| last.started < known.last.at);
        Self::of_node(last, known)
    }

    /// The sample that a new one is compared with.
    fn before(&self, last: &Point) -> Option<Point> {
        if last.at > self.last.at {
            return Some(self.last);
        }
        self.before.filter(|before| before.at < last.at)
    }

    /// `None` while there is one sample alone.
    fn usage(&self) -> Option<Result<(jiff::Timestamp, Duration, Usage), Decreased>> {
        let (last, before) = (&self.last, self.before.as_ref()?);
        let window = Duration::try_from(last.at.duration_since(before.at)).ok()?;
        if last.started < before.started || last.cpu_nanoseconds < before.cpu_nanoseconds {
            return Some(Err(Decreased));
        }
        let used = u128::from(last.cpu_nanoseconds - before.cpu_nanoseconds);
        let cores = used.saturating_mul(1_000_000_000) / window.as_nanos().max(1);
        let usage = Usage {
            cpu_nanocores: u64::try_from(cores).unwrap_or(u64::MAX),
            memory_bytes: last.memory_bytes,
        };
        Some(Ok((last.at, window, usage)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::{SignedDuration, Timestamp};

    fn second(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000 + second)
    }

    fn point(started: i64, at: i64, cpu_seconds: u64) -> Point {
        Point {
            started: second(started),
            at: second(at),
            cpu_nanoseconds: cpu_seconds * 1_000_000_000,
            memory_bytes: 1_024,
        }
    }

    /// Cpu in whole cores of the pod's containers, after rounds of (container, start, time, cpu seconds).
    #[track_caller]
    fn check(rounds: &[&[(&str, i64, i64, u64)]], expected: Option<&[(&str, u64)]>) {
        let (mut samples, key) = (Samples::default(), ObjectKey::new("a", "p"));
        for round in rounds {
            let points = round
                .iter()
                .map(|(name, started, at, cpu)| ((*name).into(), point(*started, *at, *cpu)));
            let pods = [(key.clone(), points.collect::<HashMap<_, _>>())].into();
            samples.store(vec![("n".into(), NodeSamples { node: None, pods })]);
        }
        let usage = samples.usage();
        let found = usage.pods.get(&key).map(|pod| {
            let cores = |(name, usage): &(Box<str>, Usage)| (name.to_string(), usage.cpu_nanocores);
            pod.containers.iter().map(cores).collect::<Vec<_>>()
        });
        let expected = expected.map(|all| {
            let cores = |(name, cores): &(&str, u64)| ((*name).to_owned(), cores * 1_000_000_000);
            all.iter().map(cores).collect::<Vec<_>>()
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn usage_is_that_between_two_samples() {
        check(&[&[("c", 0, 100, 10)]], None);
        check(&[&[("c", 0, 100, 10)], &[("c", 0, 115, 40)]], Some(&[("c", 2)]));
        // The same sample again leaves the pair as it is; an older one is no sample.
        let same: &[_] = &[("c", 0, 115, 40)];
        check(&[&[("c", 0, 100, 10)], same, same], Some(&[("c", 2)]));
        check(&[&[("c", 0, 100, 10)], same, &[("c", 0, 90, 5)]], None);
    }

    #[test]
    fn usage_of_a_pod_needs_all_its_containers() {
        let first: &[_] = &[("b", 0, 100, 10), ("a", 0, 100, 0)];
        check(
            &[first, &[("b", 0, 110, 20), ("a", 0, 110, 0)]],
            Some(&[("a", 0), ("b", 1)]),
        );
        check(&[first, &[("b", 0, 110, 20), ("new", 109, 110, 0)]], None);
        // One that restarted has no usage until it is sampled twice, unless it has run for a while.
        check(&[first, &[("b", 0, 110, 20), ("a", 105, 110, 0)]], None);
        check(
            &[first, &[("b", 0, 115, 25), ("a", 103, 115, 12)]],
            Some(&[("a", 1), ("b", 1)]),
        );
        // Cumulative time cannot become less.
        check(
            &[first, &[("b", 0, 110, 5), ("a", 0, 110, 10)]],
            Some(&[("a", 1)]),
        );
    }

    #[test]
    fn usage_that_is_stale_is_forgotten() {
        let node = |at, cpu| {
            let node = Some(point(0, at, cpu));
            let pods = HashMap::new();
            vec![("n".into(), NodeSamples { node, pods })]
        };
        let mut samples = Samples::default();
        samples.store(node(100, 10));
        samples.store(node(110, 30));
        let usage = samples.usage().nodes["n"];
        assert_eq!(
            (usage.usage.cpu_nanocores, usage.window.as_secs()),
            (2_000_000_000, 10)
        );
        samples.store(Vec::new());
        assert_eq!(samples.usage(), ResourceUsage::default());
    }
}
