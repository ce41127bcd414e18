//! HTTPS in this process, for the servers that tests stand beside the API server.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use machinery_runtime::Runtime;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A server with a certificate that it signed itself; it ends with the runtime.
pub struct TlsServer {
    pub address: SocketAddr,
    /// Its certificate in PEM.
    pub authority: String,
    connections: Arc<AtomicUsize>,
}

impl TlsServer {
    /// Serves on a free port of this machine, as `127.0.0.1` and by these names.
    pub async fn start<F, A, B>(runtime: &Runtime, names: &[&str], answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Response<B>, hyper::Error>> + Send + 'static,
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let names: Vec<&str> = ["127.0.0.1"].into_iter().chain(names.iter().copied()).collect();
        Self::start_at(runtime, (listener, &names), None, answer)
    }

    /// Serves at a listener by these names, for the holder of a certificate of this authority alone where there is one.
    pub fn start_at<F, A, B>(
        runtime: &Runtime,
        (listener, names): (TcpListener, &[&str]),
        clients: Option<&CertificateDer<'static>>,
        answer: F,
    ) -> Self
    where
        F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Response<B>, hyper::Error>> + Send + 'static,
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let own = rcgen::generate_simple_self_signed(names).unwrap();
        let acceptor = acceptor(&own, clients);
        let server = Self {
            address: listener.local_addr().unwrap(),
            authority: own.cert.pem(),
            connections: Arc::default(),
        };
        let (connections, answer) = (Arc::clone(&server.connections), Arc::new(answer));
        let spawner = runtime.clone();
        let accepting = async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                let (acceptor, answer) = (acceptor.clone(), Arc::clone(&answer));
                let serving = async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(move |request| answer(request));
                    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    drop(connection.with_upgrades().await);
                };
                spawner.spawn("test-server", serving).detach();
            }
        };
        runtime.spawn("test-server", accepting).detach();
        server
    }

    /// Connections that were opened so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

fn acceptor(
    own: &rcgen::CertifiedKey<rcgen::KeyPair>,
    clients: Option<&CertificateDer<'static>>,
) -> TlsAcceptor {
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let tls = match clients {
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            tls.with_client_cert_verifier(verifier.build().unwrap())
        }
        None => tls.with_no_client_auth(),
    };
    let tls = tls.with_single_cert(vec![own.cert.der().clone()], key).unwrap();
    TlsAcceptor::from(Arc::new(tls))
}
