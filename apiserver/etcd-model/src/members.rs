//! The members: one order of commands, applied by each of them in its own time.
//!
//! A command is agreed on when it is appended; a member answers for it when it has applied it, and reads wait until
//! the member has applied what was agreed before them. A member that is cut off applies nothing meanwhile.

use crate::fault_profile::FaultInjector;
use crate::messages::{Event, TxnResponse};
use crate::signal::Signal;
use crate::store::{Command, Store};
use crate::watchers::Watchers;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tonic::Status;

#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) felt: FaultInjector,
    agreed: Mutex<Agreed>,
    /// Number of agreed commands.
    length: Signal<usize>,
    /// Number of restores from a backup.
    restored: Signal<u64>,
    /// Requests answered that are no watch.
    pub(crate) requests: AtomicUsize,
    members: Vec<Member>,
}

/// The order, and what comes of it.
#[derive(Debug)]
struct Agreed {
    commands: Vec<Command>,
    store: Store,
    /// All that was ever changed, compacted or not.
    changes: Vec<(i64, Event)>,
}

#[derive(Debug)]
struct Member {
    state: Mutex<State>,
    applied: Signal<usize>,
    cut_off: Signal<bool>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) watchers: Watchers,
}

/// The longest time between two partitions.
const FAIR_WEATHER: Duration = Duration::from_millis(200);
/// Members that are so many can lose one.
const MAJORITY_OF: usize = 3;

impl Members {
    pub(crate) fn start(felt: FaultInjector) -> Arc<Self> {
        let member = |_| Member {
            state: Mutex::new(State {
                store: Store::new(),
                watchers: Watchers::default(),
            }),
            applied: Signal::new(0),
            cut_off: Signal::new(false),
        };
        let members = Arc::new(Self {
            agreed: Mutex::new(Agreed {
                commands: Vec::new(),
                store: Store::new(),
                changes: Vec::new(),
            }),
            length: Signal::new(0),
            restored: Signal::new(0),
            requests: AtomicUsize::new(0),
            members: (0..felt.faults.members).map(member).collect(),
            felt,
        });
        let runtime = &members.felt.runtime;
        for index in 0..members.members.len() {
            let (applying, keeping) = (Arc::clone(&members), Arc::clone(&members));
            runtime
                .spawn("etcd member", async move { applying.apply_all(index).await })
                .detach();
            runtime
                .spawn("etcd watchers", async move { keeping.keep_up(index).await })
                .detach();
        }
        if members.members.len() >= MAJORITY_OF && !members.felt.faults.partition.is_zero() {
            let parting = Arc::clone(&members);
            runtime
                .spawn("etcd partitions", async move { parting.part().await })
                .detach();
        }
        members
    }

    /// One of them, as a client's balancer would choose.
    pub(crate) fn any(&self) -> usize {
        let count = u64::try_from(self.members.len()).unwrap_or(1);
        usize::try_from(self.felt.below(count)).unwrap_or(0)
    }

    pub(crate) fn agreed(&self) -> usize {
        self.agreed.lock().commands.len()
    }

    pub(crate) fn revision(&self) -> i64 {
        self.agreed.lock().store.revision()
    }

    pub(crate) fn watches(&self) -> usize {
        let of_member = |member: &Member| member.state.lock().watchers.len();
        self.members.iter().map(of_member).sum()
    }

    pub(crate) fn changes_after(&self, revision: i64) -> Vec<(i64, Event)> {
        let agreed = self.agreed.lock();
        let first = agreed.changes.partition_point(|(at, _)| *at <= revision);
        agreed.changes[first..].to_vec()
    }

    /// Agrees on a command: how many have to be applied to answer for it, and what the answer will be.
    pub(crate) fn agree(&self, command: Command) -> (usize, Result<TxnResponse, Status>) {
        let mut agreed = self.agreed.lock();
        let before = agreed.store.revision();
        let outcome = agreed.store.apply(&command);
        let news: Vec<(i64, Event)> = agreed
            .store
            .changes_from(before + 1)
            .flat_map(|(revision, events)| events.iter().map(move |event| (revision, event.clone())))
            .collect();
        agreed.changes.extend(news);
        agreed.commands.push(command);
        let length = agreed.commands.len();
        self.length.set(length);
        (length, outcome)
    }

    /// Waits until a member has applied so many commands.
    pub(crate) async fn applied(&self, member: usize, length: usize) {
        let applied = &self.members[member].applied;
        tokio::select! {
            biased;
            () = applied.until(|applied| applied >= length) => {}
            () = self.until_restored() => {}
        }
    }

    /// Waits until everything is restored from a backup (again).
    pub(crate) async fn until_restored(&self) {
        let before = self.restored.get();
        self.restored.until(|restored| restored != before).await;
    }

    /// Takes everything back to what it was after so many commands, as every member of a restored etcd does.
    pub(crate) fn restore(&self, length: usize) {
        let mut agreed = self.agreed.lock();
        agreed.commands.truncate(length);
        agreed.store = replayed(&agreed.commands);
        let revision = agreed.store.revision();
        agreed.changes.retain(|(at, _)| *at <= revision);
        for member in &self.members {
            *member.state.lock() = State {
                store: replayed(&agreed.commands),
                watchers: Watchers::default(),
            };
            member.applied.set(length);
        }
        drop(agreed);
        self.length.set(length);
        self.restored.set(self.restored.get() + 1);
    }

    pub(crate) fn with<T>(&self, member: usize, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.members[member].state.lock())
    }

    pub(crate) fn cut_off(&self, member: usize, cut_off: bool) {
        self.members[member].cut_off.set(cut_off);
    }

    pub(crate) fn is_cut_off(&self, member: usize) -> bool {
        self.members[member].cut_off.get()
    }

    /// Waits until a member is cut off, or until it no longer is.
    pub(crate) async fn until_cut_off(&self, member: usize, cut_off: bool) {
        let member = &self.members[member];
        member.cut_off.until(|is| is == cut_off).await;
    }

    async fn apply_all(&self, member: usize) {
        let applied = &self.members[member].applied;
        loop {
            self.length.until(|length| length > applied.get()).await;
            self.felt.delay(self.felt.faults.lag).await;
            self.until_cut_off(member, false).await;
            // One at a time, so that watchers and readers see every state there is.
            let done = applied.get();
            let Some(command) = self.agreed.lock().commands.get(done).cloned() else {
                continue;
            };
            self.with(member, |state| state.apply(&command));
            applied.set(done + 1);
        }
    }

    async fn keep_up(&self, member: usize) {
        let faults = &self.felt.faults;
        loop {
            let rest = Duration::from_micros(1 + self.felt.below(rounds_micros(faults.rounds)));
            self.felt.runtime.sleep(rest).await;
            self.with(member, |state| {
                if self.felt.one_in(faults.restore_one_in) {
                    state.watchers.restore(&state.store);
                }
                state.watchers.catch_up(&state.store, faults.batch_revisions);
                if self.felt.one_in(faults.progress_one_in) {
                    state.watchers.progress(&state.store);
                }
            });
        }
    }

    /// Cuts one member off for a while, again and again.
    async fn part(&self) {
        loop {
            self.felt.delay(FAIR_WEATHER).await;
            let member = self.any();
            self.cut_off(member, true);
            self.felt.delay(self.felt.faults.partition).await;
            self.cut_off(member, false);
        }
    }
}

fn replayed(commands: &[Command]) -> Store {
    let mut store = Store::new();
    for command in commands {
        // Its sender received whether it was refused.
        drop(store.apply(command));
    }
    store
}

fn rounds_micros(rounds: Duration) -> u64 {
    u64::try_from(rounds.as_micros()).unwrap_or(u64::MAX)
}

impl State {
    fn apply(&mut self, command: &Command) {
        let before = self.store.revision();
        // Whether it was refused is the same for all members, and its sender has the answer.
        drop(self.store.apply(command));
        for (revision, events) in self.store.changes_from(before + 1) {
            self.watchers.notify(revision, events);
        }
    }
}
