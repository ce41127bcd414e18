//! Names outside of the cluster: forwarded to other name servers, each question once at a time, and cached ([`cache`]).
//!
//! [`cache`]: crate::cache

use crate::answer::{Answer, Owner, Section, code};
use crate::cache::{Cache, Key, Reply};
use crate::query::{HEADER, Query, kind, read_u16, skip_name};
use crate::upstream::Upstream;
use crate::zone::Record;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use machinery_runtime::Runtime;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, RwLock};

/// An exchange that several clients wait for; `None` where no server answered.
type Exchange = Shared<BoxFuture<'static, Option<Arc<Reply>>>>;

/// Resolves names elsewhere.
#[derive(Debug)]
pub struct Forwarder {
    upstream: RwLock<Arc<Upstream>>,
    cache: Mutex<Cache>,
    in_flight: Mutex<HashMap<Key, Exchange>>,
    runtime: Runtime,
}

impl Forwarder {
    pub fn new(upstream: &[SocketAddr], runtime: Runtime) -> Arc<Self> {
        Arc::new(Self {
            upstream: RwLock::new(Arc::new(Upstream::new(upstream))),
            cache: Mutex::default(),
            in_flight: Mutex::default(),
            runtime,
        })
    }

    /// Replaces the name servers. An equal list changes nothing, so that what is known about failing ones is kept.
    pub fn set_upstream(&self, addresses: &[SocketAddr]) {
        let mut upstream = self.upstream.write().expect("nothing panics while it is held");
        if !upstream.addresses().eq(addresses.iter().copied()) {
            tracing::info!(?addresses, "upstream name servers");
            *upstream = Arc::new(Upstream::new(addresses));
        }
    }

    /// Returns an answer that needs no other server: a cached one, or a refusal.
    pub fn at_once(&self, query: &Query, limit: usize) -> Option<Vec<u8>> {
        // The forwarder relays single messages; a zone transfer is a stream of them.
        if matches!(query.kind, kind::AXFR | kind::IXFR) || self.upstream().is_empty() {
            return Some(Answer::new(query, code::REFUSED, false, limit).finish(query));
        }
        let now = self.runtime.monotonic();
        let cached = self.cache().get(&key(query), now)?;
        Some(render(&cached.0.aged(cached.1), query, limit))
    }

    /// The answer of another server, or its failure.
    pub async fn forward(self: &Arc<Self>, query: &Query, limit: usize) -> Vec<u8> {
        match self.reply(key(query)).await {
            Some(reply) => render(&reply.bytes, query, limit),
            None => Answer::new(query, code::SERVER_FAILURE, false, limit).finish(query),
        }
    }

    /// The answer for a name of the cluster that stands for one elsewhere.
    pub async fn follow(self: &Arc<Self>, query: &Query, target: &str, limit: usize) -> Vec<u8> {
        let mut answer = Answer::new(query, code::NO_ERROR, true, limit);
        answer.record(Section::Answer, Owner::Question, &Record::Cname(target.into()));
        let key = Key {
            name: target.into(),
            kind: query.kind,
            edns: true,
            // Only addresses are taken from it, so the question is the same for all clients and cached once.
            dnssec_ok: false,
            checking_disabled: false,
        };
        if let Some(found) = self.reply(key).await {
            for record in addresses(&found.bytes, query.kind).unwrap_or_default() {
                answer.record(Section::Answer, Owner::Name(target), &record);
            }
        }
        answer.finish(query)
    }

    /// A reply from the cache, from an exchange that is under way, or from one that begins now.
    async fn reply(self: &Arc<Self>, key: Key) -> Option<Arc<Reply>> {
        let exchange = {
            let mut in_flight = self.in_flight.lock().expect("nothing panics while it is held");
            // The cache is read under the lock of `in_flight`: `exchange` fills one and leaves the other under
            // it, so that no question falls in between and is sent twice.
            let now = self.runtime.monotonic();
            if let Some((reply, _)) = self.cache().get(&key, now) {
                return Some(reply);
            }
            in_flight
                .entry(key.clone())
                // `Shared`: the first waiter that is still polled drives the exchange, so a client that leaves
                // does not end it for others.
                .or_insert_with(|| Arc::clone(self).exchange(key).boxed().shared())
                .clone()
        };
        exchange.await
    }

    async fn exchange(self: Arc<Self>, key: Key) -> Option<Arc<Reply>> {
        let upstream = self.upstream();
        let answer = upstream.ask(&key, &self.runtime).await;
        let reply = answer.and_then(Reply::read).map(Arc::new);
        let now = self.runtime.monotonic();
        let mut in_flight = self.in_flight.lock().expect("nothing panics while it is held");
        // Failures are cached too (RFC 9520), or a zone whose servers are down costs an exchange for every
        // packet.
        let kept = reply.clone().unwrap_or_else(|| Arc::new(failure(&key)));
        // Both under the lock of `in_flight`: see `reply`.
        self.cache().put(key.clone(), kept, now);
        in_flight.remove(&key);
        reply
    }

    fn upstream(&self) -> Arc<Upstream> {
        let upstream = self.upstream.read().expect("nothing panics while it is held");
        Arc::clone(&upstream)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().expect("nothing panics while it is held")
    }
}

fn key(query: &Query) -> Key {
    Key {
        name: query.name.as_str().into(),
        kind: query.kind,
        edns: query.edns,
        dnssec_ok: query.dnssec_ok,
        checking_disabled: query.checking_disabled,
    }
}

/// Cached reply if no server answered.
fn failure(key: &Key) -> Reply {
    let mut bytes = crate::upstream::question(key, [0; 2]);
    bytes[2] |= 0x80;
    bytes[3] |= 0x80 | code::SERVER_FAILURE;
    Reply::read(bytes).expect("a question of our own can be read")
}

/// Another server's answer under the client's id, with its flags and its spelling of the name; cut where it does not
/// fit.
fn render(bytes: &[u8], query: &Query, limit: usize) -> Vec<u8> {
    let question = HEADER..HEADER + query.question.len();
    let (Some(&flags), true) = (bytes.get(3), bytes.len() >= question.end) else {
        return Answer::new(query, code::SERVER_FAILURE, false, limit).finish(query);
    };
    if bytes.len() > limit {
        return Answer::new(query, flags & 0x0f, false, limit).cut().finish(query);
    }
    let mut out = bytes.to_vec();
    out[..2].copy_from_slice(&query.id.to_be_bytes());
    // The answer is shared by clients that did and did not set RD; each gets its own bit, id and letter case
    // (DNS 0x20).
    out[2] = out[2] & !1 | u8::from(query.recursion);
    out[question].copy_from_slice(&query.question);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn addresses_are_found_behind_aliases() {
        let key = Key {
            name: "a.example".into(),
            kind: kind::A,
            edns: false,
            dnssec_ok: false,
            checking_disabled: false,
        };
        let mut message = crate::upstream::question(&key, [0; 2]);
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
