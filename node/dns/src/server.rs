//! Sockets. One task answers datagrams, names of the cluster at once; what has to be asked elsewhere and every
//! connection gets a task of its own, of which there are only so many.

use crate::answer::{Answer, bare, code};
use crate::config::DnsConfig;
use crate::forward::{Forwarder, Transport};
use crate::query::{Query, Unreadable, parse};
use crate::resolve::{Resolution, resolve};
use crate::zone::Zone;
use machinery_runtime::Runtime;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

/// Questions being asked elsewhere at the same time.
const MAX_FORWARDED: usize = 512;
/// Connections open at the same time.
const MAX_CONNECTIONS: usize = 256;
/// A connection without a question for this long is closed.
const IDLE: Duration = Duration::from_secs(10);
/// The largest question over UDP; larger ones are cut and then unreadable.
const MAX_QUESTION: usize = 4096;
const TCP_LIMIT: usize = u16::MAX as usize;

/// Answers questions from a zone that others keep current.
#[derive(Debug)]
pub struct Server {
    zone: Arc<RwLock<Zone>>,
    forwarder: Forwarder,
    runtime: Runtime,
    forwarding: Arc<Semaphore>,
    connections: Arc<Semaphore>,
}

/// What is known about an answer without waiting.
enum Step {
    Send(Vec<u8>),
    Forward(Query),
    Follow(Query, String),
    Nothing,
}

impl Server {
    pub fn new(zone: Arc<RwLock<Zone>>, upstream: Vec<SocketAddr>, runtime: Runtime) -> Arc<Self> {
        Arc::new(Self {
            zone,
            forwarder: Forwarder::new(upstream, runtime.clone()),
            runtime,
            forwarding: Arc::new(Semaphore::new(MAX_FORWARDED)),
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        })
    }

    /// Listens on both transports until one fails.
    pub async fn serve(self: &Arc<Self>, config: &DnsConfig) -> io::Result<()> {
        let socket = Arc::new(UdpSocket::bind(config.address()).await?);
        let listener = TcpListener::bind(config.address()).await?;
        tracing::info!(address = %config.address(), "answering names");
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
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
            let message = &buffer[..length];
            match self.step(message, None) {
                Step::Nothing => {}
                Step::Send(answer) => {
                    let _ = socket.send_to(&answer, client).await;
                }
                waiting => self.answer_later(socket, client, message.to_vec(), waiting),
            }
        }
    }

    fn answer_later(
        self: &Arc<Self>,
        socket: &Arc<UdpSocket>,
        client: SocketAddr,
        message: Vec<u8>,
        step: Step,
    ) {
        let Ok(permit) = Arc::clone(&self.forwarding).try_acquire_owned() else {
            let (Step::Forward(query) | Step::Follow(query, _)) = step else {
                return;
            };
            let answer = Answer::new(&query, code::SERVER_FAILURE, false, TCP_LIMIT).finish(&query);
            let _ = socket.try_send_to(&answer, client);
            return;
        };
        let (server, socket) = (Arc::clone(self), Arc::clone(socket));
        let later = async move {
            if let Some(answer) = server.wait(step, message, Transport::Udp).await {
                let _ = socket.send_to(&answer, client).await;
            }
            drop(permit);
        };
        self.runtime.spawn("dns forward", later).detach();
    }

    async fn wait(&self, step: Step, message: Vec<u8>, transport: Transport) -> Option<Vec<u8>> {
        match step {
            Step::Nothing => None,
            Step::Send(answer) => Some(answer),
            Step::Forward(query) => Some(self.forwarder.forward(query, message, transport).await),
            Step::Follow(query, target) => {
                let limit = if transport == Transport::Udp {
                    usize::from(query.udp_size)
                } else {
                    TCP_LIMIT
                };
                Some(self.forwarder.follow(query, target, limit).await)
            }
        }
    }

    /// `limit` is the client's own over UDP.
    fn step(&self, message: &[u8], limit: Option<usize>) -> Step {
        let query = match parse(message) {
            Ok(query) => query,
            Err(Unreadable::Ignore) => return Step::Nothing,
            Err(Unreadable::Malformed(id)) => return Step::Send(bare(id, code::FORMAT_ERROR)),
            Err(Unreadable::NotImplemented(id)) => return Step::Send(bare(id, code::NOT_IMPLEMENTED)),
        };
        let limit = limit.unwrap_or_else(|| usize::from(query.udp_size));
        let resolution = {
            let zone = self.zone.read().expect("nothing panics while it is held");
            resolve(&zone, &query, limit)
        };
        match resolution {
            Resolution::Answer(answer) => Step::Send(answer),
            Resolution::Forward => Step::Forward(query),
            Resolution::Follow { target } => Step::Follow(query, target),
        }
    }

    /// Answers over connections, as many questions as a client has.
    pub async fn connections(self: &Arc<Self>, listener: &TcpListener) -> io::Result<()> {
        loop {
            // The semaphore is never closed.
            let Ok(permit) = Arc::clone(&self.connections).acquire_owned().await else {
                return Ok(());
            };
            let (stream, _) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    self.runtime.sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let server = Arc::clone(self);
            let converse = async move {
                let _ = server.converse(stream).await;
                drop(permit);
            };
            self.runtime.spawn("dns connection", converse).detach();
        }
    }

    async fn converse(&self, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let read = async {
                let length = stream.read_u16().await?;
                let mut message = vec![0; usize::from(length)];
                stream.read_exact(&mut message).await?;
                io::Result::Ok(message)
            };
            let Ok(message) = self.runtime.timeout(IDLE, read).await else {
                return Ok(());
            };
            let message = message?;
            let step = self.step(&message, Some(TCP_LIMIT));
            let Some(answer) = self.wait(step, message, Transport::Tcp).await else {
                return Ok(());
            };
            let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
            let whole = [&length.to_be_bytes()[..], &answer].concat();
            let Ok(written) = self.runtime.timeout(IDLE, stream.write_all(&whole)).await else {
                return Ok(());
            };
            written?;
        }
    }
}
