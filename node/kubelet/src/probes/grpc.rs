//! The gRPC health check, by hand: one request, one small message each way.

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

const ANSWER_BYTES_MAX: usize = 4096;
const SERVING: u8 = 1;

/// Asks whether a service is serving.
pub async fn check(host: &str, port: u16, service: &str) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("error: health rpc failed: {error}");
    let stream = TcpStream::connect((host, port)).await.map_err(|error| {
        format!(
            "error: failed to connect service \"{host}:{port}\": {}",
            super::http::io_text(&error)
        )
    })?;
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(|error| failed(&error))?;
    let request = http::Request::post(format!("http://{host}:{port}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(message(service)))
        .map_err(|error| failed(&error))?;
    let talk = async {
        let answer = sender
            .send_request(request)
            .await
            .map_err(|error| failed(&error))?;
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| failed(&error))?;
        verdict(&body.to_bytes())
    };
    tokio::pin!(talk, connection);
    tokio::select! {
        biased;
        answer = &mut talk => answer,
        // What was answered before the end is still to be read.
        _ = &mut connection => talk.await,
    }
}

/// `HealthCheckRequest{service}` with gRPC's five bytes before it.
fn message(service: &str) -> Bytes {
    let mut body = BytesMut::new();
    if !service.is_empty() {
        body.put_u8(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            body.put_u8(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
            length >>= 7;
        }
        body.put_u8(u8::try_from(length).unwrap_or(0));
        body.put_slice(service.as_bytes());
    }
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(body.len()).unwrap_or(0));
    frame.put(body);
    frame.freeze()
}

/// `HealthCheckResponse{status}`: field 1, a number.
fn verdict(answer: &[u8]) -> Result<(), String> {
    match answer.get(5..) {
        Some([0x08, SERVING, ..]) => Ok(()),
        Some([0x08, status, ..]) => Err(format!("service unhealthy (responded with status {status})")),
        _ => Err("error: health rpc failed: no status in the answer".into()),
    }
}
