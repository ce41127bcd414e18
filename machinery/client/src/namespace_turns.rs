//! Turns that namespaces take at work for their objects: of a node that keeps rules and names of services, for example.
//!
//! An object is in line once, however often it changed. The lines of namespaces take turns, one object each, and a namespace
//! whose object took long rests in proportion: all its changes together take a quarter of a thread, and no other namespace waits for
//! more than one object of each other namespace.

use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// A namespace rests so many times as long as its object took.
const REST_FACTOR: u32 = 3;
/// A shorter rest would save nothing.
const SHORTEST_REST: Duration = Duration::from_millis(5);
/// Nothing rests longer, whatever kept the work from its end.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// An object whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// `namespace/name`.
    pub object: Arc<str>,
    /// It changed itself; otherwise others made room for it.
    pub changed: bool,
}

/// A queue of objects that changed, with one or more threads that add to it and one that takes.
pub struct TurnQueue {
    turns: Mutex<NamespaceTurns>,
    changed: Notify,
    runtime: Runtime,
}

impl fmt::Debug for TurnQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnQueue")
            .field("len", &self.turns.lock().queued.len())
            .finish_non_exhaustive()
    }
}

impl TurnQueue {
    /// An empty queue on this runtime's clock.
    pub fn new(runtime: Runtime) -> Self {
        Self {
            turns: Mutex::default(),
            changed: Notify::new(),
            runtime,
        }
    }

    /// Puts an object in line that changed.
    pub fn add(&self, object: &str) {
        self.turns.lock().enqueue(object, true);
        self.changed.notify_one();
    }

    /// Puts an object in line for which others made room.
    pub fn add_due(&self, object: &str) {
        self.turns.lock().enqueue(object, false);
        self.changed.notify_one();
    }

    /// Waits for the next object of a namespace that does not rest.
    pub async fn next(&self) -> Turn {
        loop {
            let changed = self.changed.notified();
            if let Some(turn) = self.take() {
                return turn;
            }
            let next_time = self.turns.lock().next_time();
            match next_time {
                None => changed.await,
                Some(time) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = self.runtime.sleep_until(time) => {}
                },
            }
        }
    }

    /// Takes the next object of a namespace that does not rest.
    pub fn take(&self) -> Option<Turn> {
        self.turns.lock().take(self.runtime.monotonic())
    }

    /// Takes the next object, whichever namespaces rest.
    pub fn take_any(&self) -> Option<Turn> {
        self.turns.lock().take_at(0)
    }

    /// Reports whether no object is in line.
    pub fn is_empty(&self) -> bool {
        self.turns.lock().queued.is_empty()
    }

    /// Names of the objects in line.
    pub fn objects(&self) -> HashSet<Arc<str>> {
        self.turns.lock().queued.keys().cloned().collect()
    }

    /// Lets the namespace of an object rest whose work took so long.
    pub fn worked(&self, object: &str, took: Duration) {
        let now = self.runtime.monotonic();
        self.turns.lock().worked(object, took, now);
    }
}

/// Objects in line.
#[derive(Debug, Default)]
struct NamespaceTurns {
    /// Objects in a line, and whether they changed themselves.
    queued: HashMap<Arc<str>, bool>,
    lines: HashMap<Box<str>, VecDeque<Arc<str>>>,
    /// Namespaces whose line is not empty, the next first.
    turns: VecDeque<Box<str>>,
    /// Time until which a namespace has no turn.
    resting: HashMap<Box<str>, Duration>,
}

fn namespace_of(object: &str) -> &str {
    object.split_once('/').map_or("", |(namespace, _)| namespace)
}

impl NamespaceTurns {
    fn enqueue(&mut self, object: &str, changed: bool) {
        if let Some(known) = self.queued.get_mut(object) {
            *known |= changed;
            return;
        }
        let queued: Arc<str> = object.into();
        self.queued.insert(Arc::clone(&queued), changed);
        let namespace = namespace_of(object);
        if let Some(line) = self.lines.get_mut(namespace) {
            return line.push_back(queued);
        }
        self.turns.push_back(namespace.into());
        self.lines.insert(namespace.into(), VecDeque::from([queued]));
    }

    /// Takes the next object of a namespace that does not rest.
    fn take(&mut self, now: Duration) -> Option<Turn> {
        self.resting.retain(|_, until| *until > now);
        // Few are passed over: each of them had a turn of late that took long.
        let at = self
            .turns
            .iter()
            .position(|own| !self.resting.contains_key(own))?;
        self.take_at(at)
    }

    fn take_at(&mut self, at: usize) -> Option<Turn> {
        let namespace = self.turns.remove(at)?;
        let line = self.lines.get_mut(&namespace)?;
        let object = line.pop_front()?;
        if line.is_empty() {
            self.lines.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        let changed = self.queued.remove(&object)?;
        Some(Turn { object, changed })
    }

    /// Lets the namespace of an object rest whose work took so long until `now`.
    fn worked(&mut self, object: &str, took: Duration, now: Duration) {
        let rest = took.saturating_mul(REST_FACTOR).min(LONGEST_REST);
        if rest < SHORTEST_REST {
            return;
        }
        let until = self.resting.entry(namespace_of(object).into()).or_default();
        *until = (*until).max(now + rest);
    }

    /// The time at which the next object can be taken of those that are in line, where all rest.
    fn next_time(&self) -> Option<Duration> {
        let rests = self.turns.iter().filter_map(|own| self.resting.get(own));
        rests.min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_runtime::Simulation;

    const ZERO: Duration = Duration::ZERO;

    fn objects(turns: &mut NamespaceTurns, now: Duration) -> Vec<Arc<str>> {
        std::iter::from_fn(|| turns.take(now))
            .map(|turn| turn.object)
            .collect()
    }

    #[test]
    fn turns_pass_from_namespace_to_namespace() {
        let mut turns = NamespaceTurns::default();
        for object in ["a/1", "a/2", "a/3", "b/1", "a/1", "c/1", "b/2"] {
            turns.enqueue(object, true);
        }
        assert_eq!(turns.queued.len(), 6);
        let order = ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3"].map(Arc::from);
        assert_eq!(objects(&mut turns, ZERO), order);
        assert!(turns.queued.is_empty() && turns.lines.is_empty() && turns.turns.is_empty());
    }

    #[test]
    fn turns_leave_out_a_namespace_that_rests() {
        let mut turns = NamespaceTurns::default();
        turns.worked("a/1", Duration::from_millis(100), ZERO);
        turns.worked("b/1", Duration::from_micros(100), ZERO);
        for object in ["a/1", "a/2", "b/1"] {
            turns.enqueue(object, true);
        }
        assert_eq!(objects(&mut turns, ZERO), ["b/1".into()]);
        let end = Duration::from_millis(300);
        assert_eq!(turns.next_time(), Some(end));
        assert_eq!(turns.take_at(0).unwrap().object, "a/1".into());
        assert_eq!(objects(&mut turns, end), ["a/2".into()]);
        assert_eq!((turns.next_time(), turns.resting.len()), (None, 0));
        turns.worked("a/1", Duration::from_secs(90), end);
        turns.enqueue("a/1", true);
        assert_eq!(turns.next_time(), Some(end + LONGEST_REST));
    }

    #[test]
    fn turn_says_whether_the_object_changed_itself() {
        let mut turns = NamespaceTurns::default();
        turns.enqueue("a/1", false);
        turns.enqueue("a/2", false);
        turns.enqueue("a/2", true);
        turns.enqueue("a/2", false);
        let said: Vec<bool> = std::iter::from_fn(|| turns.take(ZERO))
            .map(|turn| turn.changed)
            .collect();
        assert_eq!(said, [false, true]);
    }

    /// One namespace changes all the time and each of its objects takes long: another's is next, and the first has a quarter of
    /// the time.
    #[test]
    fn queue_keeps_a_small_namespace_from_waiting_for_a_busy_one() {
        let simulation = Simulation::new(3);
        let runtime = simulation.runtime();
        let queue = TurnQueue::new(runtime.clone());
        simulation.run(async move {
            let took = Duration::from_millis(100);
            let change_all = || (0..20).for_each(|at| queue.add(&format!("busy/{at}")));
            let (mut busy, begun) = (0, runtime.monotonic());
            while runtime.monotonic() < begun + Duration::from_secs(10) {
                change_all();
                let turn = queue.next().await;
                assert!(turn.object.starts_with("busy/") && turn.changed);
                runtime.sleep(took).await;
                queue.worked(&turn.object, took);
                busy += 1;
                queue.add("small/a");
                change_all();
                let small = queue.next().await;
                assert_eq!(&*small.object, "small/a");
                queue.worked(&small.object, Duration::from_micros(10));
            }
            assert!((20..=26).contains(&busy), "{busy} of some 100 turns");
            assert_eq!(queue.objects().len(), 20);
            assert!(queue.take().is_none() || queue.take_any().is_some());
        });
    }
}
