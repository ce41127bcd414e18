use super::*;
use crate::body::Body;
use http::Response;
use machinery_meta::UserInfo;
use machinery_runtime::Simulation;
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Wake, Waker};

const LARGE: usize = 1 << 20;

fn memory(runtime: &Runtime) -> Arc<UnreadMemory> {
    UnreadMemory::new(runtime.clone(), Arc::default())
}

fn request(runtime: &Runtime, user: &str, namespace: &str) -> RequestContext {
    let user = UserInfo::named(user, [UserInfo::AUTHENTICATED]);
    let mut ctx = RequestContext::internal(user, runtime.clone());
    ctx.namespace = namespace.into();
    ctx
}

/// Answers that leave no room for another one of so many bytes.
fn filled(memory: &Arc<UnreadMemory>, ctx: &RequestContext, bytes: usize) -> Vec<Admitted> {
    std::iter::from_fn(|| memory.try_admit(ctx, bytes)).collect()
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn unread_answers_that_are_handed_out_wake_their_owners_alone() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let memory = memory(&runtime);
        let (blue, green) = (request(&runtime, "b", "blue"), request(&runtime, "g", "green"));
        let (mut of_blue, mut of_green) = (filled(&memory, &blue, LARGE), filled(&memory, &green, LARGE));
        let holder = Holder::of(&blue);
        let attempt = || memory.try_admit(&blue, LARGE);
        let mut waiting = pin!(memory.once_given_back(&holder, referred(LARGE), attempt));
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        of_green.pop();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        of_blue.pop();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(waiting.as_mut().poll(&mut cx).is_ready());
    });
}

/// A request for room with a spent share examines few of the answers, however many are unread.
#[test]
fn unread_answers_are_looked_at_in_order() {
    const ASKED: usize = 16;
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let memory = memory(&runtime);
        let ctx = request(&runtime, "b", "blue");
        let unread = filled(&memory, &ctx, 32 << 10);
        assert!(unread.len() > 8_000);
        for _ in 0..ASKED {
            assert!(memory.try_admit(&ctx, LARGE).is_none());
        }
        assert!(memory.ledger.lock().looked_at() <= 4 * ASKED);
        // All of them have been read on since they were noted.
        runtime.sleep(Duration::from_secs(5)).await;
        let now = nanos(runtime.monotonic());
        for (holding, ..) in unread.iter().filter_map(|answer| answer.0.as_ref()) {
            holding.behind_since.store(now, Ordering::Relaxed);
        }
        let before = memory.ledger.lock().looked_at();
        for _ in 0..ASKED {
            assert!(memory.try_admit(&ctx, LARGE).is_none());
        }
        let looked_at = memory.ledger.lock().looked_at() - before;
        assert!(looked_at <= 2 * 64 * ASKED, "{looked_at}");
    });
}

/// An owner with less still gets answers when the answers of slow owners hold all of the memory, at the cost of the owner with
/// most.
#[test]
fn unread_answers_of_the_owner_with_most_give_way_where_all_is_spent() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let memory = memory(&runtime);
        let begun = |admitted: Admitted| admitted.with(Response::new(Body::chunks([vec![b'x'; 64].into()])));
        let mut slow = Vec::new();
        for owner in ["a", "b", "c", "d"] {
            let unread = filled(&memory, &request(&runtime, "u", owner), LARGE);
            slow.extend(unread.into_iter().map(begun));
        }
        runtime.sleep(Duration::from_secs(1)).await;
        let victim = request(&runtime, "v", "victim");
        let held: Vec<_> = std::iter::from_fn(|| memory.try_admit(&victim, LARGE))
            .take(8)
            .collect();
        assert_eq!(held.len(), 8);
        let (_, ended) = memory.figures();
        assert_eq!(ended, 8, "{}", slow.len());
        let of_all = &memory.ledger.lock().holders();
        assert_eq!(of_all.len(), 5);
    });
}

/// An owner that holds as much as any takes nothing of the others.
#[test]
fn unread_answers_give_way_to_none_that_would_hold_as_much() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let memory = memory(&runtime);
        let begun = |admitted: Admitted| admitted.with(Response::new(Body::chunks([vec![b'x'; 64].into()])));
        let mut slow = Vec::new();
        for owner in ["a", "b", "c", "d", "e"] {
            let ctx = request(&runtime, "u", owner);
            let unread = std::iter::from_fn(|| memory.try_admit(&ctx, LARGE)).take(205);
            slow.extend(unread.map(begun));
        }
        runtime.sleep(Duration::from_secs(1)).await;
        let before = memory.figures().1;
        let guest = request(&runtime, "u", "a");
        assert!(memory.try_admit(&guest, LARGE).is_none());
        assert_eq!(memory.figures().1, before);
    });
}

/// A watch's frame on its way to a client that reads on slowly; `None` where it waits for room.
fn frame_in_flight(memory: &Arc<UnreadMemory>, ctx: &RequestContext, bytes: usize) -> Option<Response<Body>> {
    let (mut holding, rest) = memory.join(ctx);
    let taken = {
        let mut taking = pin!(holding.take(bytes));
        taking
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    };
    taken.then(|| {
        let held = holding.held;
        holding.left(held);
        let body = Body::chunks([vec![b'x'; 64].into()]).holding(holding);
        Response::new(rest.begin(body, None))
    })
}

/// Frames of an account that reads slowly do not make watches of the namespace's other accounts wait.
#[test]
fn unread_watches_of_the_account_with_most_give_way() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let memory = memory(&runtime);
        let (slow, other) = (
            request(&runtime, "slow", "blue"),
            request(&runtime, "other", "blue"),
        );
        let held: Vec<_> = std::iter::from_fn(|| frame_in_flight(&memory, &slow, LARGE)).collect();
        assert_eq!(held.len(), 32);
        runtime.sleep(Duration::from_secs(1)).await;
        let mut others = Vec::new();
        for at in 0..16 {
            others.push(frame_in_flight(&memory, &other, LARGE).unwrap_or_else(|| panic!("{at} waits")));
        }
        assert_eq!(memory.figures().1, 16);
        // They hold as much now.
        assert!(frame_in_flight(&memory, &other, LARGE).is_none());
        assert_eq!(memory.figures().1, 16);
    });
}
