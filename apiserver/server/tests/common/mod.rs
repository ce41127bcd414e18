//! A real server in this process, on port 0 with memory storage, and a plain client for it.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use apiserver_auth::pki::{Identity, client_config};
use apiserver_server::{Server, ServerConfig};
use apiserver_storage::{LogStorage, Storage};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use machinery_runtime::{Runtime, Scope};
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub struct Cluster {
    pub server: Server,
    pub runtime: Runtime,
    pub admin: Identity,
    pub storage: Arc<dyn Storage>,
    pub address: SocketAddr,
    scope: Scope,
}

pub struct Answer {
    pub code: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    #[track_caller]
    pub fn is(self, code: u16) -> Self {
        assert_eq!(self.code.as_u16(), code, "{}", self.body);
        self
    }
}

pub fn config() -> ServerConfig {
    ServerConfig {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        ..ServerConfig::default()
    }
}

pub async fn start() -> Cluster {
    start_with(config()).await
}

pub async fn start_with(config: ServerConfig) -> Cluster {
    let storage = LogStorage::memory(&Runtime::real()).await.unwrap();
    start_on(config, Arc::new(storage)).await
}

pub async fn start_on(config: ServerConfig, storage: Arc<dyn Storage>) -> Cluster {
    start_in(Runtime::real().child_scope(), config, storage).await
}

pub async fn start_in(scope: Scope, config: ServerConfig, storage: Arc<dyn Storage>) -> Cluster {
    let runtime = scope.runtime().clone();
    let server = Server::builder(Arc::clone(&storage))
        .config(config)
        .start(&runtime)
        .await
        .unwrap();
    let admin = server
        .pki()
        .cluster
        .client("admin", Some("system:masters"), runtime.now())
        .unwrap();
    let address = server.local_address().unwrap();
    Cluster {
        server,
        runtime,
        admin,
        storage,
        address,
        scope,
    }
}

/// A request under construction.
pub struct Ask<'a> {
    pub cluster: &'a Cluster,
    pub identity: Option<&'a Identity>,
    pub headers: Vec<(&'static str, String)>,
}

impl Cluster {
    pub fn admin(&self) -> Ask<'_> {
        Ask {
            cluster: self,
            identity: Some(&self.admin),
            headers: Vec::new(),
        }
    }

    pub fn nobody(&self) -> Ask<'_> {
        Ask {
            cluster: self,
            identity: None,
            headers: Vec::new(),
        }
    }

    pub fn as_identity<'a>(&'a self, identity: &'a Identity) -> Ask<'a> {
        Ask {
            cluster: self,
            identity: Some(identity),
            headers: Vec::new(),
        }
    }

    pub async fn connect(&self, identity: Option<&Identity>) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        self.connect_over(stream, identity).await
    }

    pub async fn connect_over(&self, stream: TcpStream, identity: Option<&Identity>) -> TlsStream<TcpStream> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let authority = self.server.pki().cluster.certificate();
        let tls = match identity {
            Some(identity) => client_config(authority, identity, &provider).unwrap(),
            None => {
                let mut roots = rustls::RootCertStore::empty();
                roots.add(authority.clone()).unwrap();
                rustls::ClientConfig::builder_with_provider(provider)
                    .with_safe_default_protocol_versions()
                    .unwrap()
                    .with_root_certificates(roots)
                    .with_no_client_auth()
            }
        };
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::new(tls))
            .connect(name, stream)
            .await
            .unwrap()
    }
}

impl Cluster {
    /// A connection of the administrator's over which this was sent.
    pub async fn sent(&self, bytes: impl AsRef<[u8]>) -> TlsStream<TcpStream> {
        let mut stream = self.connect(Some(&self.admin)).await;
        stream.write_all(bytes.as_ref()).await.unwrap();
        stream.flush().await.unwrap();
        stream
    }

    /// The administrator's requests over one connection of HTTP/2.
    pub async fn http2(&self) -> http2::SendRequest<Full<Bytes>> {
        let stream = TokioIo::new(self.connect(Some(&self.admin)).await);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        let serving = async move { drop(connection.await) };
        self.runtime.spawn("test-connection", serving).detach();
        sender
    }
}

/// The head of a request that posts a body of JSON.
pub fn post_head(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
}

impl Ask<'_> {
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    #[must_use]
    pub fn token(self, token: &str) -> Self {
        self.header("authorization", format!("Bearer {token}"))
    }

    pub async fn get(self, path: &str) -> Answer {
        self.send(Method::GET, path, Bytes::new()).await
    }

    pub async fn post(self, path: &str, json: impl Into<Bytes>) -> Answer {
        self.header("content-type", "application/json")
            .send(Method::POST, path, json.into())
            .await
    }

    pub async fn send(self, method: Method, path: &str, body: Bytes) -> Answer {
        let stream = self.cluster.connect(self.identity).await;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        self.cluster
            .runtime
            .spawn("test-connection", async move { drop(connection.await) })
            .detach();
        let mut request = Request::builder().method(method).uri(path).header("host", "test");
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let response = sender
            .send_request(request.body(Full::new(body)).unwrap())
            .await
            .unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            code: parts.status,
            headers: parts.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        }
    }
}
