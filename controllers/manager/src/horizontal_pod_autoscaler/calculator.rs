//! Number of replicas that a metric requests (upstream's `replica_calculator.go` and `metrics/utilization.go`). Pure.

use crate::views::pod::{Phase, PodView};
use jiff::{SignedDuration, Timestamp};
use machinery_client::Object;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) type PodRef = Arc<Object<PodView>>;

/// A pod's sample of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PodMetric {
    pub(super) at: Timestamp,
    pub(super) window: SignedDuration,
    /// In thousandths.
    pub(super) value: i64,
}

/// Samples of a metric by the name of their pod.
pub(super) type PodMetrics = BTreeMap<String, PodMetric>;

/// Part of the target by which usage may be off without a change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tolerances {
    pub(super) down: f64,
    pub(super) up: f64,
}

impl Tolerances {
    fn allow(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// Facts that all calculations of one look share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Calculator<'a> {
    /// Pods that the target selects.
    pub(super) pods: &'a [PodRef],
    pub(super) tolerances: Tolerances,
    pub(super) now: Timestamp,
    /// Cpu of a pod that has started within this time counts only if it was sampled while the pod was ready.
    pub(super) cpu_initialization_period: SignedDuration,
    /// A pod whose readiness has not changed after this time since its start was never ready.
    pub(super) initial_readiness_delay: SignedDuration,
}

/// Result of a calculation on the resources of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Utilization {
    pub(super) replicas: i32,
    /// Per cent of what the pods request.
    pub(super) percent: i32,
    /// Average in thousandths.
    pub(super) average: i64,
}

/// Result of a calculation on another metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) replicas: i32,
    /// In thousandths.
    pub(super) value: i64,
}

/// Pods by what their samples count for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) ready: usize,
    pub(super) unready: BTreeSet<String>,
    pub(super) missing: BTreeSet<String>,
    pub(super) ignored: BTreeSet<String>,
}

/// Go's zero time, which an absent one is.
pub(super) const ZERO_TIME: Timestamp = Timestamp::constant(-62_135_596_800, 0);
const NO_PODS: &str = "no pods returned by selector while calculating replica count";
const NO_METRICS: &str = "did not receive metrics for targeted pods (pods might be unready)";

/// Usage as a part of the target, and how many pods it is of.
struct Ratio {
    ratio: f64,
    pods: usize,
}

impl Calculator<'_> {
    /// Replicas for a utilization in per cent of what the pods request of a resource; of one container where it is named.
    pub(super) fn utilization(
        &self,
        replicas: i32,
        target: i32,
        (resource, container): (&str, &str),
        mut metrics: PodMetrics,
    ) -> Result<Utilization, String> {
        let groups = self.counted(&mut metrics, resource)?;
        let requests = requests(self.pods, container, resource)?;
        let first = utilization_of(&metrics, &requests, target)?;
        let result = |replicas| Utilization {
            replicas,
            percent: first.percent,
            average: first.average,
        };
        // Pods whose usage is not known are taken to use all that they request, or the target where that is more.
        let fallback = i128::from(target.max(100));
        let full = |pod: &str| {
            let request = i128::from(requests.get(pod).copied().unwrap_or(0));
            i64::try_from(request * fallback / 100).unwrap_or(i64::MAX)
        };
        let again = |metrics: &PodMetrics| utilization_of(metrics, &requests, target).map(|own| own.ratio);
        let replicas = self.replicas(replicas, first.ratio, &groups, metrics, full, again)?;
        Ok(result(replicas))
    }

    /// Replicas for an average per pod, in thousandths; of a resource (empty for other metrics).
    pub(super) fn average(
        &self,
        replicas: i32,
        target: i64,
        resource: &str,
        mut metrics: PodMetrics,
    ) -> Result<Usage, String> {
        let groups = self.counted(&mut metrics, resource)?;
        let average = average_of(&metrics);
        let ratio = quotient(average, target);
        let again = |metrics: &PodMetrics| Ok(quotient(average_of(metrics), target));
        let replicas = self.replicas(replicas, ratio, &groups, metrics, |_| target, again)?;
        Ok(Usage {
            replicas,
            value: average,
        })
    }

    /// The groups of the pods; samples that do not count are taken away.
    fn counted(&self, metrics: &mut PodMetrics, resource: &str) -> Result<Groups, String> {
        if self.pods.is_empty() {
            return Err(NO_PODS.to_owned());
        }
        let groups = self.groups(metrics, resource);
        metrics.retain(|pod, _| !groups.ignored.contains(pod) && !groups.unready.contains(pod));
        match metrics.is_empty() {
            true => Err(NO_METRICS.to_owned()),
            false => Ok(groups),
        }
    }

    /// Sorts the pods by what their samples count for.
    pub(super) fn groups(&self, metrics: &PodMetrics, resource: &str) -> Groups {
        let mut groups = Groups::default();
        for pod in self.pods {
            let name = || pod.name().to_owned();
            if pod.header.is_deleting() || pod.phase == Phase::Failed {
                groups.ignored.insert(name());
            } else if pod.phase == Phase::Pending {
                groups.unready.insert(name());
            } else if let Some(metric) = metrics.get(pod.name()) {
                if resource == "cpu" && self.is_unready(pod, metric) {
                    groups.unready.insert(name());
                } else {
                    groups.ready += 1;
                }
            } else {
                groups.missing.insert(name());
            }
        }
        groups
    }

    /// Reports whether a pod's cpu is that of its start.
    fn is_unready(&self, pod: &PodView, metric: &PodMetric) -> bool {
        let (Some(readiness), Some(started)) = (&pod.readiness, pod.started) else {
            return true;
        };
        let since = readiness.since.unwrap_or(ZERO_TIME);
        let after = |time: Timestamp, span| time.checked_add(span).unwrap_or(Timestamp::MAX);
        if after(started, self.cpu_initialization_period) > self.now {
            // The window must have begun after the pod's readiness changed last.
            return readiness.is_false || metric.at < after(since, metric.window);
        }
        readiness.is_false && after(started, self.initial_readiness_delay) > since
    }

    /// Replicas by the ratio, careful about pods whose usage is not known: `missing` says what they use where that would
    /// scale down.
    fn replicas(
        &self,
        current: i32,
        ratio: f64,
        groups: &Groups,
        mut metrics: PodMetrics,
        missing: impl Fn(&str) -> i64,
        again: impl Fn(&PodMetrics) -> Result<f64, String>,
    ) -> Result<i32, String> {
        let counts_unready = !groups.unready.is_empty() && ratio > 1.0;
        if !counts_unready && groups.missing.is_empty() {
            if self.tolerances.allow(ratio) {
                return Ok(current);
            }
            return Ok(ceiling(ratio * count(groups.ready)));
        }
        let unknown = PodMetric {
            at: self.now,
            window: SignedDuration::ZERO,
            value: 0,
        };
        let absent = groups.missing.iter().filter(|_| ratio != 1.0);
        metrics.extend(absent.map(|pod| {
            let value = if ratio < 1.0 { missing(pod) } else { 0 };
            (pod.clone(), PodMetric { value, ..unknown })
        }));
        if counts_unready {
            metrics.extend(groups.unready.iter().map(|pod| (pod.clone(), unknown)));
        }
        let new = Ratio {
            ratio: again(&metrics)?,
            pods: metrics.len(),
        };
        Ok(self.careful(current, ratio, &new))
    }

    /// Replicas by the second ratio, unless it says little or the opposite of the first.
    fn careful(&self, current: i32, first: f64, new: &Ratio) -> i32 {
        let turns = first < 1.0 && new.ratio > 1.0 || first > 1.0 && new.ratio < 1.0;
        if self.tolerances.allow(new.ratio) || turns {
            return current;
        }
        let replicas = ceiling(new.ratio * count(new.pods));
        match replicas {
            _ if new.ratio < 1.0 && replicas > current => current,
            _ if new.ratio > 1.0 && replicas < current => current,
            replicas => replicas,
        }
    }

    /// Replicas for a value of the whole target, in thousandths.
    pub(super) fn total(&self, replicas: i32, target: i64, value: i64) -> Result<Usage, String> {
        let ratio = quotient(value, target);
        let replicas = match replicas {
            // To zero, or from it.
            0 => ceiling(ratio),
            _ if self.tolerances.allow(ratio) => replicas,
            _ => ceiling(ratio * count(self.ready_pods()?)),
        };
        Ok(Usage { replicas, value })
    }

    /// Replicas for a value of the whole target, of which each replica shall have this part, in thousandths.
    pub(super) fn total_per_pod(&self, replicas: i32, target: i64, value: i64) -> Usage {
        let ratio = float(value) / (float(target) * f64::from(replicas));
        let changed = match self.tolerances.allow(ratio) {
            true => replicas,
            false => ceiling(float(value) / float(target)),
        };
        let value = match value {
            i64::MAX => i64::MAX,
            value => long((float(value) / f64::from(replicas)).ceil()),
        };
        Usage {
            replicas: changed,
            value,
        }
    }

    fn ready_pods(&self) -> Result<usize, String> {
        if self.pods.is_empty() {
            return Err(format!("unable to calculate ready pods: {NO_PODS}"));
        }
        let ready = |pod: &&PodRef| pod.phase == Phase::Running && pod.ready;
        Ok(self.pods.iter().filter(ready).count())
    }
}

/// Utilization of some pods together.
struct Utilized {
    ratio: f64,
    percent: i32,
    average: i64,
}

fn utilization_of(
    metrics: &PodMetrics,
    requests: &BTreeMap<&str, i64>,
    target: i32,
) -> Result<Utilized, String> {
    let (mut used, mut requested, mut pods) = (0_i128, 0_i128, 0_i128);
    for (pod, metric) in metrics {
        let Some(request) = requests.get(pod.as_str()) else {
            continue;
        };
        used += i128::from(metric.value);
        requested += i128::from(*request);
        pods += 1;
    }
    if requested == 0 {
        return Err("no metrics returned matched known pods".to_owned());
    }
    let percent = used * 100 / requested;
    let percent = i32::try_from(percent).unwrap_or(i32::MAX);
    Ok(Utilized {
        ratio: f64::from(percent) / f64::from(target),
        percent,
        average: i64::try_from(used / pods).unwrap_or(i64::MAX),
    })
}

fn average_of(metrics: &PodMetrics) -> i64 {
    let sum: i128 = metrics.values().map(|metric| i128::from(metric.value)).sum();
    let pods = i128::try_from(metrics.len()).unwrap_or(i128::MAX);
    i64::try_from(sum / pods.max(1)).unwrap_or(i64::MAX)
}

/// Requests of each pod for a resource, in thousandths: of one container where it is named, otherwise the pod's own, or those
/// of its containers together.
pub(super) fn requests<'a>(
    pods: &'a [PodRef],
    container: &str,
    resource: &str,
) -> Result<BTreeMap<&'a str, i64>, String> {
    let each = pods.iter().map(|pod| {
        let name = pod.name();
        let request = match (&pod.requests.of_pod, container) {
            (Some(own), "") => own
                .of(resource)
                .ok_or_else(|| format!("missing pod-level request for {resource} in Pod {name}"))?,
            _ => container_requests(pod, container, resource)?,
        };
        Ok((name, request))
    });
    each.collect()
}

fn container_requests(pod: &Object<PodView>, container: &str, resource: &str) -> Result<i64, String> {
    let (mut sum, mut found, name) = (0_i64, container.is_empty(), pod.name());
    let wanted = |own: &str| container.is_empty() || own == container;
    for (own, amounts) in pod.requests.of_containers.iter().filter(|(own, _)| wanted(own)) {
        let amount = amounts.of(resource);
        let amount = amount
            .ok_or_else(|| format!("missing request for {resource} in container {own} of Pod {name}"))?;
        sum = sum.saturating_add(amount);
        found = true;
    }
    match found {
        true => Ok(sum),
        false => Err(format!("container {container} not found in Pod {name}")),
    }
}

fn quotient(value: i64, target: i64) -> f64 {
    float(value) / float(target)
}

#[allow(clippy::cast_precision_loss, reason = "as upstream divides")]
fn float(value: i64) -> f64 {
    value as f64
}

#[allow(clippy::cast_precision_loss, reason = "numbers of pods")]
fn count(pods: usize) -> f64 {
    pods as f64
}

/// The next whole number, within bounds.
#[allow(clippy::cast_possible_truncation, reason = "the cast saturates")]
fn ceiling(value: f64) -> i32 {
    value.ceil() as i32
}

#[allow(clippy::cast_possible_truncation, reason = "the cast saturates")]
fn long(value: f64) -> i64 {
    value as i64
}
