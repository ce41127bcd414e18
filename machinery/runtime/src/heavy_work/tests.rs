//! Turns, and tasks on threads.

use super::turns::{MAX_BEGUN_OF_FLOW, MAX_IDLE_DEBTORS, MAX_WAITING, MAX_WAITING_OF_FLOW};
use super::*;
use futures::FutureExt;
use std::sync::mpsc;
use tokio::sync::oneshot;

/// Turns by hand: tasks that are not polled, and a clock that stands still until it is turned.
struct Table {
    turns: Turns,
    work: HeavyWork,
    now: Instant,
}

impl Table {
    fn new(for_all: usize) -> Self {
        Self {
            turns: Turns::new(for_all),
            work: HeavyWork::with_threads(Handle::current(), 0),
            now: now(),
        }
    }

    fn push_as(&mut self, kind: Kind, flow: impl Into<HeavyFlow>) {
        let state = State {
            future: None,
            stage: Stage::Waiting,
        };
        let task = Task {
            flow: flow.into(),
            kind,
            of: self.work.clone(),
            state: Mutex::new(state),
        };
        self.turns.push(Arc::new(task), self.now);
    }

    fn push(&mut self, flow: impl Into<HeavyFlow>) {
        self.push_as(Kind::Request, flow);
    }

    fn begin(&mut self) -> Option<HeavyFlow> {
        self.turns.begin(self.now).map(|task| task.flow.clone())
    }

    fn begin_account(&mut self) -> Option<String> {
        self.begin().map(|flow| flow.account().to_owned())
    }

    /// Ends a task after so many milliseconds on a thread; the clock stands still.
    fn end(&mut self, flow: impl Into<HeavyFlow>, took: u64) {
        let took = Duration::from_millis(took);
        self.turns.end(&flow.into(), took, self.now);
    }
}

#[tokio::test]
async fn heavy_work_goes_to_the_flow_that_used_least() {
    let mut table = Table::new(1);
    for flow in ["flood", "flood", "flood", "anna", "bert"] {
        table.push(flow);
    }
    let mut served = Vec::new();
    while let Some(flow) = table.begin_account() {
        let took = if flow == "flood" { 100 } else { 1 };
        table.end(flow.as_str(), took);
        served.push(flow);
    }
    assert_eq!(served, ["flood", "anna", "bert", "flood", "flood"]);
    // No account saves up: one that comes late is next, and no more than that.
    table.push("flood");
    for _ in 0..2 {
        table.push("late");
    }
    assert_eq!(table.begin_account().as_deref(), Some("late"));
    table.end("late", 1_000);
    assert_eq!(table.begin_account().as_deref(), Some("flood"));
}

#[tokio::test]
async fn heavy_work_of_one_flow_leaves_threads_to_others() {
    let mut table = Table::new(4);
    for flow in ["flood", "flood", "flood", "anna"] {
        table.push(flow);
    }
    let begun: Vec<_> = std::iter::from_fn(|| table.begin_account()).collect();
    assert_eq!(begun, ["flood", "anna", "flood"]);
    let figures = table.turns.figures();
    assert_eq!((figures.waiting, figures.running), (1, 3));
    table.end("flood", 0);
    assert_eq!(table.begin_account().as_deref(), Some("flood"));
}

#[tokio::test]
async fn heavy_work_that_waits_is_bounded() {
    let mut table = Table::new(1);
    for number in 0..8 {
        let flow = HeavyFlow::of_account(format!("flow-{number}"));
        let mut waiting = 0;
        while !table.turns.is_full(&flow) {
            table.push(flow.clone());
            waiting += 1;
        }
        assert_eq!(waiting, MAX_WAITING_OF_FLOW);
    }
    assert_eq!(table.turns.figures().waiting, MAX_WAITING);
    // A flow that comes now is let in all the same, with little.
    assert!(!table.turns.is_full(&"late".into()));
    table.push("late");
    assert!(table.turns.is_full(&"late".into()));
}

#[tokio::test]
async fn heavy_work_that_awaits_something_else_is_bounded() {
    let work = HeavyWork::with_threads(Handle::current(), 2);
    let flow = HeavyFlow::of_account("anna").within("blue");
    let other = || HeavyFlow::of_account("bert").within("green");
    let begin = |kind| work.spawn(flow.clone(), kind, futures::future::pending().boxed());
    let mut resting = Vec::new();
    let are_begun = |count: u64| {
        while work.figures().turns < count || work.figures().running > 0 {
            std::thread::yield_now();
        }
    };
    for count in 1..=MAX_BEGUN_OF_FLOW as u64 {
        assert!(!work.is_full(&flow), "{count}");
        resting.push(begin(Kind::Request));
        are_begun(count);
    }
    assert!(work.is_full(&flow));
    assert!(work.is_full(&HeavyFlow::of_account("carl").within("blue")));
    assert!(!work.is_full(&other()));
    // Whose client has gone makes room; pieces of answers take none.
    resting.pop();
    assert!(!work.is_full(&flow));
    let _piece = begin(Kind::Piece);
    are_begun(MAX_BEGUN_OF_FLOW as u64 + 1);
    assert!(!work.is_full(&flow));
}

#[tokio::test]
async fn heavy_work_that_goes_on_rests_no_longer() {
    let work = HeavyWork::with_threads(Handle::current(), 2);
    let flow = HeavyFlow::of_account("anna");
    for count in 1..=2 * MAX_BEGUN_OF_FLOW {
        assert!(!work.is_full(&flow), "{count}");
        let (wake, woken) = oneshot::channel::<()>();
        let (done, ended) = oneshot::channel();
        let task = async move {
            let _ = woken.await;
            let _ = done.send(());
        };
        let _task = work.spawn(flow.clone(), Kind::Request, task.boxed());
        // Woken before it rests it would not count as resting at all.
        while !work.0.turns.lock().has_resting(&flow) {
            tokio::task::yield_now().await;
        }
        wake.send(()).unwrap();
        ended.await.unwrap();
    }
}

#[tokio::test]
async fn heavy_work_of_frames_takes_no_request_its_place() {
    let mut table = Table::new(1);
    for number in 0..50 {
        let flow = HeavyFlow::of_account(format!("tenant-{number}")).within("tenant");
        for _ in 0..MAX_WAITING / 10 {
            table.push_as(Kind::Piece, flow.clone());
        }
    }
    table.push("bert");
    assert!(!table.turns.is_full(&"bert".into()));
    assert!(
        !table
            .turns
            .is_full(&HeavyFlow::of_account("tenant-7").within("tenant"))
    );
}

#[tokio::test]
async fn heavy_work_of_many_accounts_in_one_namespace_is_one_tenants() {
    let mut table = Table::new(2);
    let account = |number| HeavyFlow::of_account(format!("tenant-{number}")).within("tenant");
    for number in 0..50 {
        table.push(account(number));
        table.push(account(number));
    }
    // Of two threads the tenant has one, whichever of her accounts asks.
    let mut running = table.begin().unwrap();
    assert_eq!(table.begin(), None);
    let bert = || HeavyFlow::of_account("bert").within("bert");
    let mut turns_of_tenant = 0;
    for _ in 0..20 {
        table.push(bert());
        assert_eq!(
            table.begin(),
            Some(bert()),
            "a thread is free for the other tenant"
        );
        table.end(bert(), 1);
        table.end(running, 1_000);
        running = table.begin().unwrap();
        turns_of_tenant += 1;
    }
    assert_eq!(turns_of_tenant, 20);
    // And together they may wait as one may.
    let mut waiting = 80;
    while !table.turns.is_full(&account(waiting)) {
        table.push(account(waiting));
        waiting += 1;
    }
    assert_eq!(table.turns.figures().waiting, MAX_WAITING_OF_FLOW);
}

#[tokio::test]
async fn heavy_work_of_one_account_in_many_namespaces_is_one_tenants() {
    let mut table = Table::new(1);
    let tenant = |number| HeavyFlow::of_account("tenant").within(format!("tenant-{number}"));
    let bert = HeavyFlow::of_account("bert").within("bert");
    for number in 0..50 {
        table.push(tenant(number));
    }
    let first = table.begin().unwrap();
    table.end(first, 100);
    for _ in 0..50 {
        table.push(bert.clone());
        assert_eq!(table.begin(), Some(bert.clone()));
        table.end(bert.clone(), 1);
    }
}

#[tokio::test]
async fn heavy_work_keeps_a_thread_for_little_debt_and_administrators() {
    let mut table = Table::new(2);
    for flow in ["a", "b"] {
        table.push(flow);
        assert!(table.begin().is_some());
        table.end(flow, 5_000);
    }
    for flow in ["a", "b", "a", "b"] {
        table.push(flow);
    }
    assert!(table.begin().is_some() && table.begin().is_some());
    assert_eq!(table.turns.ready(table.now), 0);
    // All threads are busy but the reserved one.
    table.push("anna");
    assert_eq!(table.begin_account().as_deref(), Some("anna"));
    table.end("anna", 5_000);
    table.push("anna");
    assert_eq!(table.begin(), None, "anna is in debt now as the others are");
    let admin = HeavyFlow::of_administrator("admin");
    for _ in 0..3 {
        table.push(admin.clone());
        assert_eq!(table.begin(), Some(admin.clone()));
        table.end(admin.clone(), 5_000);
    }
    // A debt passes with time.
    table.now += Duration::from_secs(60);
    assert_eq!(table.begin_account().as_deref(), Some("anna"));
}

/// Accounts of one tenant that have nothing in common are on all threads for all, again and again; the account that has used much less
/// goes on beside them, although it owes more than little.
#[tokio::test]
async fn heavy_work_keeps_a_thread_for_who_owes_much_less_than_others() {
    let mut table = Table::new(2);
    for account in ["a", "b"] {
        table.push(account);
        assert!(table.begin().is_some());
        table.end(account, 60_000);
        table.push(account);
    }
    assert!(table.begin().is_some() && table.begin().is_some());
    for _ in 0..5 {
        table.push("anna");
        assert_eq!(table.begin_account().as_deref(), Some("anna"));
        table.end("anna", 2_000);
    }
    // A third account of theirs is as far in debt as they are.
    table.push("c");
    assert_eq!(table.begin_account().as_deref(), Some("c"));
    table.end("c", 40_000);
    table.push("c");
    assert_eq!(table.begin(), None);
    table.push("anna");
    assert_eq!(table.begin_account().as_deref(), Some("anna"));
    table.end("anna", 10_000);
    table.push("anna");
    assert_eq!(table.begin(), None, "what she owes is no longer much less");
}

/// Work on a thread counts as used, so that a first long step is not taken for a small one.
#[tokio::test]
async fn heavy_work_under_way_is_owed() {
    let mut table = Table::new(2);
    for account in ["a", "b"] {
        table.push(account);
        assert!(table.begin().is_some());
    }
    table.push("anna");
    assert!(table.begin().is_some());
    table.end("anna", 1_000);
    table.push("anna");
    assert_eq!(table.begin(), None);
    table.now += Duration::from_secs(5);
    assert_eq!(table.begin_account().as_deref(), Some("anna"));
}

#[tokio::test]
async fn heavy_work_forgets_idle_flows() {
    let mut table = Table::new(1);
    for number in 0..10_000 {
        let flow = HeavyFlow::of_account(format!("flow-{number}"));
        table.push(flow.clone());
        assert_eq!(table.begin(), Some(flow.clone()));
        table.end(flow, 0);
    }
    assert!(
        table.turns.debtors() <= MAX_IDLE_DEBTORS,
        "{}",
        table.turns.debtors()
    );
}

#[tokio::test]
async fn heavy_work_waits_for_what_wakes_it() {
    let work = HeavyWork::with_threads(Handle::current(), 2);
    let (wake, woken) = oneshot::channel::<u32>();
    let (told, hears) = oneshot::channel();
    let task = async move {
        let _ = told.send((woken.await, std::thread::current().name() == Some("heavy-work")));
    };
    let _task = work.spawn("a".into(), Kind::Request, task.boxed());
    wake.send(7).unwrap();
    assert_eq!(hears.await.unwrap(), (Ok(7), true));
}

#[tokio::test]
async fn heavy_work_of_others_goes_on_while_one_flow_is_stuck() {
    let work = HeavyWork::with_threads(Handle::current(), 2);
    let (release, stuck) = mpsc::channel::<()>();
    let stuck = Arc::new(Mutex::new(stuck));
    let block = |stuck: &Arc<Mutex<mpsc::Receiver<()>>>| {
        let stuck = Arc::clone(stuck);
        async move {
            let _ = stuck.lock().recv();
        }
        .boxed()
    };
    let _flood: Vec<_> = (0..8)
        .map(|_| work.spawn("flood".into(), Kind::Request, block(&stuck)))
        .collect();
    let (told, hears) = oneshot::channel();
    let answer = async move {
        let _ = told.send(());
    };
    let _task = work.spawn("anna".into(), Kind::Request, answer.boxed());
    hears.await.unwrap();
    drop(release);
}

#[tokio::test]
async fn heavy_work_that_is_dropped_ends_and_lets_go() {
    let work = HeavyWork::with_threads(Handle::current(), 1);
    let (held, let_go) = oneshot::channel::<()>();
    let task = async move {
        let _held = held;
        std::future::pending::<()>().await;
    };
    drop(work.spawn("a".into(), Kind::Request, task.boxed()));
    assert!(let_go.await.is_err());
    let (told, hears) = oneshot::channel();
    let answer = async move {
        let _ = told.send(());
    };
    let _task = work.spawn("a".into(), Kind::Request, answer.boxed());
    hears.await.unwrap();
}

#[tokio::test]
async fn heavy_work_that_is_dropped_waits_no_longer() {
    let work = HeavyWork::with_threads(Handle::current(), 2);
    let (release, stuck) = mpsc::channel::<()>();
    let (told, begun) = oneshot::channel();
    let block = async move {
        let _ = (told.send(()), stuck.recv());
    };
    let _running = work.spawn("a".into(), Kind::Request, block.boxed());
    begun.await.unwrap();
    let flood = (0..=MAX_WAITING_OF_FLOW).map(|_| work.spawn("a".into(), Kind::Request, async {}.boxed()));
    let flood: Vec<_> = flood.collect();
    assert!(work.is_full(&"a".into()));
    drop(flood);
    assert_eq!(work.figures().waiting, 0);
    assert!(!work.is_full(&"a".into()));
    drop(release);
}
