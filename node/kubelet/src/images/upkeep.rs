//! Upkeep of the records of pulls: removes those of images that are gone, and settles the intents of pulls that were
//! abandoned (their pod was deleted, or the agent died).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use machinery_runtime::Runtime;
use node_cri::CriClient;

use super::pull_records::{Abandoned, Found, PullRecords};

/// A pull whose caller has gone has ended, too, when the next round finds its intent again.
const PAUSE: Duration = Duration::from_secs(300);

pub(super) async fn run(runtime: Runtime, cri: CriClient, records: Arc<PullRecords>) {
    let mut seen = HashSet::new();
    loop {
        seen = round(&runtime, &cri, &records, seen).await;
        runtime.sleep(PAUSE).await;
    }
}

/// Removes the records of images that were removed while no agent ran, and settles the abandoned pulls that an earlier round has seen.
/// Returns those that the next may settle.
async fn round(
    runtime: &Runtime,
    cri: &CriClient,
    records: &Arc<PullRecords>,
    seen: HashSet<Abandoned>,
) -> HashSet<Abandoned> {
    let known = records.clone();
    let Ok(looked_at) = runtime.blocking(move || known.all()).await else {
        return seen;
    };
    let Ok(images) = super::all(cri).await else {
        return seen;
    };
    let images: Arc<[Found]> = images.into();
    let (known, there) = (records.clone(), images.clone());
    let abandoned = runtime.blocking(move || {
        known.forget_others(looked_at, &there);
        known.abandoned(&there)
    });
    let Ok(Ok(abandoned)) = abandoned.await else {
        return seen;
    };
    let (old, new): (Vec<_>, Vec<_>) = abandoned.into_iter().partition(|pull| seen.contains(pull));
    let mut next: HashSet<Abandoned> = new.into_iter().collect();
    for pull in old {
        if !settle(runtime, cri, records, pull.0.clone(), images.clone()).await {
            next.insert(pull);
        }
    }
    next
}

async fn settle(
    runtime: &Runtime,
    cri: &CriClient,
    records: &Arc<PullRecords>,
    image: String,
    images: Arc<[Found]>,
) -> bool {
    let Ok(came) = super::status(cri, &image).await else {
        return false;
    };
    let came = came.map(|came| Found::new(&came.id, &super::names(&came)));
    let (records, name) = (records.clone(), image.clone());
    let settled = runtime.blocking(move || records.settle(&name, came.as_ref(), &images));
    match settled.await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::error!(%error, image, "an abandoned pull cannot be settled");
            false
        }
        Err(_) => false,
    }
}
