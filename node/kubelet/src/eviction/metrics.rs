//! Counts of evictions in Prometheus' form, under upstream's names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// Upper bounds of Prometheus' default buckets, in milliseconds.
const BUCKETS_MS: [u64; 11] = [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000];

/// Evictions of this agent's life, by signal.
#[derive(Debug, Clone, Default)]
pub(crate) struct EvictionMetrics {
    evicted: BTreeMap<&'static str, u64>,
    ages: BTreeMap<&'static str, Ages>,
}

/// Ages of figures at the time of an eviction.
#[derive(Debug, Clone, Default)]
struct Ages {
    buckets: [u64; BUCKETS_MS.len()],
    count: u64,
    sum: Duration,
}

impl EvictionMetrics {
    /// A pod was evicted for a signal.
    pub(crate) fn evicted(&mut self, signal: &'static str) {
        *self.evicted.entry(signal).or_default() += 1;
    }

    /// A decision was taken for a signal with figures of this age.
    pub(crate) fn decided(&mut self, signal: &'static str, age: Duration) {
        let ages = self.ages.entry(signal).or_default();
        ages.count += 1;
        ages.sum += age;
        for (bucket, bound) in ages.buckets.iter_mut().zip(BUCKETS_MS) {
            *bucket += u64::from(age <= Duration::from_millis(bound));
        }
    }

    /// Appends the text.
    pub(crate) fn write(&self, out: &mut String) {
        out.push_str(
            "# HELP kubelet_evictions [ALPHA] Cumulative number of pod evictions by eviction signal\n\
             # TYPE kubelet_evictions counter\n",
        );
        for (signal, count) in &self.evicted {
            let _ = writeln!(out, "kubelet_evictions{{eviction_signal=\"{signal}\"}} {count}");
        }
        out.push_str(
            "# HELP kubelet_eviction_stats_age_seconds [ALPHA] Time between when stats are collected, and when pod is \
             evicted based on those stats by eviction signal\n\
             # TYPE kubelet_eviction_stats_age_seconds histogram\n",
        );
        for (signal, ages) in &self.ages {
            ages.write(signal, out);
        }
    }
}

impl Ages {
    fn write(&self, signal: &str, out: &mut String) {
        const NAME: &str = "kubelet_eviction_stats_age_seconds";
        let label = format!("eviction_signal=\"{signal}\"");
        for (count, bound) in self.buckets.iter().zip(BUCKETS_MS) {
            let bound = Duration::from_millis(bound).as_secs_f64();
            let _ = writeln!(out, "{NAME}_bucket{{{label},le=\"{bound}\"}} {count}");
        }
        let _ = writeln!(out, "{NAME}_bucket{{{label},le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(out, "{NAME}_sum{{{label}}} {}", self.sum.as_secs_f64());
        let _ = writeln!(out, "{NAME}_count{{{label}}} {}", self.count);
    }
}
