use super::*;
use crate::review_webhook::tests::{places, turns, webhook};
use futures::poll;
use machinery_runtime::Simulation;

const TICK: Duration = Duration::from_millis(1);

#[test]
fn token_review_in_the_line_ends_with_its_last_request() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let webhook = webhook(&runtime);
        let ttl = Duration::from_secs(60);
        let tokens = TokenWebhook::new(webhook, TokenReviewVersion::V1, Vec::new(), ttl, runtime.clone());
        let flow = ReviewFlow::of_anonymous("a");
        let _others = turns(&tokens.0.webhook, flow, &runtime).await;
        let verdict = || {
            Box::pin(tokens.verdict(ShownToken {
                token: "t",
                audiences: &[],
                client: "a",
                now: jiff::Timestamp::UNIX_EPOCH,
            }))
        };
        let (mut first, mut second) = (verdict(), verdict());
        assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
        runtime.sleep(TICK).await;
        assert_eq!(places(&tokens.0.webhook, flow), 1, "one review of both");
        drop(first);
        runtime.sleep(TICK).await;
        assert_eq!(places(&tokens.0.webhook, flow), 1, "the other waits still");
        drop(second);
        runtime.sleep(TICK).await;
        assert_eq!(places(&tokens.0.webhook, flow), 0);
        let mut again = verdict();
        assert!(poll!(&mut again).is_pending());
        runtime.sleep(TICK).await;
        assert_eq!(places(&tokens.0.webhook, flow), 1, "a new review");
        assert!(matches!(again.await, Verdict::Busy), "it had no turn in time");
    });
}
