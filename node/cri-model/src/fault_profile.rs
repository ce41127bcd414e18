//! Behaviour of a container runtime within what CRI lets it do.

use crate::{Machine, refusals};
use std::time::Duration;
use tonic::Status;

/// Faults and delays of a [`Containerd`](crate::Containerd). A rate of zero is never.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultProfile {
    /// The longest a request or an answer is under way.
    pub delay: Duration,
    /// The longest a step of an operation takes.
    pub work: Duration,
    /// The longest the bookkeeping is behind what happens, and behind the events about it.
    pub lag: Duration,
    /// One in so many calls breaks before the daemon sees it, and one in so many after it is carried out.
    pub break_one_in: u64,
    /// One in so many steps takes until the caller's timeout.
    pub hang_one_in: u64,
    /// One in so many steps fails.
    pub fail_one_in: u64,
    /// One in so many events is lost.
    pub lose_event_one_in: u64,
}

impl FaultProfile {
    /// Answers at once and always.
    pub fn none() -> Self {
        Self::default()
    }

    /// Slow, and behind its own events.
    pub fn slow() -> Self {
        Self {
            delay: Duration::from_millis(20),
            work: Duration::from_millis(300),
            lag: Duration::from_millis(100),
            ..Self::none()
        }
    }

    /// Slow, and everything goes wrong now and then.
    pub fn stormy() -> Self {
        Self {
            break_one_in: 60,
            hang_one_in: 300,
            fail_one_in: 80,
            lose_event_one_in: 10,
            ..Self::slow()
        }
    }
}

impl Machine {
    fn weather(&self) -> FaultProfile {
        self.weather.lock().clone()
    }

    /// Draws true once in so many times.
    pub(crate) fn one_in(&self, count: u64) -> bool {
        count != 0 && self.runtime.random_u64().is_multiple_of(count)
    }

    async fn delay(&self, most: Duration) {
        let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        if micros > 0 {
            let pause = Duration::from_micros(self.runtime.random_u64() % micros);
            self.runtime.sleep(pause).await;
        }
    }

    /// A request's or an answer's way.
    pub(crate) async fn way(&self) -> Result<(), Status> {
        let weather = self.weather();
        self.delay(weather.delay).await;
        if self.one_in(weather.break_one_in) {
            return Err(refusals::lost());
        }
        Ok(())
    }

    pub(crate) async fn lag(&self) {
        self.delay(self.weather().lag).await;
    }

    pub(crate) fn loses_event(&self) -> bool {
        self.one_in(self.weather().lose_event_one_in)
    }

    /// A step of an operation, which may take long, fail, or hang until the caller goes.
    pub(crate) async fn step(&self, context: &crate::serve::Context) -> Result<(), Status> {
        let weather = self.weather();
        self.delay(weather.work).await;
        if self.one_in(weather.hang_one_in) {
            context.cancelled.cancelled().await;
            return Err(refusals::cancelled());
        }
        if self.one_in(weather.fail_one_in) {
            return Err(refusals::failed_by_itself());
        }
        // A caller that has gone ends an operation at some of its steps.
        if context.cancelled.is_cancelled() && self.one_in(2) {
            return Err(refusals::cancelled());
        }
        Ok(())
    }
}
