//! A plugin of a key management service (KMS v2), for tests: it listens at a unix socket, encrypts with a real key, and misbehaves
//! as a test says.
//!
//! [`messages`] are its own, so that a wrong number on the server's side is seen. All plugins share one key, to which the id of the
//! key in use is bound: a plugin that starts later decrypts what an earlier one has encrypted.

mod messages;

use aes_gcm::Aes256Gcm;
use aes_gcm::aead::rand_core::RngCore;
use aes_gcm::aead::{Aead, KeyInit, OsRng, Payload};
use hyper_util::rt::{TokioExecutor, TokioIo};
use machinery_runtime::{Runtime, Scope};
use messages::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, StatusRequest, StatusResponse,
};
use parking_lot::Mutex;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::net::{UnixListener, UnixStream};
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// The key of every plugin.
const KEY: &[u8; 32] = b"0123456789abcdef0123456789abcdef";
const NONCE_BYTES: usize = 12;

/// Conduct of a plugin. A call counts before it is answered.
#[derive(Debug, Clone)]
pub struct Conduct {
    /// The key that is written with.
    pub key_id: String,
    /// The key that `Encrypt` names, where it is another one.
    pub encrypts_with: Option<String>,
    pub healthz: String,
    pub version: String,
    /// Beside each encrypted key.
    pub annotations: BTreeMap<String, Vec<u8>>,
    /// Keys that it does not know any more.
    pub lost_keys: BTreeSet<String>,
    /// No call is answered, or none of these: `Status`, `Encrypt`, `Decrypt`.
    pub hangs: BTreeSet<&'static str>,
    /// The encrypted key, in place of one.
    pub ciphertext: Option<Vec<u8>>,
    /// The decrypted key, in place of it.
    pub plaintext: Option<Vec<u8>>,
}

impl Conduct {
    fn new(key_id: &str) -> Self {
        Self {
            key_id: key_id.to_owned(),
            encrypts_with: None,
            healthz: "ok".to_owned(),
            version: "v2".to_owned(),
            annotations: BTreeMap::new(),
            lost_keys: BTreeSet::new(),
            hangs: BTreeSet::new(),
            ciphertext: None,
            plaintext: None,
        }
    }
}

/// Calls that were received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    pub status: u32,
    pub encrypt: u32,
    pub decrypt: u32,
}

/// A plugin that listens. Dropping it ends it, with its connections.
#[derive(Debug)]
pub struct KmsPlugin {
    shared: Arc<Shared>,
    _scope: Scope,
}

#[derive(Debug)]
struct Shared {
    conduct: Mutex<Conduct>,
    calls: Mutex<Calls>,
}

impl KmsPlugin {
    /// Listens at a socket, in the place of whatever is there.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn start(runtime: &Runtime, socket: &Path, key_id: &str) -> io::Result<Self> {
        match std::fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(socket)?;
        let scope = runtime.child_scope();
        let shared = Arc::new(Shared {
            conduct: Mutex::new(Conduct::new(key_id)),
            calls: Mutex::default(),
        });
        let (own, accepting) = (Arc::clone(&shared), scope.runtime().clone());
        scope
            .runtime()
            .spawn("kms model", async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let serving = serve(stream, Arc::clone(&own));
                    accepting.spawn("kms model connection", serving).detach();
                }
            })
            .detach();
        Ok(Self {
            shared,
            _scope: scope,
        })
    }

    /// Changes how it behaves.
    pub fn behave(&self, change: impl FnOnce(&mut Conduct)) {
        change(&mut self.shared.conduct.lock());
    }

    /// Returns the calls so far.
    pub fn calls(&self) -> Calls {
        *self.shared.calls.lock()
    }
}

/// The endpoint of a socket, as a configuration has it.
pub fn endpoint(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}

async fn serve(stream: UnixStream, shared: Arc<Shared>) {
    let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(shared, request.map(Body::new)).await) }
    });
    // An end of the connection is the end of a server, or of the test.
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(shared: Arc<Shared>, request: http::Request<Body>) -> http::Response<Body> {
    match request.uri().path() {
        "/v2.KeyManagementService/Status" => {
            unary(request, |_: Request<StatusRequest>| {
                shared.calls.lock().status += 1;
                shared.clone().answered("Status", Ok(shared.status()))
            })
            .await
        }
        "/v2.KeyManagementService/Encrypt" => {
            unary(request, |asked: Request<EncryptRequest>| {
                shared.calls.lock().encrypt += 1;
                shared
                    .clone()
                    .answered("Encrypt", shared.encrypt(asked.get_ref()))
            })
            .await
        }
        "/v2.KeyManagementService/Decrypt" => {
            unary(request, |asked: Request<DecryptRequest>| {
                shared.calls.lock().decrypt += 1;
                shared
                    .clone()
                    .answered("Decrypt", shared.decrypt(asked.get_ref()))
            })
            .await
        }
        other => Status::unimplemented(format!("unknown method {other}")).into_http(),
    }
}

async fn unary<Asked, Answer, F, A>(request: http::Request<Body>, handle: F) -> http::Response<Body>
where
    Asked: Message + Default + Send + 'static,
    Answer: Message + Send + 'static,
    F: FnMut(Request<Asked>) -> A + Send,
    A: Future<Output = Result<Response<Answer>, Status>> + Send,
{
    let mut grpc = Grpc::new(ProstCodec::<Answer, Asked>::default());
    grpc.unary(tower::service_fn(handle), request).await
}

impl Shared {
    /// The answer, unless the plugin gives none.
    async fn answered<T>(
        self: Arc<Self>,
        call: &'static str,
        answer: Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        if self.conduct.lock().hangs.contains(call) {
            std::future::pending::<()>().await;
        }
        answer.map(Response::new)
    }

    fn status(&self) -> StatusResponse {
        let conduct = self.conduct.lock();
        StatusResponse {
            version: conduct.version.clone(),
            healthz: conduct.healthz.clone(),
            key_id: conduct.key_id.clone(),
        }
    }

    fn encrypt(&self, asked: &EncryptRequest) -> Result<EncryptResponse, Status> {
        let conduct = self.conduct.lock();
        let key_id = conduct.encrypts_with.as_ref().unwrap_or(&conduct.key_id);
        let mut nonce = [0; NONCE_BYTES];
        OsRng.fill_bytes(&mut nonce);
        let payload = Payload {
            msg: &asked.plaintext,
            aad: key_id.as_bytes(),
        };
        let sealed = cipher()
            .encrypt((&nonce).into(), payload)
            .map_err(|_| Status::internal("encryption failed"))?;
        let sealed = [&nonce[..], &sealed].concat();
        Ok(EncryptResponse {
            ciphertext: conduct.ciphertext.clone().unwrap_or(sealed),
            key_id: key_id.clone(),
            annotations: conduct.annotations.clone(),
        })
    }

    fn decrypt(&self, asked: &DecryptRequest) -> Result<DecryptResponse, Status> {
        let conduct = self.conduct.lock();
        if conduct.lost_keys.contains(&asked.key_id) {
            return Err(Status::not_found("unknown key"));
        }
        if let Some(plaintext) = &conduct.plaintext {
            return Ok(DecryptResponse {
                plaintext: plaintext.clone(),
            });
        }
        let wrong = || Status::invalid_argument("this is no key of mine");
        let (nonce, sealed) = asked.ciphertext.split_at_checked(NONCE_BYTES).ok_or_else(wrong)?;
        let payload = Payload {
            msg: sealed,
            aad: asked.key_id.as_bytes(),
        };
        let plaintext = cipher().decrypt(nonce.into(), payload).map_err(|_| wrong())?;
        Ok(DecryptResponse { plaintext })
    }
}

fn cipher() -> Aes256Gcm {
    Aes256Gcm::new(KEY.into())
}
