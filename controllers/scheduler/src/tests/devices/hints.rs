//! Changes of claims that wake a pod, and others (upstream's `TestIsSchedulableAfterClaimChange` and `…TargetPodUpdate`).

use super::stories::Story;
use super::*;
use serde::Deserialize;

const NOW: Duration = Duration::ZERO;
const LATER: Duration = Duration::from_secs(60);

/// A pod that waits, what is known of its claim and of another one, and a change of one of them.
#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    /// `named`, `template`, or `made`: the claim of the template is there.
    pod: String,
    own: Option<Value>,
    other: Option<Value>,
    change: Option<String>,
    /// The claim as it is then; absent where it goes.
    to: Option<Value>,
    /// The pod as it is then.
    update: Option<String>,
    wakes: bool,
}

fn pod_of(story: &mut Story, kind: &str) {
    let (claim, made) = match kind {
        "named" => (json!({"name": "c", "resourceClaimName": "own"}), json!([])),
        "template" => (json!({"name": "c", "resourceClaimTemplateName": "t"}), json!([])),
        _ => (
            json!({"name": "c", "resourceClaimTemplateName": "t"}),
            json!([{"name": "c", "resourceClaimName": "own"}]),
        ),
    };
    story.pod_with("p", vec![claim], made);
}

#[test]
fn claims_wake_the_pods_that_upstream_wakes() {
    let rows: Vec<Row> = serde_json::from_str(include_str!("data/claim_changes.json")).unwrap();
    for row in rows {
        let mut story = Story::new();
        for node in ["a", "b"] {
            story.0.device_slice_changed(node, None, NOW);
        }
        for (name, claim) in [("own", &row.own), ("other", &row.other)] {
            if let Some(claim) = claim {
                story.claim(name, 1, claim);
            }
        }
        pod_of(&mut story, &row.pod);
        // One whose claim is not there is held back, the others fit nowhere.
        if story.0.queue.has_next(NOW) {
            story.rejected(NOW);
        }
        match (&row.change, &row.to) {
            (Some(name), Some(to)) => story.claim(name, 2, to),
            (Some(name), None) => {
                let key = ObjectKey::new("ns", name.as_str());
                story.0.device_claim_changed(&key, None, NOW);
            }
            (None, _) => {}
        }
        if let Some(update) = &row.update {
            pod_of(&mut story, update);
        }
        assert_eq!(story.0.queue.has_next(LATER), row.wakes, "{}", row.name);
    }
}
