//! An API server that answers reviews, for tests.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::Full;
use kube::Client;
use machinery_runtime::Runtime;
use serde_json::json;

use super::Delegated;

pub(super) const POD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 244, 0, 2));
pub(super) const MONITOR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 244, 0, 3));

/// An API server that lets users with a uid and extra values do everything, knows tokens that end in `good`, has an error
/// for what begins with `bad`, answers no review of `late`, and has no place for `busy`, nor for what begins with `soon` at
/// every second look.
fn delegated(runtime: &Runtime, reviewed: &Arc<AtomicUsize>) -> Delegated {
    let reviewed = reviewed.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let before = reviewed.fetch_add(1, Ordering::Relaxed);
        async move {
            let body = request.into_body().collect_bytes().await.unwrap();
            let mut review: serde_json::Value = serde_json::from_slice(&body).unwrap();
            if review["spec"]["user"] == "broken" {
                return Err(std::io::Error::other("a detail of ours"));
            }
            let subject = ["user", "token"].map(|name| review["spec"][name].as_str().unwrap_or_default());
            let soon = subject[1].starts_with("soon") && before.is_multiple_of(2);
            if subject.contains(&"busy") || soon {
                return Ok(busy());
            }
            if review["kind"] == "SubjectAccessReview" {
                let whole = (json!("u1"), json!({"k": ["v"]}));
                let subject = (&review["spec"]["uid"], &review["spec"]["extra"]);
                review["status"] = json!({"allowed": subject == (&whole.0, &whole.1)});
                let body = Full::new(bytes::Bytes::from(review.to_string()));
                return Ok(http::Response::new(body));
            }
            let token = review["spec"]["token"].as_str().unwrap_or_default().to_owned();
            if token.starts_with("late") {
                std::future::pending::<()>().await;
            }
            let error = token.starts_with("bad").then_some("invalid bearer token");
            review["status"] = json!({"authenticated": token.ends_with("good"), "error": error,
                    "user": {"username": token, "uid": "u1", "extra": {"k": ["v"]}}});
            let body = Full::new(bytes::Bytes::from(review.to_string()));
            Ok::<_, std::io::Error>(http::Response::new(body))
        }
    });
    Delegated::new(runtime.clone(), Client::new(service, "default"), "node".into())
}

/// Answer of a server without a place.
fn busy() -> http::Response<Full<bytes::Bytes>> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests", "code": 429,
        "message": "too many", "details": {"retryAfterSeconds": 2}});
    let body = Full::new(bytes::Bytes::from(status.to_string()));
    let mut answer = http::Response::new(body);
    *answer.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
    answer
}

pub(super) fn story<F: Future<Output = ()> + Send + 'static>(
    story: impl FnOnce(Runtime, Arc<Delegated>, Arc<AtomicUsize>) -> F + Send + 'static,
) {
    let simulation = machinery_runtime::Simulation::new(1);
    let (runtime, reviewed) = (simulation.runtime(), Arc::<AtomicUsize>::default());
    simulation.run(async move {
        let delegated = Arc::new(delegated(&runtime, &reviewed));
        story(runtime, delegated, reviewed).await;
    });
}
