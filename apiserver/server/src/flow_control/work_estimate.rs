//! The seats a request takes, by upstream's estimates: a list by the bytes it holds in memory at once, a change by the
//! watchers that receive it.

use std::time::Duration;

/// Estimated duration of a request's initial phase, until it is known.
pub(super) const ESTIMATED_SERVICE_DURATION: Duration = Duration::from_millis(3);
const MINIMUM_SEATS: u32 = 1;
const MAXIMUM_LIST_SEATS: u32 = 100;
const MAXIMUM_MUTATING_SEATS: u32 = 10;
const BYTES_PER_SEAT: u64 = 100_000;
/// A list from the cache holds no more than this at once (upstream's `cacheWithStreamingMaxMemoryUsage`).
const CACHED_LIST_BYTES: u64 = 1_000_000;
/// The size of objects before any was seen.
const MAX_OBJECT_BYTES: u64 = 1_500_000;
const WATCHES_PER_SEAT: usize = 10;
/// Time that the delivery of an event to one watcher keeps a seat.
const EVENT_DURATION: Duration = Duration::from_millis(5);

/// A request's work: seats while it is executed, and seats that are kept for a while afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkEstimate {
    pub(crate) initial_seats: u32,
    pub(crate) final_seats: u32,
    pub(crate) additional_latency: Duration,
}

impl WorkEstimate {
    pub(crate) fn seats(initial_seats: u32) -> Self {
        Self {
            initial_seats,
            final_seats: 0,
            additional_latency: Duration::ZERO,
        }
    }

    pub(crate) const MINIMUM: u32 = MINIMUM_SEATS;

    pub(crate) fn max_seats(&self) -> u32 {
        self.initial_seats.max(self.final_seats)
    }

    /// Seat-seconds of both phases.
    pub(super) fn total_work(&self) -> f64 {
        f64::from(self.initial_seats) * ESTIMATED_SERVICE_DURATION.as_secs_f64() + self.final_work()
    }

    pub(super) fn final_work(&self) -> f64 {
        f64::from(self.final_seats) * self.additional_latency.as_secs_f64()
    }

    /// The same final work in fewer seats and for longer.
    pub(super) fn narrowed_to(self, seats: u32) -> Self {
        if self.final_seats <= seats || seats == 0 {
            return self;
        }
        Self {
            final_seats: seats,
            additional_latency: Duration::from_secs_f64(self.final_work() / f64::from(seats)),
            ..self
        }
    }
}

/// Number and mean size of the objects that a list goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ObjectStats {
    pub(crate) count: u64,
    pub(crate) average_bytes: u64,
}

/// A list, or a watch that begins with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListRequest {
    pub(crate) limit: u64,
    /// One object is selected by name.
    pub(crate) single: bool,
    /// Objects are selected by label or field: many may be looked at for each that is returned.
    pub(crate) selects: bool,
    /// Upstream's cache answers it, in whatever form.
    pub(crate) from_cache: bool,
}

fn bounded(maximum_of_level: u32, maximum: u32) -> u32 {
    match maximum_of_level {
        0 => maximum,
        of_level => of_level.min(maximum),
    }
}

/// `maximum_of_level` is 0 where the level sets none; lists of unknown resources need the least.
pub(crate) fn list(request: ListRequest, stats: Option<ObjectStats>, maximum_of_level: u32) -> WorkEstimate {
    let maximum = bounded(maximum_of_level, MAXIMUM_LIST_SEATS);
    let Some(stats) = stats else {
        return WorkEstimate::seats(MINIMUM_SEATS);
    };
    let average = match stats.average_bytes {
        0 if stats.count > 0 => MAX_OBJECT_BYTES,
        average => average,
    };
    let limited = match request.limit {
        0 => stats.count,
        limit => limit.min(stats.count),
    };
    let loaded = match request {
        ListRequest { single: true, .. } => 1,
        // Upstream's estimate of a list that its cache does not answer: here each one is looked for in all that is stored.
        ListRequest { selects: true, .. } => limited.max(stats.count / 2),
        _ => limited,
    };
    let bytes = loaded.saturating_mul(average);
    let bytes = if request.from_cache {
        bytes.min(CACHED_LIST_BYTES)
    } else {
        bytes
    };
    let seats = u32::try_from(bytes.div_ceil(BYTES_PER_SEAT)).unwrap_or(u32::MAX);
    WorkEstimate::seats(seats.max(MINIMUM_SEATS).min(maximum))
}

/// A create, update, patch or delete which so many watches receive.
pub(crate) fn mutating(watches: usize, maximum_of_level: u32) -> WorkEstimate {
    let maximum = bounded(maximum_of_level, MAXIMUM_MUTATING_SEATS);
    if watches < WATCHES_PER_SEAT {
        return WorkEstimate::seats(MINIMUM_SEATS);
    }
    let estimate = WorkEstimate {
        initial_seats: MINIMUM_SEATS,
        final_seats: u32::try_from(watches.div_ceil(WATCHES_PER_SEAT)).unwrap_or(u32::MAX),
        additional_latency: EVENT_DURATION,
    };
    estimate.narrowed_to(maximum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_list(
        limit: u64,
        single: bool,
        from_cache: bool,
        stats: (u64, u64),
        of_level: u32,
        expected: u32,
    ) {
        let selects = false;
        let request = ListRequest {
            limit,
            single,
            selects,
            from_cache,
        };
        let (count, average_bytes) = stats;
        let estimate = list(request, Some(ObjectStats { count, average_bytes }), of_level);
        assert_eq!(estimate, WorkEstimate::seats(expected));
    }

    /// Cases of upstream's `list_work_estimator_test.go` and `width_test.go`.
    #[test]
    fn work_estimate_of_lists_is_upstreams() {
        check_list(0, false, false, (0, 0), 0, 1);
        check_list(0, false, false, (1, 1_000), 0, 1);
        check_list(0, false, false, (100, 1_000), 0, 1);
        check_list(0, false, false, (101, 1_000), 0, 2);
        check_list(0, false, false, (10_000, 1_000), 0, 100);
        check_list(0, false, false, (1_000_000, 1_000), 0, 100);
        check_list(500, false, false, (10_000, 1_000), 0, 5);
        check_list(0, false, true, (10_000, 1_000), 0, 10);
        check_list(0, false, true, (500, 1_000), 0, 5);
        check_list(0, true, false, (10_000, 1_000), 0, 1);
        check_list(0, true, false, (10_000, 1_000_000), 0, 10);
        check_list(0, false, false, (10_000, 1_000), 15, 15);
        check_list(0, false, false, (10_000, 1_000), 1, 1);
        // Objects of which no size is known are taken to be large.
        check_list(0, false, false, (1, 0), 0, 15);
        let unknown = ListRequest {
            limit: 0,
            single: false,
            selects: false,
            from_cache: false,
        };
        assert_eq!(list(unknown, None, 0), WorkEstimate::seats(1));
    }

    #[test]
    fn work_estimate_of_selectors_is_by_what_is_looked_at() {
        let seats = |limit, single, from_cache| {
            let request = ListRequest {
                limit,
                single,
                selects: true,
                from_cache,
            };
            let stats = ObjectStats {
                count: 4_000,
                average_bytes: 1_000,
            };
            list(request, Some(stats), 0).initial_seats
        };
        // Half of all that there is, and no more than what is sent holds at once.
        assert_eq!(seats(1, false, false), 20);
        assert_eq!(seats(1, false, true), 10);
        assert_eq!(seats(3_000, false, false), 30);
        assert_eq!(seats(0, false, false), 40);
        assert_eq!(seats(1, true, false), 1);
    }

    #[track_caller]
    fn check_mutating(watches: usize, of_level: u32, seats: u32, latency_millis: u64) {
        let expected = WorkEstimate {
            initial_seats: 1,
            final_seats: seats,
            additional_latency: Duration::from_millis(latency_millis),
        };
        let estimate = mutating(watches, of_level);
        let off = estimate.additional_latency.abs_diff(expected.additional_latency);
        assert!(off < Duration::from_micros(1), "{estimate:?}");
        assert_eq!((estimate.initial_seats, estimate.final_seats), (1, seats));
    }

    /// Cases of upstream's `width_test.go`.
    #[test]
    fn work_estimate_of_changes_is_upstreams() {
        check_mutating(0, 10, 0, 0);
        check_mutating(5, 10, 0, 0);
        check_mutating(9, 10, 0, 0);
        check_mutating(10, 10, 1, 5);
        check_mutating(29, 10, 3, 5);
        check_mutating(5_000, 10, 10, 250);
        check_mutating(5_000, 5, 5, 500);
        check_mutating(5_000, 0, 10, 250);
        check_mutating(199, 10, 10, 10);
    }
}
