//! Cost of a request for a client: through a `kube::Client` as over a connection, and in the server's process.
//!
//! `cargo test -p machinery-client --test cost -- --ignored --nocapture --test-threads 1` prints CPU time of the thread; under
//! callgrind, run each test alone.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]
#![allow(clippy::print_stdout, reason = "figures are what it is for")]

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http_body_util::StreamBody;
use kube::client::Body;
use machinery_client::Client;
use machinery_runtime::Runtime;
use std::convert::Infallible;
use std::time::Duration;

const TIMES: u32 = 2_000;

/// CPU time of this thread.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

type Piece = Result<http_body::Frame<Bytes>, std::io::Error>;
type Pieces = BoxStream<'static, Piece>;

fn piece(bytes: Bytes) -> Piece {
    Ok(http_body::Frame::data(bytes))
}

async fn requests(client: Client) -> Duration {
    client.get_path("/api", &[]).await.unwrap();
    let begun = cpu();
    for _ in 0..TIMES {
        client.get_path("/api", &[]).await.unwrap();
    }
    (cpu() - begun) / TIMES
}

#[tokio::test]
#[ignore = "measures, and asserts nothing about it"]
async fn cost_of_a_request() {
    let answer = || {
        tower::service_fn(|_: http::Request<Body>| async {
            let pieces: Pieces = stream::iter([piece(Bytes::from_static(b"{}"))]).boxed();
            Ok::<_, Infallible>(http::Response::new(StreamBody::new(pieces)))
        })
    };
    let queued = requests(Client::new(
        kube::Client::new(answer(), "default"),
        Runtime::real(),
    ))
    .await;
    let called = requests(Client::in_process(answer(), Runtime::real())).await;
    println!("a request: {queued:?} through the queue of kube::Client, {called:?} called");
}
