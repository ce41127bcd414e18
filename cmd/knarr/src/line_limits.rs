//! Bound of the log's growth. Much of what is logged is what clients, pods and nodes do, so that one of them could make lines as
//! often as it likes: from one place in the code there are so many within an interval, and the next one says how many were left
//! out.

use machinery_runtime::LogThrottle;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};

const INTERVAL: Duration = Duration::from_secs(10);
/// Lines of one place within an interval.
const MOST: u32 = 100;

/// Lines of each place. There are as many places as the program has.
#[derive(Debug)]
pub(crate) struct LineLimits {
    began: Instant,
    places: Mutex<HashMap<Identifier, LogThrottle>>,
}

impl LineLimits {
    pub(crate) fn new() -> Self {
        Self {
            began: now(),
            places: Mutex::default(),
        }
    }

    /// Number of lines of an event's place that were left out since the last one, where this one is to be written. Lines for
    /// debugging have no bound: an operator that enables them gets all.
    pub(crate) fn should_write(&self, event: &Metadata<'_>) -> Option<u64> {
        match *event.level() > Level::INFO {
            true => Some(0),
            false => self.counted(event.callsite(), now() - self.began),
        }
    }

    fn counted(&self, place: Identifier, now: Duration) -> Option<u64> {
        let mut places = self.places.lock();
        let throttle = places.entry(place);
        let throttle = throttle.or_insert_with(|| LogThrottle::new(MOST, INTERVAL));
        throttle.should_log(now)
    }
}

#[expect(clippy::disallowed_methods, reason = "the log is there before any runtime")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place of the event that this logs.
    fn place(log: impl FnOnce()) -> Identifier {
        #[derive(Default)]
        struct Seen(Mutex<Option<Identifier>>);
        impl tracing::Subscriber for &'static Seen {
            fn enabled(&self, _: &Metadata<'_>) -> bool {
                true
            }
            fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
                tracing::span::Id::from_u64(1)
            }
            fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
            fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
            fn event(&self, event: &tracing::Event<'_>) {
                *self.0.lock() = Some(event.metadata().callsite());
            }
            fn enter(&self, _: &tracing::span::Id) {}
            fn exit(&self, _: &tracing::span::Id) {}
        }
        let seen: &'static Seen = Box::leak(Box::default());
        tracing::subscriber::with_default(seen, log);
        seen.0.lock().clone().unwrap()
    }

    #[test]
    fn log_lines_of_one_place_are_counted_by_interval() {
        let limits = LineLimits::new();
        let one = place(|| tracing::info!("one"));
        let other = place(|| tracing::info!("other"));
        let at = |place: &Identifier, seconds| limits.counted(place.clone(), Duration::from_secs(seconds));
        for _ in 0..MOST {
            assert_eq!(at(&one, 1), Some(0));
        }
        for _ in 0..3 {
            assert_eq!(at(&one, 9), None);
        }
        assert_eq!(at(&other, 9), Some(0));
        assert_eq!((at(&one, 11), at(&one, 11)), (Some(3), Some(0)));
    }
}
