//! Two upgraded connections joined.

use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use machinery_runtime::Runtime;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Size of one read, in each direction.
const BUFFER_BYTES: usize = 16 << 10;
/// Time that a client has to receive the rest of the upstream's bytes and to close.
const PARTING_TIMEOUT: Duration = Duration::from_secs(5);

/// Copies bytes between the two, both ways, until both have ended; in a task of the runtime's scope, which keeps what is
/// `held` as long.
pub fn tunnel(runtime: &Runtime, client: OnUpgrade, upstream: OnUpgrade, held: impl Send + 'static) {
    let own = runtime.clone();
    runtime
        .spawn("tunnel", async move {
            let _held = held;
            let joined = tokio::try_join!(client, upstream);
            let (client, upstream) = match joined {
                Ok(both) => both,
                Err(error) => {
                    tracing::debug!(%error, "upgrading a connection");
                    return;
                }
            };
            join(&own, TokioIo::new(client), TokioIo::new(upstream)).await;
        })
        .detach();
}

/// The reason for which bytes no longer flow in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The sender has finished.
    Said,
    /// The sender's connection broke.
    Gone,
    /// The receiver accepts no more.
    Refused,
}

/// The client receives all that the upstream sent, also where the upstream closes without reading on.
async fn join(runtime: &Runtime, client: impl AsyncRead + AsyncWrite, upstream: impl AsyncRead + AsyncWrite) {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_upstream, mut to_upstream) = tokio::io::split(upstream);
    let outward = async {
        let ended = copy(&mut from_client, &mut to_upstream).await;
        if ended == Ended::Refused {
            // Bytes left unread would reset the client's connection when it is closed.
            return copy(&mut from_client, &mut tokio::io::sink()).await;
        }
        ended
    };
    let inward = copy(&mut from_upstream, &mut to_client);
    tokio::pin!(outward, inward);
    let inward_end = tokio::select! {
        ended = &mut inward => ended,
        ended = &mut outward => {
            if ended == Ended::Said {
                inward.await;
            }
            return;
        }
    };
    if inward_end != Ended::Refused && runtime.timeout(PARTING_TIMEOUT, outward).await.is_err() {
        tracing::debug!("tunnel closed: the client kept its half open");
    }
}

async fn copy(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> Ended {
    let mut buffer = vec![0; BUFFER_BYTES];
    let ended = loop {
        match from.read(&mut buffer).await {
            Ok(0) => break Ended::Said,
            Ok(count) => {
                if to.write_all(&buffer[..count]).await.is_err() || to.flush().await.is_err() {
                    return Ended::Refused;
                }
            }
            Err(_) => break Ended::Gone,
        }
    };
    // It may have gone as well.
    let _ = to.shutdown().await;
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tunnel_last_bytes_after_half_close_are_delivered() {
        let runtime = Runtime::real();
        let (mut client, near) = tokio::io::duplex(64);
        let (mut upstream, far) = tokio::io::duplex(64);
        client.write_all(b"nobody reads this").await.expect("room");
        upstream.write_all(b"the last words").await.expect("room");
        drop(upstream);
        let hears = async {
            let mut received = String::new();
            client.read_to_string(&mut received).await.expect("an end");
            drop(client);
            received
        };
        let ((), received) = tokio::join!(join(&runtime, near, far), hears);
        assert_eq!(received, "the last words");
    }

    #[tokio::test]
    async fn tunnel_half_closed_side_still_receives() {
        let runtime = Runtime::real();
        let (mut client, near) = tokio::io::duplex(64);
        let (mut upstream, far) = tokio::io::duplex(64);
        client.write_all(b"a question").await.expect("room");
        client.shutdown().await.expect("half closed");
        let answers = async {
            let mut request = String::new();
            upstream.read_to_string(&mut request).await.expect("an end");
            upstream.write_all(b"an answer").await.expect("heard");
            drop(upstream);
            request
        };
        let hears = async {
            let mut received = String::new();
            client.read_to_string(&mut received).await.expect("an end");
            received
        };
        let ((), request, received) = tokio::join!(join(&runtime, near, far), answers, hears);
        assert_eq!((request.as_str(), received.as_str()), ("a question", "an answer"));
    }
}
