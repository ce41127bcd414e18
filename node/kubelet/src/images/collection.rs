//! Choice of the images that go when the disk fills up, or when they were not used for long; upstream's rules
//! (`image_gc_manager.go`). Pure: the time is passed in.

use std::collections::BTreeMap;
use std::time::Duration;

/// Settings with upstream's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageCollectionConfig {
    /// Part of the disk in percent from which images are removed.
    pub high_threshold_percent: u8,
    /// Part of the disk in percent down to which they are removed.
    pub low_threshold_percent: u8,
    /// Time for which an unused image stays.
    pub minimum_age: Duration,
    /// Time without use after which an image goes whatever the disk has; none where it is zero.
    pub maximum_age: Duration,
}

impl Default for ImageCollectionConfig {
    fn default() -> Self {
        Self {
            high_threshold_percent: 85,
            low_threshold_percent: 80,
            minimum_age: Duration::from_secs(120),
            maximum_age: Duration::ZERO,
        }
    }
}

impl ImageCollectionConfig {
    /// Everything wrong with it, in upstream's words.
    pub fn problems(&self) -> Vec<String> {
        let (high, low) = (self.high_threshold_percent, self.low_threshold_percent);
        let mut problems = Vec::new();
        for (name, flag, percent) in [("High", "high", high), ("Low", "low", low)] {
            if percent > 100 {
                problems.push(format!(
                    "invalid configuration: imageGC{name}ThresholdPercent (--image-gc-{flag}-threshold) {percent} must be \
                     between 0 and 100, inclusive"
                ));
            }
        }
        if low >= high {
            problems.push(format!(
                "invalid configuration: imageGCLowThresholdPercent (--image-gc-low-threshold) {low} must be less than \
                 imageGCHighThresholdPercent (--image-gc-high-threshold) {high}"
            ));
        }
        let (minimum, maximum) = (self.minimum_age, self.maximum_age);
        if !maximum.is_zero() && maximum <= minimum {
            problems.push(format!(
                "invalid configuration: imageMaximumGCAge {maximum:?} must be greater than imageMinimumGCAge {minimum:?}"
            ));
        }
        problems
    }

    /// Reports whether no image is ever removed but for an eviction.
    pub fn is_off(&self) -> bool {
        self.high_threshold_percent == 100 && self.maximum_age.is_zero()
    }

    /// Part of the disk in use in percent, and bytes to free where that is too much.
    pub fn to_free(&self, capacity: u64, available: u64) -> (u8, Option<u64>) {
        let (capacity, available) = (u128::from(capacity), u128::from(available.min(capacity)));
        let free = (available * 100).checked_div(capacity).unwrap_or(100);
        let used = 100 - u8::try_from(free).unwrap_or(100);
        let wanted = capacity * u128::from(100 - self.low_threshold_percent.min(100)) / 100;
        let amount = u64::try_from(wanted.saturating_sub(available)).unwrap_or(u64::MAX);
        (used, (used >= self.high_threshold_percent).then_some(amount))
    }
}

/// An image as the runtime has it now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FoundImage {
    pub(super) id: String,
    pub(super) size: u64,
    /// It stays whatever happens.
    pub(super) pinned: bool,
    /// A container has it, or is about to.
    pub(super) used: bool,
}

/// Knowledge of images since the agent began.
#[derive(Debug, Default)]
pub(super) struct ImageRecords(BTreeMap<String, ImageRecord>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ImageRecord {
    first_detected: Duration,
    last_used: Option<Duration>,
}

/// An image that may be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) id: String,
    pub(super) size: u64,
    first_detected: Duration,
    last_used: Option<Duration>,
}

impl ImageRecords {
    /// Reads what the runtime has, and returns the unused images: those that were not used for longest
    /// first, of equals those known for longest.
    pub(super) fn detect(&mut self, found: &[FoundImage], now: Duration) -> Vec<Candidate> {
        let known = std::mem::take(&mut self.0);
        for image in found {
            let record = known.get(&image.id).copied().unwrap_or(ImageRecord {
                first_detected: now,
                last_used: None,
            });
            let last_used = if image.used { Some(now) } else { record.last_used };
            self.0
                .insert(image.id.clone(), ImageRecord { last_used, ..record });
        }
        let unused = found.iter().filter(|image| !image.used && !image.pinned);
        let mut candidates: Vec<Candidate> = unused
            .filter_map(|image| {
                let record = self.0.get(&image.id)?;
                Some(Candidate {
                    id: image.id.clone(),
                    size: image.size,
                    first_detected: record.first_detected,
                    last_used: record.last_used,
                })
            })
            .collect();
        candidates.sort_by_key(|own| (own.last_used, own.first_detected));
        candidates
    }
}

/// Splits off the images that were not used for longer than the maximum age, once the agent has run for as long.
pub(super) fn split_old(
    candidates: Vec<Candidate>,
    config: &ImageCollectionConfig,
    began: Duration,
    now: Duration,
) -> (Vec<Candidate>, Vec<Candidate>) {
    let age = config.maximum_age;
    if age.is_zero() || now.saturating_sub(began) <= age {
        return (Vec::new(), candidates);
    }
    let is_old = |own: &Candidate| own.last_used.is_none_or(|at| now.saturating_sub(at) > age);
    candidates.into_iter().partition(is_old)
}

impl Candidate {
    /// Reports whether it is known for long enough: a fresh image may be used at once.
    pub(super) fn may_go(&self, config: &ImageCollectionConfig, now: Duration) -> bool {
        now.saturating_sub(self.first_detected) >= config.minimum_age
    }
}

/// Upstream's form of a size.
#[expect(clippy::cast_precision_loss, reason = "it is printed with one digit")]
pub(super) fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        unit = next;
    }
    format!("{size:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str, size: u64) -> FoundImage {
        FoundImage {
            id: id.to_owned(),
            size,
            ..FoundImage::default()
        }
    }

    fn used(id: &str) -> FoundImage {
        FoundImage {
            used: true,
            ..image(id, 1)
        }
    }

    fn ids(candidates: &[Candidate]) -> Vec<&str> {
        candidates.iter().map(|own| own.id.as_str()).collect()
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Upstream's `TestFreeSpaceRemoveByLeastRecentlyUsed` and `TestFreeSpaceTiesBrokenByDetectedTime`.
    #[test]
    fn images_used_least_recently_go_first() {
        let mut records = ImageRecords::default();
        records.detect(&[used("0"), used("1")], at(1));
        records.detect(&[used("1"), image("0", 1)], at(2));
        let found = [image("0", 1), image("1", 1), image("2", 1)];
        records.detect(&found, at(3));
        let later = [&found[..], &[image("3", 1)]].concat();
        let candidates = records.detect(&later, at(4));
        assert_eq!(
            ids(&candidates),
            ["2", "3", "0", "1"],
            "never used, by age, then by use"
        );
        let gone = records.detect(&[image("3", 1)], at(5));
        assert_eq!(ids(&gone), ["3"]);
        let again = records.detect(&later, at(6));
        assert_eq!(ids(&again), ["3", "0", "1", "2"], "what is gone is forgotten");
    }

    /// Upstream's `TestDeletePinnedImage` and `TestFreeSpaceImagesInUseContainersAreIgnored`.
    #[test]
    fn images_pinned_or_in_use_stay() {
        let pinned = FoundImage {
            pinned: true,
            ..image("pinned", 1)
        };
        let candidates = ImageRecords::default().detect(&[pinned, used("used"), image("idle", 1)], at(9));
        assert_eq!(ids(&candidates), ["idle"]);
    }

    /// Upstream's `TestGarbageCollectImageNotOldEnough`, `TestGarbageCollectImageTooOld` and
    /// `TestGarbageCollectImageMaxAgeDisabled`.
    #[test]
    fn images_go_by_age() {
        let config = |maximum: u64| ImageCollectionConfig {
            minimum_age: at(60),
            maximum_age: at(maximum),
            ..ImageCollectionConfig::default()
        };
        let mut records = ImageRecords::default();
        records.detect(&[used("seen"), image("never", 1)], at(0));
        let found = [image("seen", 1), image("never", 1)];
        let now = |seconds: u64, records: &mut ImageRecords| records.detect(&found, at(seconds));
        let fresh = now(59, &mut records);
        assert!(fresh.iter().all(|own| !own.may_go(&config(0), at(59))));
        assert!(fresh.iter().all(|own| own.may_go(&config(0), at(60))));
        let split = |age: u64, began: u64, seconds: u64| {
            let (old, rest) = split_old(fresh.clone(), &config(age), at(began), at(seconds));
            (old.len(), rest.len())
        };
        assert_eq!(split(0, 0, 1_000_000), (0, 2), "no age is too old");
        assert_eq!(split(100, 0, 100), (0, 2), "the agent has not seen enough");
        assert_eq!(split(100, 0, 101), (2, 0));
        records.detect(&[used("seen"), image("never", 1)], at(90));
        let candidates = records.detect(&found, at(101));
        let (old, rest) = split_old(candidates, &config(100), at(0), at(101));
        assert_eq!((ids(&old), ids(&rest)), (vec!["never"], vec!["seen"]));
    }

    /// Upstream's `TestGarbageCollectBelowLowThreshold`, `TestGarbageCollectBelowSuccess` and
    /// `TestGarbageCollectNotEnoughFreed`: thresholds of 90 and 80 percent.
    #[test]
    fn images_go_when_the_disk_is_above_the_high_threshold() {
        let config = ImageCollectionConfig {
            high_threshold_percent: 90,
            low_threshold_percent: 80,
            ..ImageCollectionConfig::default()
        };
        assert_eq!(config.to_free(1000, 600), (40, None));
        assert_eq!(config.to_free(1000, 101), (90, Some(99)), "as upstream rounds");
        assert_eq!(config.to_free(1000, 50), (95, Some(150)));
        assert_eq!(config.to_free(1000, 2000), (0, None));
        assert_eq!(config.to_free(0, 0), (0, None));
    }

    /// Upstream's `TestValidateImageGCPolicy` and its validation of the configuration.
    #[test]
    fn image_collection_settings_are_checked_as_upstreams() {
        let problems = |high: u8, low: u8, minimum: u64, maximum: u64| {
            let config = ImageCollectionConfig {
                high_threshold_percent: high,
                low_threshold_percent: low,
                minimum_age: at(minimum),
                maximum_age: at(maximum),
            };
            config.problems().len()
        };
        assert_eq!(problems(85, 80, 120, 0), 0);
        assert_eq!(problems(101, 80, 120, 0), 1);
        assert_eq!(problems(2, 2, 0, 0), 1);
        assert_eq!(problems(100, 101, 0, 0), 2);
        assert_eq!(problems(85, 80, 120, 120), 1);
        assert!(
            ImageCollectionConfig {
                high_threshold_percent: 100,
                ..ImageCollectionConfig::default()
            }
            .is_off()
        );
    }

    #[test]
    fn sizes_are_printed_as_upstreams() {
        let texts = [512, 1536, 5 << 20, 3 << 30, 2 << 40].map(size_text);
        assert_eq!(texts, ["512 B", "1.5 KiB", "5.0 MiB", "3.0 GiB", "2.0 TiB"]);
    }
}
