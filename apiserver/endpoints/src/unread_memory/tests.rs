use super::*;
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

/// Whoever asks for room with a spent share looks at few of the answers, however many are unread.
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
