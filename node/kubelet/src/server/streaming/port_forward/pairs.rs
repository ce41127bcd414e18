//! The two streams of a forwarded connection find each other.

use std::collections::HashMap;
use std::time::Duration;

use machinery_runtime::Runtime;

use super::super::spdy::session::{Reading, SpdySession, SpdyStream};
use super::connection::{Dialer, forward};

/// A client opens both streams of a connection at once (upstream's `streamCreationTimeout`).
const STREAMS_TIMEOUT: Duration = Duration::from_secs(30);

/// Streams whose other half has not come yet, by request id and port.
type Halves = HashMap<(String, String), Half>;

/// A stream whose other half has not come yet.
struct Half {
    stream: SpdyStream,
    deadline: Duration,
}

/// Pairs streams and forwards each pair, until the client has gone.
pub(super) async fn serve(runtime: &Runtime, mut session: SpdySession, dialer: Dialer) {
    let mut halves = Halves::new();
    let connections = runtime.child_scope();
    loop {
        let stream = tokio::select! {
            biased;
            stream = session.accept() => stream,
            () = first_deadline(runtime, &halves) => {
                end_overdue(runtime, &mut halves).await;
                continue;
            }
        };
        let Some(stream) = stream else { return };
        let Some((error, data)) = paired(runtime, &mut halves, stream).await else {
            continue;
        };
        let (task, dialer) = (runtime.clone(), dialer.clone());
        connections.runtime().spawn("forwarded connection", async move {
            if let Err(message) = forward(&task, &dialer, &error, data).await {
                error.writer().write(message.into()).await;
            }
            error.writer().finish().await;
        });
    }
}

async fn first_deadline(runtime: &Runtime, halves: &Halves) {
    match halves.values().map(|half| half.deadline).min() {
        Some(deadline) => runtime.sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The error stream and the data stream of a request, once both are there. Nothing is kept of what comes on the first of
/// them: on an error stream only this side writes, and data without an error stream are refused.
async fn paired(
    runtime: &Runtime,
    halves: &mut Halves,
    stream: SpdyStream,
) -> Option<(SpdyStream, SpdyStream)> {
    let is_error = match stream.header("streamtype") {
        "error" => true,
        "data" => false,
        // It is dropped, which resets it.
        _ => return None,
    };
    let key = (
        stream.header("requestid").to_string(),
        stream.header("port").to_string(),
    );
    let Some(Half { stream: other, .. }) = halves.remove(&key) else {
        stream
            .answer(if is_error {
                Reading::Dropped
            } else {
                Reading::Refused
            })
            .await;
        let deadline = runtime.monotonic() + STREAMS_TIMEOUT;
        halves.insert(key, Half { stream, deadline });
        return None;
    };
    match (is_error, other.header("streamtype") == "error") {
        (true, false) => {
            other.set_reading(Reading::Kept);
            stream.answer(Reading::Dropped).await;
            Some((stream, other))
        }
        (false, true) => {
            stream.answer(Reading::Kept).await;
            Some((other, stream))
        }
        // A second one of its kind goes, the first waits on.
        _ => {
            let deadline = runtime.monotonic() + STREAMS_TIMEOUT;
            halves.insert(
                key,
                Half {
                    stream: other,
                    deadline,
                },
            );
            None
        }
    }
}

/// Ends the halves whose partners have not come.
async fn end_overdue(runtime: &Runtime, halves: &mut Halves) {
    let now = runtime.monotonic();
    let overdue = halves.extract_if(|_, half| half.deadline <= now);
    for ((request, _), Half { stream, .. }) in overdue.collect::<Vec<_>>() {
        if stream.header("streamtype") == "error" {
            let words = format!("(request={request}) timed out waiting for streams");
            stream.writer().write(words.into()).await;
        }
        stream.writer().reset().await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::connects::AllConnects;
    use super::*;
    use bytes::Bytes;
    use machinery_runtime::Simulation;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn began(runtime: &Runtime) -> SpdySession {
        let (client, server) = tokio::io::duplex(64 << 10);
        let (own, session) = (runtime.clone(), SpdySession::server(runtime, server));
        let connects = AllConnects::default().of_pod().of_connection();
        let network = None;
        let served = async move { serve(&own, session, Dialer { network, connects }).await };
        runtime.spawn("port-forward session", served);
        SpdySession::client(runtime, client)
    }

    async fn open(client: &mut SpdySession, kind: &str, request: &str, port: u16) -> SpdyStream {
        let port = port.to_string();
        let headers = [("streamtype", kind), ("requestid", request), ("port", &port)];
        client.open(&headers).await.unwrap()
    }

    #[test]
    fn port_forward_half_without_a_partner_ends() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let mut client = began(&runtime);
            let start = runtime.monotonic();
            let mut error = open(&mut client, "error", "1", 80).await;
            let data = open(&mut client, "data", "2", 80).await;
            // No stream of an unknown kind waits, and no second one of a kind.
            for (kind, request) in [("other", "1"), ("error", "1")] {
                open(&mut client, kind, request, 80).await.was_reset().await;
            }
            assert_eq!(runtime.monotonic(), start);
            data.was_reset().await;
            let words = "(request=1) timed out waiting for streams";
            assert_eq!(error.read().await.unwrap(), words);
            error.was_reset().await;
            let waited = runtime.monotonic() - start;
            assert!(
                waited >= STREAMS_TIMEOUT && waited < STREAMS_TIMEOUT * 2,
                "{waited:?}"
            );
        });
    }

    #[test]
    fn port_forward_refuses_data_without_an_error_stream() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let mut client = began(&runtime);
            let start = runtime.monotonic();
            let data = open(&mut client, "data", "1", 80).await;
            // Until it is answered its data are dropped.
            while runtime
                .timeout(Duration::from_millis(1), data.was_reset())
                .await
                .is_err()
            {
                data.writer().write(Bytes::from_static(b"early")).await;
            }
            assert!(runtime.monotonic() - start < STREAMS_TIMEOUT);
        });
    }

    #[tokio::test]
    async fn port_forward_joins_streams_in_either_order() {
        let (runtime, listener) = (Runtime::real(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let port = listener.local_addr().unwrap().port();
        let mut client = began(&runtime);
        for (request, kinds) in [("1", ["error", "data"]), ("2", ["data", "error"])] {
            let first = open(&mut client, kinds[0], request, port).await;
            let second = open(&mut client, kinds[1], request, port).await;
            let (mut error, mut data) = if kinds[0] == "error" {
                (first, second)
            } else {
                (second, first)
            };
            let (mut pod, _) = listener.accept().await.unwrap();
            data.writer().write(Bytes::from_static(b"question")).await;
            data.writer().finish().await;
            let mut received = String::new();
            pod.read_to_string(&mut received).await.unwrap();
            assert_eq!(received, "question");
            pod.write_all(b"answer").await.unwrap();
            drop(pod);
            assert_eq!(data.read().await.unwrap(), "answer");
            assert_eq!((data.read().await, error.read().await), (None, None));
        }
        // A client that resets a stream ends the connection, whatever the pod does.
        let _error = open(&mut client, "error", "3", port).await;
        let data = open(&mut client, "data", "3", port).await;
        let (mut pod, _) = listener.accept().await.unwrap();
        data.writer().reset().await;
        assert_eq!(pod.read(&mut [0]).await.unwrap(), 0);
        while pod.write_all(b"nobody reads this").await.is_ok() {
            tokio::task::yield_now().await;
        }
    }
}
