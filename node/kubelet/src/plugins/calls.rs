//! The time limit of a call to a plugin.

use std::time::Duration;

use machinery_runtime::Runtime;
use tonic::Status;

/// Waits so long for the answer of a plugin. A later one is an error in Go's words, as upstream's calls have it.
pub(crate) async fn within<T>(
    runtime: &Runtime,
    time: Duration,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let answer = runtime.timeout(time, call).await;
    answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("context deadline exceeded")))
}
