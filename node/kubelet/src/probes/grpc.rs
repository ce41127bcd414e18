//! The gRPC health check, by hand: one request, one small message each way.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use machinery_meta::go_duration;
use tokio::net::TcpStream;

const ANSWER_BYTES_MAX: usize = 4096;
/// Names of the health statuses, by number.
const STATUSES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
const SERVING: usize = 1;
/// gRPC's code for a method that a server does not have.
const UNIMPLEMENTED: &str = "12";

/// Asks whether a service is serving; failures are in upstream's words.
pub(crate) async fn check(host: &str, port: u16, service: &str, timeout: Duration) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("error: health rpc probe failed: {error}");
    // Upstream tries again until the time is up, and then says only that.
    let unconnected = |_| {
        format!(
            "timeout: failed to connect service \"{host}:{port}\" within {}: context deadline exceeded",
            go_duration::write(timeout)
        )
    };
    let stream = TcpStream::connect((host, port)).await.map_err(unconnected)?;
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(|error| failed(&error))?;
    let request = http::Request::post(format!("http://{host}:{port}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/1.37")
        .body(Full::new(message(service)))
        .map_err(|error| failed(&error))?;
    let talk = async {
        let answer = sender
            .send_request(request)
            .await
            .map_err(|error| failed(&error))?;
        let early = answer.headers().clone();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| failed(&error))?;
        let last = body.trailers().cloned().unwrap_or(early);
        refusal(&last)?;
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

/// Error of the gRPC status in the trailers of an answer.
fn refusal(last: &http::HeaderMap) -> Result<(), String> {
    let field = |name: &str| {
        last.get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let message = field("grpc-message");
    match field("grpc-status") {
        "" | "0" => Ok(()),
        UNIMPLEMENTED => Err(format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
        )),
        code => Err(format!(
            "error: health rpc probe failed: rpc error: code = {code} desc = {message}"
        )),
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

/// `HealthCheckResponse{status}`: field 1, a number, absent where it is zero.
fn verdict(answer: &[u8]) -> Result<(), String> {
    let number = match answer.get(5..) {
        Some([]) => 0,
        Some([0x08, status, ..]) => usize::from(*status),
        _ => return Err("error: health rpc probe failed: no status in the answer".into()),
    };
    if number == SERVING {
        return Ok(());
    }
    let name = STATUSES
        .get(number)
        .map_or(number.to_string(), |name| (*name).to_string());
    Err(format!("service unhealthy (responded with {name:?})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_probe_succeeds_on_serving_only() {
        let unhealthy = |name: &str| Err(format!("service unhealthy (responded with \"{name}\")"));
        let cases: [(&[u8], Result<(), String>); 6] = [
            (&[0, 0, 0, 0, 2, 8, 1], Ok(())),
            (&[0, 0, 0, 0, 2, 8, 2], unhealthy("NOT_SERVING")),
            (&[0, 0, 0, 0, 2, 8, 3], unhealthy("SERVICE_UNKNOWN")),
            (&[0, 0, 0, 0, 2, 8, 9], unhealthy("9")),
            (&[0, 0, 0, 0, 0], unhealthy("UNKNOWN")),
            (
                &[],
                Err("error: health rpc probe failed: no status in the answer".into()),
            ),
        ];
        for (answer, expected) in cases {
            assert_eq!(verdict(answer), expected, "{answer:?}");
        }
    }

    #[test]
    fn grpc_probe_missing_method_is_named() {
        let mut last = http::HeaderMap::new();
        assert_eq!(refusal(&last), Ok(()));
        last.insert("grpc-status", http::HeaderValue::from_static("12"));
        last.insert("grpc-message", http::HeaderValue::from_static("unknown service"));
        let expected = "error: this server does not implement the grpc health protocol \
                        (grpc.health.v1.Health): unknown service";
        assert_eq!(refusal(&last), Err(expected.to_string()));
    }
}
