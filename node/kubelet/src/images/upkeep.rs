//! Upkeep of the records of pulls: removes those of images that are gone, and settles the intents of pulls that were
//! abandoned (their pod was deleted, or the agent died).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use machinery_runtime::Runtime;
use node_cri::{CriClient, v1};

use super::pull_records::PullRecords;

/// A pull whose caller has gone has ended, too, when the next round finds its intent again.
const PAUSE: Duration = Duration::from_secs(300);

pub(super) async fn run(runtime: Runtime, cri: CriClient, records: Arc<PullRecords>) {
    let mut seen = HashSet::new();
    loop {
        remove_stale_records(&runtime, &cri, &records).await;
        seen = settle(&runtime, &cri, &records, &seen).await;
        runtime.sleep(PAUSE).await;
    }
}

/// Removes the records of images that were removed while no agent ran.
async fn remove_stale_records(runtime: &Runtime, cri: &CriClient, records: &Arc<PullRecords>) {
    let known = records.clone();
    let Ok(looked_at) = runtime.blocking(move || known.all()).await else {
        return;
    };
    let Ok(answer) = cri.list_images(v1::ListImagesRequest { filter: None }).await else {
        return;
    };
    let ids: Vec<String> = answer.images.into_iter().map(|image| image.id).collect();
    let records = records.clone();
    // The agent may end meanwhile.
    let _ = runtime
        .blocking(move || records.forget_others(looked_at, &ids))
        .await;
}

/// Settles the abandoned pulls that an earlier round has seen, and answers those that the next may settle.
async fn settle(
    runtime: &Runtime,
    cri: &CriClient,
    records: &Arc<PullRecords>,
    seen: &HashSet<String>,
) -> HashSet<String> {
    let known = records.clone();
    let Ok(abandoned) = runtime.blocking(move || known.abandoned()).await else {
        return HashSet::new();
    };
    let (old, new): (Vec<String>, Vec<String>) =
        abandoned.into_iter().partition(|image| seen.contains(image));
    let mut next: HashSet<String> = new.into_iter().collect();
    for image in old {
        if !settle_one(runtime, cri, records, image.clone()).await {
            next.insert(image);
        }
    }
    next
}

async fn settle_one(runtime: &Runtime, cri: &CriClient, records: &Arc<PullRecords>, image: String) -> bool {
    let Ok(found) = super::status(cri, &image).await else {
        return false;
    };
    let records = records.clone();
    let settled = runtime
        .blocking(move || {
            let came = found
                .as_ref()
                .map(|found| (found.id.as_str(), super::names(found)));
            records.settle(&image, came)
        })
        .await;
    matches!(settled, Ok(Ok(())))
}
