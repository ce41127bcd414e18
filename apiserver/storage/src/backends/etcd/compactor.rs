//! Compaction by age, by one of all servers.

use super::mirror::Mirror;
use super::remote::{Remote, failed, number, revision};
use crate::StorageError;
use etcd_client::{Compare, CompareOp, Txn, TxnOp, TxnOpResponse};
use machinery_meta::Revision;
use std::sync::Arc;
use std::time::Duration;

/// Upstream's key, so that upstream's servers and ours agree: the first to move it in an interval compacts.
const AGREEMENT_KEY: &str = "compact_rev_key";

/// Keeps changes for the retention time and not much longer. Ends with its scope.
pub(super) async fn run(mirror: Arc<Mirror>, remote: Remote, retention: Duration) {
    let (mut version, mut noted) = (0, Revision::ZERO);
    loop {
        mirror.runtime.sleep(retention).await;
        match round(&remote, version, noted).await {
            Ok((next, current, floor)) => {
                (version, noted) = (next, current);
                mirror.compact(floor);
            }
            Err(error) => tracing::warn!(%error, "compaction of etcd failed; it is tried again"),
        }
    }
}

/// Moves the agreement on and compacts to what was noted a round ago; or learns that another server did. The agreement's
/// version, the revision of now, and the floor as far as it is known here.
async fn round(
    remote: &Remote,
    version: i64,
    noted: Revision,
) -> Result<(i64, Revision, Revision), StorageError> {
    let put = TxnOp::put(AGREEMENT_KEY, noted.to_string(), None);
    let transaction = Txn::new()
        .when([Compare::version(AGREEMENT_KEY, CompareOp::Equal, version)])
        .and_then([put])
        .or_else([TxnOp::get(AGREEMENT_KEY, None)]);
    let answer = remote.waiting(remote.kv()?.txn(transaction)).await?;
    let current = revision(answer.header());
    if !answer.succeeded() {
        let found = answer
            .op_responses()
            .into_iter()
            .find_map(|response| match response {
                TxnOpResponse::Get(found) => found.kvs().first().map(etcd_client::KeyValue::version),
                _ => None,
            });
        return Ok((found.unwrap_or(0), current, Revision::ZERO));
    }
    if noted > Revision::ZERO {
        match remote.kv()?.compact(number(noted), None).await.map_err(failed) {
            Ok(_) | Err(StorageError::Compacted { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((version + 1, current, noted))
}
