//! The order of turns.

use super::flow::{Debtor, HeavyFlow};
use super::{HeavyFigures, Kind, Task};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests of one account or namespace that may wait, and requests of all from which on each has one at a time.
pub(super) const MAX_WAITING_OF_FLOW: usize = 128;
pub(super) const MAX_WAITING: usize = 1_024;
/// Requests of one account or namespace that may await something else than a thread (storage, another server) or have one:
/// each holds what it has read and decoded.
pub(super) const MAX_BEGUN_OF_FLOW: usize = 256;
/// Accounts and namespaces that have nothing to do are forgotten from here on.
pub(super) const MAX_IDLE_DEBTORS: usize = 64;
/// Time used lately up to which a debt is little.
const LITTLE_DEBT: Duration = Duration::from_millis(200);
/// A debt is also little where it is this part at most of what each flow on the threads owes.
const PART_OF_OTHERS: u32 = 4;
/// Part of a thread that makes no debt in the long run.
const FREE_PART: u32 = 10;

/// Tasks that wait, and the time that accounts and namespaces have used.
pub(super) struct Turns {
    /// Tasks that wait, by flow; a flow without any is not there.
    waiting: HashMap<HeavyFlow, VecDeque<(u64, Arc<Task>)>>,
    debtors: HashMap<Debtor, Usage>,
    /// Threads for all.
    for_all: usize,
    /// An account or a namespace has so many threads at most.
    of_flow: usize,
    /// Time that the flow that was served last had used before.
    used: Duration,
    /// Counts tasks, in the order in which they came.
    last: u64,
    /// Requests among the tasks that wait.
    requests: usize,
    /// Flows on the threads, one for each task.
    running: Vec<HeavyFlow>,
    pub(super) threads: usize,
    pub(super) idle: usize,
    begun: u64,
    busy: Duration,
}

/// Time of an account or a namespace.
#[derive(Default)]
struct Usage {
    /// Tasks that wait, and the requests among them.
    waiting: usize,
    requests: usize,
    running: usize,
    /// Requests that await something else than a thread.
    resting: usize,
    used: Duration,
    /// Time used lately: less and less of it counts.
    lately: Duration,
    /// Time as of which that is.
    as_of: Option<Instant>,
    /// The beginning of what is on a thread now, of the first of several.
    since: Option<Instant>,
}

impl Usage {
    fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting == 0 && self.resting == 0
    }

    /// Time used lately, with what is on a thread now.
    fn debt(&self, now: Instant) -> Duration {
        let under_way = self.since.map_or(Duration::ZERO, |since| now - since);
        self.charged(now) + under_way
    }

    fn charged(&self, now: Instant) -> Duration {
        let since = self.as_of.map_or(Duration::ZERO, |as_of| now - as_of);
        self.lately.saturating_sub(since / FREE_PART)
    }

    fn begin(&mut self, now: Instant) {
        self.running += 1;
        self.since.get_or_insert(now);
    }

    fn charge(&mut self, took: Duration, now: Instant) {
        self.running -= 1;
        self.used += took;
        self.lately = self.charged(now) + took;
        self.as_of = Some(now);
        // Of several on threads, what the others have used until now is not known here, and is charged at their ends.
        self.since = (self.running > 0).then_some(now);
    }
}

impl Turns {
    pub(super) fn new(for_all: usize) -> Self {
        Self {
            waiting: HashMap::new(),
            debtors: HashMap::new(),
            for_all,
            of_flow: for_all.div_ceil(2),
            used: Duration::ZERO,
            last: 0,
            requests: 0,
            running: Vec::new(),
            threads: 0,
            idle: 0,
            begun: 0,
            busy: Duration::ZERO,
        }
    }

    pub(super) fn is_full(&self, flow: &HeavyFlow) -> bool {
        let own = self.usages(flow).map(|usage| usage.requests).max().unwrap_or(0);
        let resting = self.usages(flow).map(|usage| usage.resting).max().unwrap_or(0);
        let has_begun_all = own + resting >= MAX_BEGUN_OF_FLOW;
        has_begun_all || own >= MAX_WAITING_OF_FLOW || (own > 0 && self.requests >= MAX_WAITING)
    }

    /// Reports whether a task of the flow's account or namespace awaits something else than a thread.
    #[cfg(test)]
    pub(super) fn has_resting(&self, flow: &HeavyFlow) -> bool {
        self.usages(flow).any(|usage| usage.resting > 0)
    }

    /// Notes that a task has left its thread to await something else than a thread.
    pub(super) fn rest(&mut self, task: &Task) {
        if task.kind == Kind::Request {
            self.each(&task.flow, |usage| usage.resting += 1);
        }
    }

    /// Notes that this is over.
    pub(super) fn rests_no_longer(&mut self, task: &Task) {
        if task.kind == Kind::Request {
            self.each(&task.flow, |usage| usage.resting -= 1);
        }
    }

    fn usages<'a>(&'a self, flow: &'a HeavyFlow) -> impl Iterator<Item = &'a Usage> {
        flow.debtors()
            .iter()
            .filter_map(|debtor| self.debtors.get(debtor))
    }

    /// Changes the usage of a flow's account and of its namespace.
    fn each(&mut self, flow: &HeavyFlow, mut change: impl FnMut(&mut Usage)) {
        for debtor in flow.debtors() {
            if let Some(usage) = self.debtors.get_mut(debtor) {
                change(usage);
            }
        }
    }

    pub(super) fn push(&mut self, task: Arc<Task>, now: Instant) {
        let is_known = |debtor| self.debtors.contains_key(debtor);
        if self.debtors.len() >= MAX_IDLE_DEBTORS && !task.flow.debtors().iter().all(is_known) {
            // Those that used more than others keep their debt.
            let used = self.used;
            self.debtors
                .retain(|_, own| !own.is_idle() || own.used > used || !own.debt(now).is_zero());
        }
        let is_request = usize::from(task.kind == Kind::Request);
        for debtor in task.flow.debtors() {
            let usage = self.debtors.entry(debtor.clone()).or_default();
            if usage.is_idle() {
                usage.used = usage.used.max(self.used);
            }
            usage.waiting += 1;
            usage.requests += is_request;
        }
        self.requests += is_request;
        self.last += 1;
        let queue = self.waiting.entry(task.flow.clone()).or_default();
        queue.push_back((self.last, task));
    }

    fn debt_of(&self, flow: &HeavyFlow, now: Instant) -> Duration {
        let debts = self.usages(flow).map(|usage| usage.debt(now));
        debts.max().unwrap_or_default()
    }

    /// Reports whether a flow may have the thread that is left. A tenant whose accounts have no debtor in common can hold all
    /// others: an account that has used much less than each of them goes on beside them.
    fn owes_little(&self, flow: &HeavyFlow, now: Instant) -> bool {
        let others = self.running.iter().map(|other| self.debt_of(other, now));
        let least = others.min().unwrap_or_default();
        self.debt_of(flow, now) <= LITTLE_DEBT.max(least / PART_OF_OTHERS)
    }

    /// Tasks of a flow that could begin now.
    fn ready_of(&self, flow: &HeavyFlow, waiting: usize, now: Instant) -> usize {
        let is_reserve = self.running.len() >= self.for_all;
        if is_reserve && !flow.is_administrator() && !self.owes_little(flow, now) {
            return 0;
        }
        let running = self.usages(flow).map(|usage| usage.running).max().unwrap_or(0);
        self.of_flow.saturating_sub(running).min(waiting)
    }

    /// The task whose turn it is; it counts as running until [`Turns::end`].
    pub(super) fn begin(&mut self, now: Instant) -> Option<Arc<Task>> {
        let ready = self
            .waiting
            .iter()
            .filter(|(flow, waiting)| self.ready_of(flow, waiting.len(), now) > 0);
        let first = |(flow, waiting): &(&HeavyFlow, &VecDeque<(u64, Arc<Task>)>)| {
            let used = self.usages(flow).map(|usage| usage.used).max();
            let running = self.usages(flow).map(|usage| usage.running).max();
            (used, running, waiting.front().map(|(number, _)| *number))
        };
        let flow = ready.min_by_key(first)?.0.clone();
        let queue = self.waiting.get_mut(&flow)?;
        let (_, task) = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&flow);
        }
        let used = self.usages(&flow).map(|usage| usage.used).max();
        self.used = self.used.max(used.unwrap_or_default());
        self.waits_no_longer(&task);
        self.each(&flow, |usage| usage.begin(now));
        self.running.push(flow);
        self.begun += 1;
        Some(task)
    }

    fn waits_no_longer(&mut self, task: &Task) {
        let is_request = usize::from(task.kind == Kind::Request);
        self.requests -= is_request;
        self.each(&task.flow, |usage| {
            usage.waiting -= 1;
            usage.requests -= is_request;
        });
    }

    /// Removes a task that is not waited for any more, where it is still in the queue.
    pub(super) fn remove(&mut self, task: &Arc<Task>) {
        let Some(queue) = self.waiting.get_mut(&task.flow) else {
            return;
        };
        let Some(at) = queue.iter().position(|(_, own)| Arc::ptr_eq(own, task)) else {
            return;
        };
        queue.remove(at);
        if queue.is_empty() {
            self.waiting.remove(&task.flow);
        }
        self.waits_no_longer(task);
    }

    /// Reports whether no task waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Number of tasks that could begin now, about.
    pub(super) fn ready(&self, now: Instant) -> usize {
        let waiting = self.waiting.iter();
        waiting
            .map(|(flow, waiting)| self.ready_of(flow, waiting.len(), now))
            .sum()
    }

    pub(super) fn end(&mut self, flow: &HeavyFlow, took: Duration, now: Instant) {
        self.busy += took;
        if let Some(at) = self.running.iter().position(|own| own == flow) {
            self.running.swap_remove(at);
        }
        self.each(flow, |usage| usage.charge(took, now));
    }

    /// Accounts and namespaces whose time is remembered.
    #[cfg(test)]
    pub(super) fn debtors(&self) -> usize {
        self.debtors.len()
    }

    pub(super) fn figures(&self) -> HeavyFigures {
        HeavyFigures {
            waiting: self.waiting.values().map(VecDeque::len).sum(),
            running: self.running.len(),
            turns: self.begun,
            busy: self.busy,
        }
    }
}
