//! The loopback health port: plain HTTP, one question. It fails while a component of the agent is down after a panic.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use machinery_runtime::{LingeringClose, Runtime, UnreadFlag};
use tokio::sync::Semaphore;

use super::{Listeners, components};
use crate::managers::ManagerContext;

/// Questions at a time; a later client waits to be accepted.
const CONNECTIONS_MAX: usize = 16;
/// A client may take this long to say what it wants, and a connection to end.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves for ever.
pub(crate) async fn serve(context: ManagerContext, listeners: Listeners) {
    let Some(listener) = listeners.health.clone() else {
        return;
    };
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            context.runtime.sleep(Duration::from_millis(50)).await;
            continue;
        };
        let runtime = context.runtime.clone();
        context.runtime.spawn("healthz connection", async move {
            let _permit = permit;
            let unread = UnreadFlag::default();
            let stream = LingeringClose::new(stream, |stream| stream, runtime.clone(), &unread);
            let service = service_fn(|request: http::Request<Incoming>| {
                unread.head_read(!request.body().is_end_stream());
                let (status, text) = answer(&runtime, request.uri().path());
                let body = Full::new(Bytes::from(text));
                std::future::ready(http::Response::builder().status(status).body(body))
            });
            // A client that leaves early is its own affair.
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            let _ = runtime.timeout(CONNECTION_TIMEOUT, connection).await;
        });
    }
}

fn answer(runtime: &Runtime, path: &str) -> (u16, String) {
    if path != "/healthz" {
        return (404, "404 page not found\n".to_owned());
    }
    components::health(runtime)
}
