//! Exchanges with other name servers: one question, one answer that is really to it.

use crate::answer::write_name;
use crate::cache::Key;
use crate::query::{CLASS_IN, HEADER, MAX_UDP, kind, read_u16};
use machinery_runtime::Runtime;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// Unit of the timeouts. Tests have a long one: on a busy machine a slow answer would look like a silent server.
const UNIT: Duration = Duration::from_secs(if cfg!(test) { 600 } else { 1 });
/// Timeout of one server, in the first round and in the second.
const PATIENCE: [Duration; 2] = [UNIT, UNIT.saturating_mul(2)];
/// Timeout of all rounds, as resolvers wait no longer for an answer.
const DEADLINE: Duration = UNIT.saturating_mul(5);
/// Time for which a server that failed comes after the others.
const SUSPECTED: Duration = Duration::from_secs(10);
/// The largest answer taken over UDP; more than the advertised size.
const MAX_ANSWER: usize = 4096;
const TRUNCATED: u8 = 2;

/// Name servers in order of preference.
#[derive(Debug)]
pub struct Upstream {
    servers: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    /// On the runtime's clock, in milliseconds.
    suspected_until: AtomicU64,
}

impl Upstream {
    pub fn new(addresses: &[SocketAddr]) -> Self {
        let server = |address: &SocketAddr| Server {
            address: *address,
            suspected_until: AtomicU64::new(0),
        };
        Self {
            servers: addresses.iter().map(server).collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.servers.iter().map(|server| server.address)
    }

    /// The first good answer. A server's own failure (SERVFAIL, REFUSED …) passes the question to the next; the last
    /// such answer is given where none is better.
    pub async fn ask(&self, key: &Key, runtime: &Runtime) -> Option<Vec<u8>> {
        let mut last = None;
        let rounds = async {
            for patience in PATIENCE {
                for server in self.in_order(runtime) {
                    match self.exchange(server, key, patience, runtime).await {
                        Some(answer) if matches!(answer[3] & 0x0f, 0 | 3) => return Some(answer),
                        answer => last = answer.or(last.take()),
                    }
                }
                if last.is_some() {
                    // A server has answered, with a failure of its own: a second round would bring the same and
                    // double the wait.
                    return None;
                }
            }
            None
        };
        let good = runtime.timeout(DEADLINE, rounds).await.ok().flatten();
        good.or(last)
    }

    fn in_order(&self, runtime: &Runtime) -> Vec<&Server> {
        let now = milliseconds(runtime);
        let mut servers: Vec<&Server> = self.servers.iter().collect();
        // A stable sort: among servers in the same state the order of `resolv.conf` holds.
        servers.sort_by_key(|server| server.suspected_until.load(Ordering::Relaxed) > now);
        servers
    }

    async fn exchange(
        &self,
        server: &Server,
        key: &Key,
        patience: Duration,
        runtime: &Runtime,
    ) -> Option<Vec<u8>> {
        let [high, low, ..] = runtime.random_u64().to_be_bytes();
        let message = question(key, [high, low]);
        let ask = async {
            let answer = over_udp(server.address, &message).await?;
            if answer[2] & TRUNCATED == 0 {
                return Ok(answer);
            }
            // Some servers answer over UDP only; their truncated answer is better than none.
            Ok(over_tcp(server.address, &message).await.unwrap_or(answer))
        };
        let error: io::Error = match runtime.timeout(patience, ask).await {
            Ok(Ok(answer)) => {
                server.suspected_until.store(0, Ordering::Relaxed);
                return Some(answer);
            }
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        let server_address = server.address;
        tracing::debug!(server = %server_address, %error, "a name server did not answer");
        let until = milliseconds(runtime) + u64::try_from(SUSPECTED.as_millis()).unwrap_or(u64::MAX);
        server.suspected_until.store(until, Ordering::Relaxed);
        None
    }
}

fn milliseconds(runtime: &Runtime) -> u64 {
    u64::try_from(runtime.monotonic().as_millis()).unwrap_or(u64::MAX)
}

/// A question of our own; nothing of the client's message but what it requests leaves the node.
pub(crate) fn question(key: &Key, id: [u8; 2]) -> Vec<u8> {
    let checking = if key.checking_disabled { 0x10 } else { 0 };
    let mut out = vec![id[0], id[1], 1, checking, 0, 1, 0, 0, 0, 0, 0, u8::from(key.edns)];
    write_name(&mut out, &key.name);
    out.extend(key.kind.to_be_bytes());
    out.extend(CLASS_IN.to_be_bytes());
    if key.edns {
        out.push(0);
        out.extend(kind::OPT.to_be_bytes());
        out.extend(MAX_UDP.to_be_bytes());
        out.extend([0, 0, if key.dnssec_ok { 0x80 } else { 0 }, 0, 0, 0]);
    }
    out
}

/// Reports whether a message answers this question: its id, and the question repeated.
fn answers(question: &[u8], answer: &[u8]) -> bool {
    let end = question_end(question);
    let repeated = answer.get(HEADER..end);
    answer.len() >= HEADER
        && answer[..2] == question[..2]
        // Id, response bit and the question itself: together with the random source port what a forger has to
        // guess.
        && answer[2] & 0x80 != 0
        && read_u16(answer, 4) == Some(1)
        && repeated.is_some_and(|own| own.eq_ignore_ascii_case(&question[HEADER..end]))
}

fn question_end(question: &[u8]) -> usize {
    crate::query::skip_name(question, HEADER).map_or(question.len(), |end| end + 4)
}

async fn over_udp(server: SocketAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    let any: SocketAddr = if server.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    // A socket for each question: the kernel picks a random port, and `connect` drops datagrams of other
    // senders (RFC 5452).
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(message).await?;
    let mut buffer = vec![0; MAX_ANSWER];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // What is not to this question may be an attacker's guess; the answer may still come.
        if answers(message, &buffer[..length]) {
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
    if !answers(message, &answer) {
        return Err(io::Error::other("an answer to another question"));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_to_another_question_is_none() {
        let key = |name: &str| Key {
            name: name.into(),
            kind: kind::A,
            edns: true,
            dnssec_ok: true,
            checking_disabled: false,
        };
        let sent = question(&key("web.example"), [1, 2]);
        let mut good = sent.clone();
        good[2] |= 0x80;
        good[13] = b'W';
        assert!(answers(&sent, &good));
        let mut stranger = question(&key("web.exampla"), [1, 2]);
        stranger[2] |= 0x80;
        assert!(!answers(&sent, &stranger));
        assert!(!answers(&sent, &sent));
        let mut other_id = good.clone();
        other_id[0] = 9;
        assert!(!answers(&sent, &other_id));
        machinery_fuzz::fuzz([&good], |input| {
            machinery_fuzz::in_proportion(input, 4, || answers(&sent, input));
        });
    }
}
