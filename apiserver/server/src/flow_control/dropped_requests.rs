//! After how many seconds a rejected client may come again: the more requests a level drops, the later.

use parking_lot::Mutex;
use std::collections::VecDeque;

const MAX_RETRY_AFTER: u64 = 32;

/// Rejections of one priority level.
#[derive(Debug)]
pub(super) struct DroppedRequests(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Whole seconds, each with the requests dropped in it.
    history: VecDeque<(u64, u64)>,
    current: (u64, u64),
    retry_after: u64,
    raised_at: u64,
}

impl Default for DroppedRequests {
    fn default() -> Self {
        Self(Mutex::new(State {
            history: VecDeque::new(),
            current: (0, 0),
            retry_after: 1,
            raised_at: 0,
        }))
    }
}

impl DroppedRequests {
    /// Notes one at this second; answers the seconds of `Retry-After`.
    pub(super) fn note(&self, second: u64) -> u64 {
        let mut state = self.0.lock();
        if state.current.0 == second {
            state.current.1 += 1;
        } else {
            let ended = state.current;
            state.history.push_back(ended);
            let kept = (2 * state.retry_after).min(MAX_RETRY_AFTER);
            while state
                .history
                .front()
                .is_some_and(|(first, _)| ended.0.saturating_sub(*first) > kept)
            {
                state.history.pop_front();
            }
            state.current = (second, 1);
            state.adjust(second);
        }
        state.retry_after
    }
}

impl State {
    /// Doubles where more than three a second came in spite of it, and falls by one where less than one did.
    fn adjust(&mut self, now: u64) {
        let is_recent = |(second, _): &&(u64, u64)| *second < now && now - second <= self.retry_after;
        let dropped: u64 = self
            .history
            .iter()
            .rev()
            .take_while(is_recent)
            .map(|(_, count)| count)
            .sum();
        if now.saturating_sub(self.raised_at) >= self.retry_after && dropped >= 3 * self.retry_after {
            self.retry_after = (2 * self.retry_after).min(MAX_RETRY_AFTER);
            self.raised_at = now;
        } else if dropped < self.retry_after && self.retry_after > 1 {
            self.retry_after -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drop_many(dropped: &DroppedRequests, second: u64, count: u64) -> u64 {
        (0..count).map(|_| dropped.note(second)).last().unwrap()
    }

    /// The course of upstream's `dropped_requests_tracker_test.go`.
    #[test]
    fn dropped_requests_raise_the_seconds_of_retry_after() {
        let dropped = DroppedRequests::default();
        for second in 1_000..1_003 {
            assert_eq!(drop_many(&dropped, second, 1), 1);
        }
        drop_many(&dropped, 1_003, 5);
        assert_eq!(drop_many(&dropped, 1_004, 5), 2);
        for second in 1_005..1_040 {
            drop_many(&dropped, second, 500);
        }
        assert_eq!(dropped.note(1_100), 31, "quiet since then");
        let at_once: Vec<u64> = (0..60).map(|at| dropped.note(1_200 + 100 * at)).collect();
        assert_eq!(at_once.last(), Some(&1));
    }
}
