//! Asking other name servers, within bounds.

use crate::answer::{Answer, Owner, Section, bare, code, write_name};
use crate::query::{CLASS_IN, HEADER, Query, kind, read_u16};
use crate::zone::Record;
use futures::future::BoxFuture;
use machinery_runtime::Runtime;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// One server has this long before the next is asked.
const PATIENCE: Duration = Duration::from_secs(2);
/// The largest answer taken over UDP.
const MAX_UDP: usize = 4096;

/// How the client asked; the upstream is asked the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
}

/// Asks the upstream servers in turn.
#[derive(Debug, Clone)]
pub struct Forwarder {
    upstream: Vec<SocketAddr>,
    runtime: Runtime,
}

impl Forwarder {
    pub fn new(upstream: Vec<SocketAddr>, runtime: Runtime) -> Self {
        Self { upstream, runtime }
    }

    /// Passes the client's message on and the answer back. Without anyone to ask, the question is refused.
    pub fn forward(&self, query: Query, message: Vec<u8>, transport: Transport) -> BoxFuture<'_, Vec<u8>> {
        Box::pin(async move {
            if self.upstream.is_empty() {
                return Answer::new(&query, code::REFUSED, false, usize::from(u16::MAX)).finish(&query);
            }
            match self.ask(&message, transport).await {
                Some(mut answer) => {
                    answer[..2].copy_from_slice(&query.id.to_be_bytes());
                    answer
                }
                None => {
                    Answer::new(&query, code::SERVER_FAILURE, false, usize::from(u16::MAX)).finish(&query)
                }
            }
        })
    }

    /// The answer for a name of the cluster that stands for one elsewhere.
    pub fn follow(&self, query: Query, target: String, limit: usize) -> BoxFuture<'_, Vec<u8>> {
        Box::pin(async move {
            let mut answer = Answer::new(&query, code::NO_ERROR, true, limit);
            answer.record(
                Section::Answer,
                Owner::Question,
                &Record::Cname(target.as_str().into()),
            );
            if let Some(found) = self.ask(&question(&target, query.kind), Transport::Udp).await {
                for record in addresses(&found, query.kind).unwrap_or_default() {
                    answer.record(Section::Answer, Owner::Name(&target), &record);
                }
            }
            answer.finish(&query)
        })
    }

    /// The first valid answer, under an id of our own.
    async fn ask(&self, message: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let mut message = message.to_vec();
        let random = self.runtime.random_u64().to_be_bytes();
        message.get_mut(..2)?.copy_from_slice(&random[..2]);
        for server in &self.upstream {
            let exchange = async {
                match transport {
                    Transport::Udp => over_udp(*server, &message).await,
                    Transport::Tcp => over_tcp(*server, &message).await,
                }
            };
            match self.runtime.timeout(PATIENCE, exchange).await {
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(error)) => tracing::debug!(%server, %error, "a name server could not be asked"),
                Err(_) => tracing::debug!(%server, "a name server did not answer in time"),
            }
        }
        None
    }
}

async fn over_udp(server: SocketAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    let any: SocketAddr = if server.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(message).await?;
    let mut buffer = vec![0; MAX_UDP];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if length >= HEADER && buffer[..2] == message[..2] && buffer[2] & 0x80 != 0 {
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
}

async fn over_tcp(server: SocketAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    stream
        .write_all(&[&length.to_be_bytes()[..], message].concat())
        .await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    if answer.len() < HEADER || answer[..2] != message[..2] {
        return Err(io::Error::other("an answer to another question"));
    }
    Ok(answer)
}

/// A question of our own.
fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut out = bare(0, 0);
    out[2..6].copy_from_slice(&[1, 0, 0, 1]);
    write_name(&mut out, name);
    out.extend(kind.to_be_bytes());
    out.extend(CLASS_IN.to_be_bytes());
    out
}

/// The addresses among the answers of a message; `None` where it cannot be read.
fn addresses(message: &[u8], wanted: u16) -> Option<Vec<Record>> {
    let questions = read_u16(message, 4)?;
    let answers = read_u16(message, 6)?;
    let mut at = HEADER;
    for _ in 0..questions {
        at = skip_name(message, at)? + 4;
    }
    let mut found = Vec::new();
    for _ in 0..answers {
        at = skip_name(message, at)?;
        let kind_of = read_u16(message, at)?;
        let length = usize::from(read_u16(message, at + 8)?);
        let data = message.get(at + 10..at + 10 + length)?;
        at += 10 + length;
        match (kind_of == wanted, kind_of) {
            (true, kind::A) => found.push(Record::A(<[u8; 4]>::try_from(data).ok()?.into())),
            (true, kind::AAAA) => found.push(Record::Aaaa(<[u8; 16]>::try_from(data).ok()?.into())),
            _ => {}
        }
    }
    Some(found)
}

fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let length = usize::from(*message.get(at)?);
        match length {
            0 => return Some(at + 1),
            1..=63 => at += 1 + length,
            // A pointer ends the name.
            192.. => return Some(at + 2),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_behind_aliases() {
        let mut message = question("a.example", kind::A);
        message[6..8].copy_from_slice(&[0, 2]);
        // An alias, then an address of what it stands for; names are pointers.
        message.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 2, 0xc0, 14]);
        message.extend([0xc0, 14, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 1, 2, 3, 4]);
        assert_eq!(
            addresses(&message, kind::A),
            Some(vec![Record::A(Ipv4Addr::new(1, 2, 3, 4))])
        );
        assert_eq!(addresses(&message, kind::AAAA), Some(vec![]));
        for end in 0..message.len() {
            assert_eq!(addresses(&message[..end], kind::A), None);
        }
    }
}
