//! Shares of flows in the webhook's turns and places, and reviews that are abandoned.

use super::flows::{BYTES_OF_PLACE, MAX_WAITING_OF_FLOW};
use super::*;
use apiserver_egress::{HookPlace, OwnAddresses};
use futures::future::pending;
use machinery_runtime::{Runtime, Simulation};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

const OWN: ReviewFlow<'_> = ReviewFlow {
    name: "own",
    is_anonymous: false,
};

#[test]
fn reviews_of_one_flow_leave_places_to_others() {
    let waiting = Waiting::default();
    let enter = |flow: &'static str| waiting.enter(flow, 0);
    let mut held: Vec<_> = (0..MAX_WAITING_OF_FLOW).map(|_| enter("a").unwrap()).collect();
    assert!(enter("a").is_none());
    assert!(enter("b").is_some());
    held.pop();
    assert!(enter("a").is_some());
    drop(held);
    assert!(waiting.0.lock().is_empty());
}

#[test]
fn reviews_take_places_for_their_bytes() {
    let waiting = Waiting::default();
    let of_a_place = waiting.enter("a", 0).unwrap();
    let of_two = waiting.enter("a", BYTES_OF_PLACE).unwrap();
    assert_eq!(waiting.0.lock()["a"], 3);
    drop((of_a_place, of_two));
    let large: Vec<_> = std::iter::from_fn(|| waiting.enter("a", 1 << 30)).collect();
    assert_eq!(large.len(), 4, "the largest have places");
    assert!(waiting.enter("a", 0).is_none());
    drop(large);
    assert!(waiting.0.lock().is_empty());
}

#[test]
fn service_accounts_of_a_namespace_share() {
    let check = |user: &str, expected: &str| assert_eq!(share_of(user), expected);
    check("system:serviceaccount:blue:a", "system:serviceaccount:blue");
    check(
        "system:serviceaccount:kube-system:a",
        "system:serviceaccount:kube-system:a",
    );
    check("anna", "anna");
}

/// Others' calls are no failure of the webhook, which could let a question pass to the next authorizer.
#[test]
fn review_that_has_no_turn_in_time_is_busy() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let webhook = webhook(&runtime);
        let _others = all_turns(&webhook, &runtime).await;
        let begun = runtime.monotonic();
        let answer = webhook
            .review("TokenReview", &Value::Null, OWN, &|_| {}, pending())
            .await;
        assert_eq!(answer, Err(ReviewCallError::Busy));
        assert_eq!(runtime.monotonic() - begun, LINE_TIMEOUT);
        let counted = "knarr_webhook_calls_turned_away_total{review=\"TokenReview\"} 1";
        assert!(runtime.metrics().text().contains(counted));
    });
}

#[test]
fn reviews_of_strangers_leave_turns_to_users() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let webhook = webhook(&runtime);
        let clients: Vec<String> = (0..1_000).map(|client| client.to_string()).collect();
        let mut held = Vec::new();
        for client in &clients {
            let entering = webhook.anonymous.calls.enter(client, 0);
            held.extend(runtime.timeout(Duration::from_millis(1), entering).await);
        }
        assert_eq!(held.len(), MAX_ANONYMOUS_CALLS, "they have no more turns");
        let begun = runtime.monotonic();
        let call = || std::future::ready((Ok(Vec::new()), false)).boxed();
        assert_eq!(
            webhook.called(OWN, &call, &|_| {}, pin!(pending::<()>())).await,
            Ok(Vec::new())
        );
        assert_eq!(runtime.monotonic(), begun, "no other review was waited for");
    });
}

/// The call of this one fails for a moment, again and again.
#[test]
fn reviews_that_pause_leave_their_turns_to_others() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let webhook = webhook(&runtime);
        let mut others = all_turns(&webhook, &runtime).await;
        others.pop();
        let failed = ReviewCallError::Answered {
            code: 500,
            message: String::new(),
        };
        let (begun, calls) = (runtime.monotonic(), AtomicUsize::new(0));
        let fail = || {
            calls.fetch_add(1, Ordering::Relaxed);
            std::future::ready((Err(failed.clone()), true)).boxed()
        };
        let waits = pin!(pending::<()>());
        let failing = webhook.called(OWN, &fail, &|_| {}, waits);
        let quick = async {
            let call = || std::future::ready((Ok(Vec::new()), false)).boxed();
            let answer = webhook.called(OWN, &call, &|_| {}, pin!(pending::<()>())).await;
            (answer, runtime.monotonic())
        };
        let (failing, (quick, at)) = futures::join!(failing, quick);
        assert_eq!(
            (quick, at),
            (Ok(Vec::new()), begun),
            "it had its turn in the pause"
        );
        assert_eq!(failing, Err(failed));
        assert_eq!(calls.load(Ordering::Relaxed), 5);
    });
}

/// Its places are others' at once; a call that has begun ends, and what fails then is not called again.
#[test]
fn abandoned_review_makes_no_other_call() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let webhook = webhook(&runtime);
        let others = all_turns(&webhook, &runtime).await;
        let begun = runtime.monotonic();
        let leaves = runtime.sleep(Duration::from_secs(1));
        let answer = webhook
            .review("TokenReview", &Value::Null, OWN, &|_| {}, leaves)
            .await;
        assert_eq!(answer, Err(ReviewCallError::Abandoned), "in the line");
        assert_eq!(runtime.monotonic() - begun, Duration::from_secs(1));
        assert_eq!(places(&webhook, OWN), 0);
        drop(others);
        let (calls, left) = (AtomicUsize::new(0), Notify::new());
        let fail = || {
            calls.fetch_add(1, Ordering::Relaxed);
            left.notify_one();
            let late = runtime.sleep(Duration::from_secs(3));
            late.map(|()| (Err(ReviewCallError::Busy), true)).boxed()
        };
        let begun = runtime.monotonic();
        let answer = webhook.called(OWN, &fail, &|_| {}, pin!(left.notified())).await;
        assert_eq!(answer, Err(ReviewCallError::Abandoned), "in the pause");
        assert_eq!(runtime.monotonic() - begun, Duration::from_secs(3));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    });
}

/// Turns of others, until the webhook has none left.
async fn all_turns<'a>(webhook: &'a ReviewWebhook, runtime: &Runtime) -> Vec<HookPlace<'a>> {
    turns(webhook, OWN, runtime).await
}

/// Turns of this flow, until it gets no more.
pub(crate) async fn turns<'a>(
    webhook: &'a ReviewWebhook,
    flow: ReviewFlow<'a>,
    runtime: &Runtime,
) -> Vec<HookPlace<'a>> {
    let mut turns = Vec::new();
    let calls = &webhook.turns_of(flow).calls;
    let turn = || runtime.timeout(Duration::from_millis(1), calls.enter(flow.name, 0));
    while let Ok(turn) = turn().await {
        turns.push(turn);
    }
    turns
}

/// Places that this flow has.
pub(crate) fn places(webhook: &ReviewWebhook, flow: ReviewFlow<'_>) -> usize {
    let waiting = webhook.turns_of(flow).waiting.0.lock();
    waiting.get(flow.name).copied().unwrap_or_default()
}

pub(crate) fn webhook(runtime: &Runtime) -> ReviewWebhook {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let text = r#"{"clusters": [{"name": "a", "cluster": {"server": "https://hooks.example"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a"}}], "current-context": "a"}"#;
    file.write_all(text.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let (tls, own) = (Arc::new(tls), OwnAddresses::default());
    let dialer = Dialer::new(Arc::clone(&tls), tls, own, runtime.clone());
    ReviewWebhook::open(file.path(), dialer, REVIEW_CALL_TIMEOUT).unwrap()
}

#[test]
fn reviews_of_greedy_flows_leave_places_to_the_next() {
    let waiting = Waiting::default();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let greedy = |flow: &'static str| std::iter::from_fn(|| waiting.enter(flow, 0)).collect::<Vec<_>>();
    let held = names.map(greedy);
    assert_eq!(
        held.each_ref().map(Vec::len),
        [128, 128, 128, 128, 128, 128, 128, 64, 32]
    );
    assert!(waiting.enter("late", 0).is_some());
}
