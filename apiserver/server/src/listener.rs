//! The TLS listener: bounded connections, bounded handshakes, HTTP/1.1 and 2 with upgrades.

use crate::connection_requests::ConnectionRequests;
use crate::connections::{Connection, ConnectionSlot, Connections, Timeouts};
use crate::entry::RequestEntry;
use crate::exchange::Peer;
use crate::placed::CountedStream;
use apiserver_auth::authn::PeerCertificate;
use apiserver_auth::pki::ServingIdentity;
use arc_swap::ArcSwap;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use machinery_runtime::{CancellationToken, KeepAlive, LingeringClose, LogThrottle, Runtime, UnreadFlag};
use rustls::ServerConfig;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A handshake that takes longer is a client that will not talk.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// All headers of a request together, its address included (which may have 64 KiB, as far as the parser goes).
/// Go takes a mebibyte. Every connection may hold so much before its client is known, so it is what the longest address wants
/// and not more.
const MAX_HEADER_BYTES: usize = 128 << 10;
/// Streams on one connection, as upstream.
const MAX_STREAMS: u32 = 250;
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// TCP keepalive of idle connections.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(15);
/// Time that a connection has to end after GOAWAY.
const CLOSING_GRACE: Duration = Duration::from_millis(500);
/// Pause after an error of `accept` (no descriptors left, say): nothing is gained by trying at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The parts with which a listener serves.
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    /// TLS configuration of the next connection.
    pub(crate) tls: Arc<ArcSwap<ServerConfig>>,
    /// The certificates of that.
    pub(crate) serving: Arc<ServingIdentity>,
    pub(crate) front: RequestEntry,
    pub(crate) runtime: Runtime,
    pub(crate) connections: Arc<Connections>,
    pub(crate) timeouts: Timeouts,
    pub(crate) keep_alive: KeepAlive,
    /// Cancelled when no new requests are taken.
    pub(crate) stopping: CancellationToken,
}

impl Listener {
    /// Accepts until stopping.
    pub(crate) async fn run(self: Arc<Self>) {
        let log_throttle = LogThrottle::default();
        loop {
            let accepting = async { (self.connections.socket().await, self.socket.accept().await) };
            let (socket, accepted) = tokio::select! { biased;
                () = self.stopping.cancelled() => return,
                accepted = accepting => accepted,
            };
            match accepted {
                Ok((stream, address)) => {
                    let place = self.connections.open(address.ip(), self.runtime.monotonic());
                    match place {
                        Some(place) => {
                            let acceptor = self.acceptor(&stream);
                            self.begin(stream, address, acceptor, (place, socket));
                        }
                        None => tracing::debug!(%address, "connection limit reached, refusing a connection"),
                    }
                }
                Err(error) => {
                    if let Some(left_out) = log_throttle.should_log(self.runtime.monotonic()) {
                        tracing::warn!(%error, left_out, "accepting a connection");
                    }
                    self.runtime.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn acceptor(&self, stream: &TcpStream) -> TlsAcceptor {
        let config = self.tls.load_full();
        TlsAcceptor::from(match stream.local_addr() {
            Ok(local) => self.serving.for_address(config, local.ip()),
            Err(_) => config,
        })
    }

    fn begin(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        acceptor: TlsAcceptor,
        (place, socket): (ConnectionSlot, Option<OwnedSemaphorePermit>),
    ) {
        let (runtime, keep_alive) = (self.runtime.clone(), self.keep_alive);
        let serving = Serving {
            address,
            front: self.front.clone(),
            runtime: runtime.clone(),
            timeouts: self.timeouts,
            keep_alive,
            stopping: self.stopping.clone(),
        };
        self.runtime
            .spawn("connection", async move {
                let _socket = socket;
                // Small answers leave at once.
                let _ = stream.set_nodelay(true);
                keep_alive.set(&stream);
                let closing = place.connection.closing.clone();
                let shaken = tokio::select! { biased;
                    () = closing.cancelled() => return,
                    shaken = runtime.timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)) => shaken,
                };
                match shaken {
                    Ok(Ok(stream)) => serving.run(stream, place).await,
                    Ok(Err(error)) => {
                        serving.front.core.metrics.handshake_failed();
                        tracing::debug!(%address, %error, "TLS handshake");
                    }
                    Err(_) => {
                        serving.front.core.metrics.handshake_failed();
                        tracing::debug!(%address, "TLS handshake took too long");
                    }
                }
            })
            .detach();
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // It would count the time between two requests as that of a head; `Connection::deadline` distinguishes them.
        .header_read_timeout(None)
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
    front: RequestEntry,
    runtime: Runtime,
    timeouts: Timeouts,
    keep_alive: KeepAlive,
    stopping: CancellationToken,
}

impl Serving {
    async fn run(self, stream: TlsStream<TcpStream>, place: ConnectionSlot) {
        let connection = Arc::clone(&place.connection);
        let unread = UnreadFlag::default();
        let requests = ConnectionRequests {
            peer: self.peer(&stream, &connection),
            front: self.front.clone(),
            runtime: self.runtime.clone(),
            connection: Arc::clone(&connection),
            unread: unread.clone(),
        };
        let service = hyper::service::service_fn(move |request| requests.answer(request));
        let builder = builder();
        let lingering =
            LingeringClose::new(stream, socket, self.runtime.clone(), &unread).ends_as(self.keep_alive);
        let mut serving = std::pin::pin!(builder.serve_connection_with_upgrades(
            TokioIo::new(CountedStream::new(lingering, place, self.runtime.clone())),
            service
        ));
        // Which protocol is spoken is known by the first bytes only, and nothing of hyper's waits for those with a limit.
        let mut is_leaving = false;
        let ended = loop {
            tokio::select! { biased;
                ended = serving.as_mut() => break Some(ended),
                () = self.stopping.cancelled() => {
                    serving.as_mut().graceful_shutdown();
                    break Some(serving.await);
                }
                () = self.expired(Arc::clone(&connection)) => {
                    serving.as_mut().graceful_shutdown();
                    break tokio::select! { biased;
                        ended = serving => Some(ended),
                        () = self.runtime.sleep(CLOSING_GRACE) => None,
                    };
                }
                () = connection.leaving.cancelled(), if !is_leaving => {
                    is_leaving = true;
                    serving.as_mut().graceful_shutdown();
                }
            }
        };
        // Where the protocol was left for a stream's own, the connection is busy as long as it is open.
        connection.begin_request(http::Version::HTTP_11, self.runtime.monotonic());
        match ended {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                tracing::debug!(address = %self.address, error = &*error, "connection ended");
            }
            None => {
                tracing::debug!(address = %self.address, "connection closed by the client without a TLS close")
            }
        }
    }

    fn peer(&self, stream: &TlsStream<TcpStream>, connection: &Arc<Connection>) -> Peer {
        let certificates = stream.get_ref().1.peer_certificates();
        Peer {
            address: Some(self.address),
            certificate: certificates.and_then(PeerCertificate::new).map(Arc::new),
            identity: None,
            connection: Some(Arc::clone(connection)),
        }
    }

    /// Resolves when the connection was idle for too long, or gives way to another.
    async fn expired(&self, connection: Arc<Connection>) {
        loop {
            let now = self.runtime.monotonic();
            let deadline = connection.deadline(self.timeouts);
            if deadline.is_some_and(|deadline| deadline <= now) {
                tracing::debug!(address = %self.address, "closing an idle connection");
                return;
            }
            // A head that begins meanwhile has an earlier deadline.
            let look = now + self.timeouts.header.min(self.timeouts.idle);
            let wake = deadline.map_or(look, |deadline| deadline.min(look));
            tokio::select! { biased;
                () = connection.closing.cancelled() => return,
                () = self.runtime.sleep_until(wake) => {}
            }
        }
    }
}
