//! Cost of work on this thread, and its growth with the length of a list.

use std::collections::BTreeMap;
use std::time::Duration;

/// Four times the length may cost so many times as much: twice of what is in proportion. Work that is done for each of its
/// items costs sixteen times as much.
const MAX_GROWTH: f64 = 8.0;
/// Less is not measured well, and is nothing to worry about.
const LEAST: Duration = Duration::from_millis(8);
/// A thread that was interrupted looks busier than it was.
const ATTEMPTS: usize = 3;

/// The time for which a processor has run this thread, whatever else it ran meanwhile.
fn on_processor() -> Duration {
    // Brings the kernel's account of this thread up to date.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts");
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number of nanoseconds"))
}

/// Costs of the stages of some work, by name.
#[derive(Debug, Default)]
pub struct Stages(BTreeMap<&'static str, Duration>);

impl Stages {
    /// Runs work that is a part of this stage.
    pub fn of<T>(&mut self, stage: &'static str, work: impl FnOnce() -> T) -> T {
        let before = on_processor();
        let made = work();
        *self.0.entry(stage).or_default() += on_processor() - before;
        made
    }

    /// The stages that cost more than they may, beside the same with a quarter of the length.
    fn beyond(&self, quarter: &Self) -> Vec<String> {
        let growth = self.0.iter().map(|(stage, cost)| {
            let short = quarter.0.get(stage).copied().unwrap_or_default().max(LEAST);
            (stage, short, cost, cost.as_secs_f64() / short.as_secs_f64())
        });
        growth
            .filter(|(.., times)| *times > MAX_GROWTH)
            .map(|(stage, short, cost, times)| {
                format!("{stage}: {short:?} grew to {cost:?}, {times:.1} times")
            })
            .collect()
    }
}

/// Problems of work on a list of this length: none if it costs about four times the work on a quarter of it.
pub fn growth(length: usize, work: impl Fn(&mut Stages, usize)) -> Vec<String> {
    let measured = |length| {
        let mut stages = Stages::default();
        work(&mut stages, length);
        stages
    };
    let mut beyond = Vec::new();
    for _ in 0..ATTEMPTS {
        let quarter = measured(length / 4);
        beyond = measured(length).beyond(&quarter);
        if beyond.is_empty() {
            break;
        }
    }
    beyond
}
