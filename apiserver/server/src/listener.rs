//! The TLS listener: bounded connections, bounded handshakes, HTTP/1.1 and 2 with upgrades.

use crate::connection::Front;
use crate::exchange::Peer;
use crate::host;
use crate::linger::Noted;
use apiserver_auth::authn::PeerCertificate;
use apiserver_endpoints::Body;
use http_body::Body as _;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use machinery_runtime::{CancellationToken, Lingering, Runtime, Unread};
use rustls::ServerConfig;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A handshake that takes longer is a client that will not talk.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// All headers of a request together, its address included (which may have 64 KiB, as far as the parser goes).
/// Go takes a mebibyte. Every connection may hold so much before anybody is known, so it is what the longest address wants
/// and not more.
const MAX_HEADER_BYTES: usize = 128 << 10;
/// As upstream: streams on one connection.
const MAX_STREAMS: u32 = 250;
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// A silent connection is asked whether it is still there.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(15);
/// After an error of `accept` (no descriptors left, say) nothing is gained by trying at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often it is said, at most, that connections cannot be accepted.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(30);

/// What a listener serves with.
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) tls: Arc<ServerConfig>,
    pub(crate) front: Front,
    pub(crate) runtime: Runtime,
    pub(crate) max_connections: usize,
    pub(crate) header_timeout: Duration,
    /// Cancelled when no new requests are taken.
    pub(crate) stopping: CancellationToken,
}

impl Listener {
    /// Accepts until stopping.
    pub(crate) async fn run(self) {
        let room = Arc::new(Semaphore::new(self.max_connections));
        let acceptor = TlsAcceptor::from(Arc::clone(&self.tls));
        let mut complaints = Complaints::default();
        loop {
            let permit = tokio::select! { biased;
                () = self.stopping.cancelled() => return,
                permit = Arc::clone(&room).acquire_owned() => permit,
            };
            let Ok(permit) = permit else { return };
            let accepted = tokio::select! { biased;
                () = self.stopping.cancelled() => return,
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => self.begin(stream, address, acceptor.clone(), permit),
                Err(error) => {
                    if let Some(before) = complaints.due(self.runtime.monotonic()) {
                        tracing::warn!(%error, before, "accepting a connection");
                    }
                    self.runtime.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn begin(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        acceptor: TlsAcceptor,
        permit: OwnedSemaphorePermit,
    ) {
        let runtime = self.runtime.clone();
        let serving = Serving {
            address,
            front: self.front.clone(),
            runtime: runtime.clone(),
            header_timeout: self.header_timeout,
            stopping: self.stopping.clone(),
        };
        self.runtime
            .spawn("connection", async move {
                // Small answers leave at once.
                let _ = stream.set_nodelay(true);
                match runtime.timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => serving.run(stream).await,
                    Ok(Err(error)) => tracing::debug!(%address, %error, "TLS handshake"),
                    Err(_) => tracing::debug!(%address, "TLS handshake took too long"),
                }
                drop(permit);
            })
            .detach();
    }
}

/// What goes wrong many times a second is said now and then, with how often it was not said.
#[derive(Default)]
struct Complaints {
    /// Not before this time is the next one said.
    quiet_until: Duration,
    unsaid: u64,
}

impl Complaints {
    /// How many were kept back since the last one that was said, where this one is to be said.
    fn due(&mut self, now: Duration) -> Option<u64> {
        if now < self.quiet_until {
            self.unsaid += 1;
            return None;
        }
        self.quiet_until = now + COMPLAINT_INTERVAL;
        Some(std::mem::take(&mut self.unsaid))
    }
}

fn builder(header_timeout: Duration) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(MAX_HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(MAX_HEADER_BYTES).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    builder
}

/// The socket below TLS.
fn socket(stream: &mut TlsStream<TcpStream>) -> &mut TcpStream {
    stream.get_mut().0
}

/// One connection that has shaken hands.
struct Serving {
    address: SocketAddr,
    front: Front,
    runtime: Runtime,
    header_timeout: Duration,
    stopping: CancellationToken,
}

impl Serving {
    async fn run(self, stream: TlsStream<TcpStream>) {
        let certificate = stream
            .get_ref()
            .1
            .peer_certificates()
            .and_then(PeerCertificate::new)
            .map(Arc::new);
        let peer = Peer {
            address: Some(self.address),
            certificate,
            identity: None,
        };
        let asked = Arc::new(AtomicBool::new(false));
        let (front, asks) = (self.front.clone(), Arc::clone(&asked));
        let unread = Unread::default();
        let of_requests = unread.clone();
        let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
            asks.store(true, Ordering::Relaxed);
            let http2 = request.version() == http::Version::HTTP_2;
            of_requests.head_read(!request.body().is_end_stream());
            // A stream of HTTP/2 ends without its connection.
            if http2 {
                of_requests.leave();
            }
            let request = request.map(|body| match http2 || body.is_end_stream() {
                true => Body::wrap(body),
                false => Body::wrap(Noted::new(body, &of_requests)),
            });
            let upgraded = of_requests.clone();
            let answer = match host::refusal(&request) {
                Some(refusal) => Box::pin(std::future::ready(refusal)),
                None => front.handle(request, peer.clone()),
            };
            async move {
                let answer = answer.await;
                if answer.status() == http::StatusCode::SWITCHING_PROTOCOLS {
                    upgraded.leave();
                }
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        let builder = builder(self.header_timeout);
        let mut connection = std::pin::pin!(builder.serve_connection_with_upgrades(
            TokioIo::new(Lingering::new(stream, socket, self.runtime.clone(), &unread)),
            service
        ));
        // Which protocol is spoken is known by the first bytes only, and nothing of hyper's waits for those with a limit.
        let ended = tokio::select! { biased;
            ended = connection.as_mut() => ended,
            () = self.stopping.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            () = self.silence(&asked) => {
                tracing::debug!(address = %self.address, "a connection asked for nothing");
                return;
            }
        };
        if let Err(error) = ended {
            tracing::debug!(address = %self.address, error = &*error, "connection ended");
        }
    }

    /// Resolves when the time for a first request is over and there was none.
    async fn silence(&self, asked: &AtomicBool) {
        self.runtime.sleep(self.header_timeout).await;
        if asked.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_all_the_time_is_said_now_and_then() {
        let mut complaints = Complaints::default();
        let later = |part: u32| COMPLAINT_INTERVAL * part / 4;
        assert_eq!(complaints.due(later(0)), Some(0));
        assert_eq!(complaints.due(later(1)), None);
        assert_eq!(complaints.due(later(3)), None);
        assert_eq!(complaints.due(later(4)), Some(2));
        assert_eq!(complaints.due(later(9)), Some(0));
    }
}
