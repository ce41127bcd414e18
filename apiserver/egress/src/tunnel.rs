//! Two upgraded connections joined.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use machinery_runtime::Runtime;

/// What one read takes, in each direction.
const BUFFER_BYTES: usize = 16 << 10;

/// Copies bytes between the two, both ways, until both have ended; in a task of the runtime's scope.
pub fn tunnel(runtime: &Runtime, client: OnUpgrade, upstream: OnUpgrade) {
    runtime
        .spawn("tunnel", async move {
            let joined = tokio::try_join!(client, upstream);
            let (client, upstream) = match joined {
                Ok(both) => both,
                Err(error) => {
                    tracing::debug!(%error, "upgrading a connection");
                    return;
                }
            };
            let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
            let copied = tokio::io::copy_bidirectional_with_sizes(
                &mut client,
                &mut upstream,
                BUFFER_BYTES,
                BUFFER_BYTES,
            );
            if let Err(error) = copied.await {
                tracing::debug!(%error, "tunnel ended");
            }
        })
        .detach();
}
