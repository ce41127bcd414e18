//! Sockets. One task answers datagrams, names of the cluster and cached ones at once; questions that are forwarded
//! or wait for the zone, and every connection, get a task of their own, of which each client has a bounded number
//! ([`SourceSlots`], [`ConnectionSlots`]).

use crate::answer::{Answer, bare, code};
use crate::config::DnsConfig;
use crate::forward::Forwarder;
use crate::query::{Query, Unreadable, parse};
use crate::resolve::{Resolution, resolve};
use crate::source_slots::{SourceSlot, SourceSlots};
use crate::zone::Zone;
use machinery_runtime::{ConnectionSlots, Runtime};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// Questions that wait at the same time, for an answer from elsewhere or for the cluster's names.
const MAX_FORWARDED: usize = 512;
/// Connections open at the same time.
pub(crate) const MAX_CONNECTIONS: usize = 256;
/// A connection without a question for this long is closed.
const IDLE: Duration = Duration::from_secs(10);
/// A connection ends this long after it began, between two questions; its client opens another (RFC 7766, 6.2.3).
const LIFE: Duration = Duration::from_secs(120);
/// The largest question; larger datagrams are cut and then unreadable, connections with a larger one are closed.
const MAX_QUESTION: usize = 4096;
/// A question waits this long for the cluster's names, less than resolvers wait for an answer (glibc: 5 seconds).
const UNKNOWN: Duration = Duration::from_secs(4);
const TCP_LIMIT: usize = u16::MAX as usize;

/// Answers questions from a zone that others keep current.
#[derive(Debug)]
pub struct Server {
    zone: Arc<RwLock<Zone>>,
    forwarder: Arc<Forwarder>,
    runtime: Runtime,
    forwarding: Arc<SourceSlots>,
    connections: Arc<ConnectionSlots>,
    /// See [`LIFE`].
    pub(crate) life: Duration,
}

/// Part of an answer that is known without waiting.
enum Step {
    Send(Vec<u8>),
    Forward(Query),
    Follow(Query, String),
    Unknown(Query),
    Nothing,
}

impl Server {
    pub fn new(zone: Arc<RwLock<Zone>>, forwarder: Arc<Forwarder>, runtime: Runtime) -> Arc<Self> {
        Arc::new(Self {
            zone,
            forwarder,
            runtime,
            forwarding: SourceSlots::new(MAX_FORWARDED),
            connections: ConnectionSlots::for_pods(MAX_CONNECTIONS),
            life: LIFE,
        })
    }

    /// Listens on both transports until one fails.
    pub async fn serve(self: &Arc<Self>, config: &DnsConfig) -> io::Result<()> {
        let socket = Arc::new(UdpSocket::bind(config.address()).await?);
        let listener = TcpListener::bind(config.address()).await?;
        tracing::info!(address = %config.address(), "DNS server listening");
        tokio::select! { biased;
            ended = self.datagrams(&socket) => ended,
            ended = self.connections(&listener) => ended,
        }
    }

    /// Answers datagrams. Errors of single datagrams (a client's closed port comes back as one) end nothing.
    pub async fn datagrams(self: &Arc<Self>, socket: &Arc<UdpSocket>) -> io::Result<()> {
        let mut buffer = vec![0; MAX_QUESTION];
        loop {
            let (length, client) = match socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                // ICMP of an answer to a closed port comes back as an error of the shared socket; it must not
                // end the service for others.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
            let message = &buffer[..length];
            // A question that makes it panic gets no answer, and the next one does.
            let step = self
                .runtime
                .catch("dns question", async { self.step(message, None) });
            match step.await.unwrap_or(Step::Nothing) {
                Step::Nothing => {}
                Step::Send(answer) => {
                    let _ = socket.send_to(&answer, client).await;
                }
                waiting => self.answer_later(socket, client, waiting),
            }
        }
    }

    fn answer_later(self: &Arc<Self>, socket: &Arc<UdpSocket>, client: SocketAddr, step: Step) {
        let share = match self.share(client.ip(), &step) {
            Ok(share) => share,
            Err(refusal) => {
                // Without waiting: the only task that reads datagrams must not block on a full socket for a
                // client that is over its limit.
                let _ = socket.try_send_to(&refusal, client);
                return;
            }
        };
        let (server, socket) = (Arc::clone(self), Arc::clone(socket));
        let later = async move {
            if let Some(answer) = server.wait(step, None).await {
                let _ = socket.send_to(&answer, client).await;
            }
            drop(share);
        };
        self.runtime.spawn_request("dns forward", later).detach();
    }

    /// A place among the questions that wait, or the answer to a client that has no more of them.
    fn share(&self, client: IpAddr, step: &Step) -> Result<Option<SourceSlot>, Vec<u8>> {
        let (Step::Forward(query) | Step::Follow(query, _) | Step::Unknown(query)) = step else {
            return Ok(None);
        };
        match self.forwarding.take(client) {
            Some(share) => Ok(Some(share)),
            None => Err(failure(query)),
        }
    }

    async fn wait(&self, step: Step, limit: Option<usize>) -> Option<Vec<u8>> {
        let limit_of = |query: &Query| limit.unwrap_or_else(|| usize::from(query.udp_size));
        let step = match step {
            Step::Unknown(query) => self.when_known(query, limit).await,
            step => step,
        };
        match step {
            Step::Nothing => None,
            Step::Send(answer) => Some(answer),
            Step::Forward(query) => Some(self.forwarder.forward(&query, limit_of(&query)).await),
            Step::Follow(query, target) => {
                Some(self.forwarder.follow(&query, &target, limit_of(&query)).await)
            }
            // Resolvers cache NXDOMAIN and repeat after SERVFAIL; the service may well exist.
            Step::Unknown(query) => Some(failure(&query)),
        }
    }

    /// The question again when the zone is complete, or after [`UNKNOWN`].
    async fn when_known(&self, query: Query, limit: Option<usize>) -> Step {
        let complete = self
            .zone
            .read()
            .expect("nothing panics while it is held")
            .completion();
        let _ = self
            .runtime
            .timeout(UNKNOWN, complete.wait_for(|complete| *complete))
            .await;
        self.look_up(query, limit)
    }

    /// `limit` is the client's own over UDP.
    fn step(&self, message: &[u8], limit: Option<usize>) -> Step {
        let query = match parse(message) {
            Ok(query) => query,
            Err(Unreadable::Ignore) => return Step::Nothing,
            Err(Unreadable::Malformed(id)) => return Step::Send(bare(id, code::FORMAT_ERROR)),
            Err(Unreadable::NotImplemented(id)) => return Step::Send(bare(id, code::NOT_IMPLEMENTED)),
        };
        self.look_up(query, limit)
    }

    fn look_up(&self, query: Query, limit: Option<usize>) -> Step {
        let limit = limit.unwrap_or_else(|| usize::from(query.udp_size));
        let resolution = {
            let zone = self.zone.read().expect("nothing panics while it is held");
            resolve(&zone, &query, limit)
        };
        match resolution {
            Resolution::Answer(answer) => Step::Send(answer),
            Resolution::Forward => match self.forwarder.at_once(&query, limit) {
                Some(answer) => Step::Send(answer),
                None => Step::Forward(query),
            },
            Resolution::Follow { target } => Step::Follow(query, target),
            Resolution::Unknown => Step::Unknown(query),
        }
    }

    /// Answers over connections, as many questions as a client has. A new connection always finds a place: where there is
    /// none, or where its client has its share, an older one is closed for it.
    pub async fn connections(self: &Arc<Self>, listener: &TcpListener) -> io::Result<()> {
        loop {
            let (stream, client) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "accepting a connection failed");
                    self.runtime.sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let place = self.connections.enter(client.ip());
            let server = Arc::clone(self);
            let converse = async move {
                tokio::select! { biased;
                    () = place.closing.cancelled() => {}
                    _ = server.converse(stream, client.ip()) => {}
                }
            };
            self.runtime.spawn_request("dns connection", converse).detach();
        }
    }

    async fn converse(&self, mut stream: TcpStream, client: IpAddr) -> io::Result<()> {
        let end = self.runtime.monotonic() + self.life;
        loop {
            let left = end.saturating_sub(self.runtime.monotonic());
            if left.is_zero() {
                return Ok(());
            }
            let reading = read_message(&mut stream);
            // One limit for the whole message: a client that sends a byte at a time does not hold a connection
            // longer.
            let Ok(message) = self.runtime.timeout(IDLE.min(left), reading).await else {
                return Ok(());
            };
            let step = self.step(&message?, Some(TCP_LIMIT));
            let answer = match self.share(client, &step) {
                Err(refusal) => Some(refusal),
                Ok(_share) => self.wait(step, Some(TCP_LIMIT)).await,
            };
            let Some(answer) = answer else { return Ok(()) };
            let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
            let whole = [&length.to_be_bytes()[..], &answer].concat();
            let Ok(written) = self.runtime.timeout(IDLE, stream.write_all(&whole)).await else {
                return Ok(());
            };
            written?;
        }
    }
}

fn failure(query: &Query) -> Vec<u8> {
    Answer::new(query, code::SERVER_FAILURE, false, TCP_LIMIT).finish(query)
}

async fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = usize::from(stream.read_u16().await?);
    if length > MAX_QUESTION {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(message)
}
