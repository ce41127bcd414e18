//! The loopback health port: plain HTTP, one question.

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use crate::managers::ManagerContext;

/// Serves for ever.
pub async fn serve(context: ManagerContext) {
    let Some(listener) = context.listeners.take_health() else {
        return;
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            context.runtime.sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        context.runtime.spawn("healthz connection", async move {
            let service = service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                let found = request.uri().path() == "/healthz";
                let (status, text) = if found {
                    (200, "ok")
                } else {
                    (404, "404 page not found\n")
                };
                http::Response::builder()
                    .status(status)
                    .body(Full::new(Bytes::from_static(text.as_bytes())))
            });
            // A client that leaves early is its own affair.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
