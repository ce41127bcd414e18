//! A server of the tests that answers reviews: HTTPS in this process, and a kubeconfig for it.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use crate::tls_server::TlsServer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use machinery_runtime::{Runtime, Watched};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The token that the server wants.
const TOKEN: &str = "of-the-server";

/// Makes the code and the body of an answer; a code of 0 never comes.
pub type Answer = dyn Fn(&Value) -> (u16, Value) + Send + Sync;

/// See the module.
pub struct ReviewServer {
    pub address: SocketAddr,
    authority: String,
    seen: Arc<Mutex<Vec<Value>>>,
    count: Arc<Watched<usize>>,
}

impl ReviewServer {
    pub async fn start(
        runtime: &Runtime,
        answer: impl Fn(&Value) -> (u16, Value) + Send + Sync + 'static,
    ) -> Self {
        let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (noted, answer): (_, Arc<Answer>) = (Arc::clone(&seen), Arc::new(answer));
        let count = Arc::new(Watched::new(0));
        let counted = Arc::clone(&count);
        let serve = move |request| {
            let noted = (Arc::clone(&noted), Arc::clone(&counted));
            serve(request, noted, Arc::clone(&answer))
        };
        let tls = TlsServer::start(runtime, &[], serve).await;
        Self {
            address: tls.address,
            authority: tls.authority,
            seen,
            count,
        }
    }

    /// Resolves when so many reviews have come.
    pub async fn until_seen(&self, count: usize) {
        self.count.wait_for(|seen| *seen >= count).await;
    }

    /// Reviews that came, in order.
    pub fn seen(&self) -> Vec<Value> {
        self.seen.lock().unwrap().clone()
    }

    /// Writes a kubeconfig for the server.
    pub fn kubeconfig(&self, path: &Path) {
        let cluster = json!({
            "server": format!("https://{}/reviews", self.address),
            "certificate-authority-data": STANDARD.encode(&self.authority),
        });
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "hook", "cluster": cluster}],
            "users": [{"name": "server", "user": {"token": TOKEN}}],
            "contexts": [{"name": "hook", "context": {"cluster": "hook", "user": "server"}}],
            "current-context": "hook",
        });
        std::fs::write(path, config.to_string()).unwrap();
    }
}

async fn serve(
    request: Request<Incoming>,
    (seen, counted): (Arc<Mutex<Vec<Value>>>, Arc<Watched<usize>>),
    answer: Arc<Answer>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let expected = format!("Bearer {TOKEN}");
    assert_eq!(request.headers()[AUTHORIZATION], expected.as_str());
    assert_eq!(request.uri().path(), "/reviews");
    assert!(request.uri().query().unwrap().starts_with("timeout="));
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    seen.lock().unwrap().push(review.clone());
    counted.change(|count| {
        *count += 1;
        true
    });
    let (code, body) = answer(&review);
    if code == 0 {
        std::future::pending::<()>().await;
    }
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
    Ok(response)
}
