//! Flags of `knarr agent` about what ends or goes when the node runs short, with the kubelet's names and words.

use clap::Args;
use machinery_schema::leaf::parse_duration;
use node_kubelet::eviction::thresholds::{known_signal, pairs, parse_minimum_reclaim};
use node_kubelet::eviction::{EvictionConfig, GracePeriods, Thresholds, parse_thresholds};
use node_kubelet::images::ImageCollectionConfig;
use std::time::Duration;

#[derive(Args, Debug, Clone)]
pub(crate) struct EvictionArguments {
    /// Eviction thresholds that a pod is evicted for once they were met for their grace period (e.g. memory.available<1.5Gi)
    #[arg(long, default_value = "", value_parser = parse_thresholds)]
    eviction_soft: Thresholds,
    /// Grace periods of the soft eviction thresholds (e.g. memory.available=1m30s)
    #[arg(long, default_value = "", value_parser = grace_periods)]
    eviction_soft_grace_period: GracePeriods,
    /// Amounts that are reclaimed at least when a resource runs short (e.g. imagefs.available=2Gi)
    #[arg(long, default_value = "", value_parser = parse_minimum_reclaim)]
    eviction_minimum_reclaim: Thresholds,
    /// Time for which the node stays under pressure after it was observed last
    #[arg(long, default_value = "5m", value_parser = duration)]
    eviction_pressure_transition_period: Duration,
    /// Longest grace period in seconds of a pod that is evicted for a soft threshold; negative is the pod's own
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    eviction_max_pod_grace_period: i32,
    /// Part of the disk in percent from which unused images are removed; 100 is never
    #[arg(long, default_value_t = 85)]
    image_gc_high_threshold: u8,
    /// Part of the disk in percent down to which unused images are removed
    #[arg(long, default_value_t = 80)]
    image_gc_low_threshold: u8,
    /// Time for which an image stays although no container uses it
    #[arg(long, default_value = "2m", value_parser = duration)]
    minimum_image_ttl_duration: Duration,
    /// Time without use after which an image is removed whatever the disk has; 0s is never
    #[arg(long, default_value = "0s", value_parser = duration)]
    image_maximum_gc_age: Duration,
}

impl EvictionArguments {
    pub(crate) fn image_collection(&self) -> ImageCollectionConfig {
        ImageCollectionConfig {
            high_threshold_percent: self.image_gc_high_threshold,
            low_threshold_percent: self.image_gc_low_threshold,
            minimum_age: self.minimum_image_ttl_duration,
            maximum_age: self.image_maximum_gc_age,
        }
    }
}

impl From<EvictionArguments> for EvictionConfig {
    fn from(arguments: EvictionArguments) -> Self {
        Self {
            soft: arguments.eviction_soft,
            soft_grace_period: arguments.eviction_soft_grace_period,
            minimum_reclaim: arguments.eviction_minimum_reclaim,
            pressure_transition_period: arguments.eviction_pressure_transition_period,
            max_pod_grace_period_seconds: arguments.eviction_max_pod_grace_period.into(),
        }
    }
}

/// Reads `memory.available=1m30s`.
fn grace_periods(text: &str) -> Result<GracePeriods, String> {
    let mut periods = GracePeriods::new();
    for (signal, value) in pairs(text, '=')? {
        known_signal(signal)?;
        let period = nanoseconds(value)?.ok_or_else(|| {
            format!("invalid eviction grace period specified: {value}, must be a positive value")
        })?;
        periods.insert(signal.to_owned(), period);
    }
    Ok(periods)
}

/// A duration as Go reads it; `None` where it is negative.
fn nanoseconds(text: &str) -> Result<Option<Duration>, String> {
    let nanos = parse_duration(text)?;
    Ok(u64::try_from(nanos).ok().map(Duration::from_nanos))
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    nanoseconds(text)?.ok_or_else(|| "must not be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        own: EvictionArguments,
    }

    fn parsed(flags: &[&str]) -> Result<EvictionArguments, String> {
        let words = ["agent"].into_iter().chain(flags.iter().copied());
        Flags::try_parse_from(words)
            .map(|flags| flags.own)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn eviction_flags_have_upstreams_defaults_and_words() {
        let own = parsed(&[]).unwrap();
        assert_eq!(own.image_collection(), ImageCollectionConfig::default());
        assert_eq!(EvictionConfig::from(own), EvictionConfig::default());
        let own = parsed(&[
            "--eviction-soft=memory.available<1Gi",
            "--eviction-soft-grace-period=memory.available=1m30s",
            "--eviction-max-pod-grace-period=-1",
        ]);
        let own = EvictionConfig::from(own.unwrap());
        assert_eq!(own.soft_grace_period["memory.available"], Duration::from_secs(90));
        assert_eq!(own.max_pod_grace_period_seconds, -1);
        for (flag, words) in [
            (
                "--eviction-soft-grace-period=mem.available=30s",
                "unsupported eviction signal mem.available",
            ),
            ("--eviction-soft-grace-period=memory.available=30mins", "30mins"),
            (
                "--eviction-soft-grace-period=memory.available=-30s",
                "must be a positive value",
            ),
            (
                "--eviction-minimum-reclaim=memory.available=-1Gi",
                "negative eviction minimum reclaim specified for memory.available",
            ),
            ("--minimum-image-ttl-duration=-2m", "must not be negative"),
        ] {
            let error = parsed(&[flag]).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
