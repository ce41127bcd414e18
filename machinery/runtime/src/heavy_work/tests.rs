//! Turns, and tasks on threads.

use super::*;
use futures::FutureExt;
use std::sync::mpsc;
use tokio::sync::oneshot;

fn turns(of_flow: usize) -> (Turns, HeavyWork) {
    let work = HeavyWork::with_threads(Handle::current(), 0);
    (Turns::new(of_flow), work)
}

fn push(turns: &mut Turns, work: &HeavyWork, flow: &str) {
    let state = State {
        future: None,
        stage: Stage::Waiting,
    };
    turns.push(Arc::new(Task {
        flow: flow.into(),
        of: work.clone(),
        state: Mutex::new(state),
    }));
}

fn begin(turns: &mut Turns) -> Option<String> {
    turns.begin().map(|task| task.flow.to_string())
}

#[tokio::test]
async fn heavy_work_goes_to_the_flow_that_used_least() {
    let (mut turns, work) = turns(1);
    for flow in ["flood", "flood", "flood", "anna", "bert"] {
        push(&mut turns, &work, flow);
    }
    let mut served = Vec::new();
    while let Some(flow) = begin(&mut turns) {
        let took = if flow == "flood" { 100 } else { 1 };
        turns.end(&flow, Duration::from_millis(took));
        served.push(flow);
    }
    assert_eq!(served, ["flood", "anna", "bert", "flood", "flood"]);
    // Nobody saves up: one that comes late is next, and no more than that.
    push(&mut turns, &work, "flood");
    for _ in 0..2 {
        push(&mut turns, &work, "late");
    }
    assert_eq!(begin(&mut turns).as_deref(), Some("late"));
    turns.end("late", Duration::from_secs(1));
    assert_eq!(begin(&mut turns).as_deref(), Some("flood"));
}

#[tokio::test]
async fn heavy_work_of_one_flow_leaves_threads_to_others() {
    let (mut turns, work) = turns(2);
    for flow in ["flood", "flood", "flood", "anna"] {
        push(&mut turns, &work, flow);
    }
    let begun: Vec<_> = std::iter::from_fn(|| begin(&mut turns)).collect();
    assert_eq!(begun, ["flood", "anna", "flood"]);
    assert_eq!((turns.figures().waiting, turns.figures().running), (1, 3));
    turns.end("flood", Duration::ZERO);
    assert_eq!(begin(&mut turns).as_deref(), Some("flood"));
}

#[tokio::test]
async fn heavy_work_that_waits_is_bounded() {
    let (mut turns, work) = turns(1);
    for number in 0..8 {
        let flow = format!("flow-{number}");
        while !turns.is_full(&flow) {
            push(&mut turns, &work, &flow);
        }
        assert_eq!(turns.flows[&*flow].waiting.len(), MAX_WAITING_OF_FLOW);
    }
    assert_eq!(turns.waiting(), MAX_WAITING);
    // Who comes now is let in all the same, with little.
    assert!(!turns.is_full("late"));
    push(&mut turns, &work, "late");
    assert!(turns.is_full("late"));
}

#[tokio::test]
async fn heavy_work_forgets_idle_flows() {
    let (mut turns, work) = turns(1);
    for number in 0..10_000 {
        let flow = format!("flow-{number}");
        push(&mut turns, &work, &flow);
        assert_eq!(begin(&mut turns), Some(flow.clone()));
        turns.end(&flow, Duration::ZERO);
    }
    assert!(turns.flows.len() <= MAX_IDLE_FLOWS, "{}", turns.flows.len());
}

#[tokio::test]
async fn heavy_work_waits_for_what_wakes_it() {
    let work = HeavyWork::with_threads(Handle::current(), 2);
    let (wake, woken) = oneshot::channel::<u32>();
    let (told, hears) = oneshot::channel();
    let task = async move {
        let _ = told.send((woken.await, std::thread::current().name() == Some("heavy-work")));
    };
    let _task = work.spawn("a".into(), task.boxed());
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
        .map(|_| work.spawn("flood".into(), block(&stuck)))
        .collect();
    let (told, hears) = oneshot::channel();
    let answer = async move {
        let _ = told.send(());
    };
    let _task = work.spawn("anna".into(), answer.boxed());
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
    drop(work.spawn("a".into(), task.boxed()));
    assert!(let_go.await.is_err());
    let (told, hears) = oneshot::channel();
    let answer = async move {
        let _ = told.send(());
    };
    let _task = work.spawn("a".into(), answer.boxed());
    hears.await.unwrap();
}
