//! How often watches are written to when there is very much to tell.
//!
//! A write to a connection costs more than what it carries. As long as few are written nobody waits; once they come
//! thick, a watch that was told something a moment ago waits the moment out, and is then told all there is at once.

use parking_lot::Mutex;
use std::time::Duration;

/// A moment. No watch waits longer.
const MOMENT: Duration = Duration::from_millis(20);
/// More frames than this within a moment are many: a few per cent of a core.
const MANY: u32 = 128;

/// Counts the frames of all watches of a server.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// Which moment since the clock began.
    moment: u128,
    now: u32,
    before: u32,
}

impl Pace {
    /// A watch that was told something at `last` is told more from this time on; `None` is at once.
    pub(super) fn wait(&self, last: Duration, now: Duration) -> Option<Duration> {
        let until = last + MOMENT;
        (now < until && self.are_many(now)).then_some(until)
    }

    /// A frame goes out.
    pub(super) fn sent(&self, now: Duration) {
        self.with(now, |counts| counts.now = counts.now.saturating_add(1));
    }

    fn are_many(&self, now: Duration) -> bool {
        self.with(now, |counts| counts.now.max(counts.before) > MANY)
    }

    fn with<T>(&self, now: Duration, look: impl FnOnce(&mut Counts) -> T) -> T {
        let moment = now.as_micros() / MOMENT.as_micros();
        let mut counts = self.0.lock();
        // A reading of the clock from just before another's changes nothing.
        if moment > counts.moment {
            let next = moment == counts.moment + 1;
            *counts = Counts {
                moment,
                now: 0,
                before: if next { counts.now } else { 0 },
            };
        }
        look(&mut counts)
    }
}

#[cfg(test)]
mod tests {
    use super::{MANY, MOMENT, Pace};
    use std::time::Duration;

    #[test]
    fn only_among_many_frames_one_waits() {
        let pace = Pace::default();
        let at = |millis: u64| Duration::from_millis(1_000 + millis);
        assert_eq!(pace.wait(at(0), at(1)), None, "nothing was written yet");
        (0..=MANY).for_each(|_| pace.sent(at(1)));
        assert_eq!(pace.wait(at(0), at(1)), Some(at(0) + MOMENT));
        assert_eq!(pace.wait(Duration::ZERO, at(1)), None, "told long ago");
        assert_eq!(
            pace.wait(at(21), at(22)),
            Some(at(21) + MOMENT),
            "the moment before counts"
        );
        assert_eq!(pace.wait(at(61), at(62)), None, "it is quiet again");
    }
}
