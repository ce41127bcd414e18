//! An issuer of the tests: HTTPS in this process, with discovery and keys that change.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use crate::tls_server::TlsServer;
use apiserver_auth::jwt::{SigningKey, jwks, sign};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// See the module.
pub struct IssuerServer {
    pub address: SocketAddr,
    /// In PEM.
    pub authority: String,
    state: Arc<Mutex<State>>,
    runtime: Runtime,
}

#[derive(Default)]
struct State {
    url: String,
    keys: Vec<SigningKey>,
    /// Requests for the keys.
    fetches: usize,
    hangs: bool,
    is_down: bool,
}

impl IssuerServer {
    pub async fn start(runtime: &Runtime) -> Self {
        let state = Arc::new(Mutex::new(State {
            keys: vec![SigningKey::generate().unwrap()],
            ..State::default()
        }));
        let served = Arc::clone(&state);
        let answer = move |request| answer(request, Arc::clone(&served));
        let tls = TlsServer::start(runtime, &[], answer).await;
        state.lock().unwrap().url = format!("https://{}", tls.address);
        Self {
            address: tls.address,
            authority: tls.authority,
            state,
            runtime: runtime.clone(),
        }
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A token of the key that is in use now, with these claims beside the usual ones.
    pub fn token(&self, claims: &Value) -> String {
        let key = self.state.lock().unwrap().keys[0].clone();
        self.token_by(&key, claims)
    }

    pub fn token_by(&self, key: &SigningKey, claims: &Value) -> String {
        let now = self.runtime.now().as_second();
        let mut all = json!({"iss": self.url(), "aud": "knarr", "iat": now, "exp": now + 600, "sub": "anna"});
        for (name, value) in claims.as_object().unwrap() {
            all[name] = value.clone();
        }
        sign(key, &all).unwrap()
    }

    /// Puts a new key in the place of all others.
    pub fn rotate(&self) -> SigningKey {
        let mut state = self.state.lock().unwrap();
        let last = state.keys.remove(0);
        state.keys = vec![SigningKey::generate().unwrap()];
        last
    }

    pub fn hang(&self) {
        self.state.lock().unwrap().hangs = true;
    }

    pub fn set_down(&self, is_down: bool) {
        self.state.lock().unwrap().is_down = is_down;
    }

    pub fn fetches(&self) -> usize {
        self.state.lock().unwrap().fetches
    }

    /// An entry of `AuthenticationConfiguration`.
    pub fn entry(&self) -> Value {
        json!({
            "issuer": {"url": self.url(), "audiences": ["knarr"], "certificateAuthority": self.authority},
            "claimMappings": {
                "username": {"claim": "sub", "prefix": "oidc:"},
                "groups": {"claim": "groups", "prefix": "oidc:"},
            },
        })
    }
}

/// A file with these entries.
pub fn file(entries: &[Value]) -> Value {
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": entries})
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let hangs = state.lock().unwrap().hangs;
    if hangs {
        std::future::pending::<()>().await;
    }
    let mut state = state.lock().unwrap();
    if state.is_down {
        let mut down = Response::new(Full::new(Bytes::from_static(b"down")));
        *down.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        return Ok(down);
    }
    let body = match request.uri().path() {
        "/.well-known/openid-configuration" | "/elsewhere" => {
            json!({"issuer": state.url, "jwks_uri": format!("{}/keys", state.url)})
                .to_string()
                .into_bytes()
        }
        "/keys" => {
            state.fetches += 1;
            let keys: Vec<_> = state.keys.iter().map(|key| key.public().clone()).collect();
            jwks::jwks(&keys)
        }
        _ => {
            let mut missing = Response::new(Full::default());
            *missing.status_mut() = http::StatusCode::NOT_FOUND;
            return Ok(missing);
        }
    };
    Ok(Response::new(Full::new(body.into())))
}
