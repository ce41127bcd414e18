//! Requests whose credentials are not known to be good are counted with those of strangers, by address, until they are
//! accepted: to check an invented token costs more than to answer a request without one.
//!
//! Credentials that were accepted of late are remembered, as digests under a key of this process, so that those who share an
//! address with somebody who guesses are served.

use crate::connections::Connection;
use crate::exchange::{Exchange, Peer};
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;

/// So many credentials are remembered at least, and twice as many at most; those that were used last.
const MAX_REMEMBERED: usize = 8_192;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct AcceptedCredentials {
    key: RandomState,
    digests: Mutex<Digests>,
}

#[derive(Debug, Default)]
struct Digests {
    newer: HashSet<u64>,
    older: HashSet<u64>,
}

impl Digests {
    fn note(&mut self, digest: u64) {
        if self.newer.len() >= MAX_REMEMBERED {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(digest);
    }

    fn knows(&mut self, digest: u64) -> bool {
        if self.older.remove(&digest) {
            self.note(digest);
        }
        self.newer.contains(&digest)
    }

    fn forget(&mut self, digest: u64) {
        self.newer.remove(&digest);
        self.older.remove(&digest);
    }
}

/// Reports whether a request says whose it is, truly or not: by a certificate, a token, or a token of a WebSocket.
pub(crate) fn has_credentials(headers: &HeaderMap, peer: &Peer) -> bool {
    peer.certificate.is_some()
        || headers.contains_key(AUTHORIZATION)
        || headers.contains_key(SEC_WEBSOCKET_PROTOCOL)
}

impl AcceptedCredentials {
    fn digest(&self, headers: &HeaderMap, peer: &Peer) -> u64 {
        let mut hasher = self.key.build_hasher();
        let certificate = peer.certificate.as_ref().map(|own| own.leaf());
        certificate.hash(&mut hasher);
        for name in [AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL] {
            let values: Vec<&[u8]> = headers
                .get_all(name)
                .iter()
                .map(|value| value.as_bytes())
                .collect();
            values.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// A request that is about to be authenticated; `None` where its address has used up what strangers have.
    pub(crate) fn begin(self: &Arc<Self>, exchange: &Exchange) -> Option<Attempt> {
        let (headers, peer) = (exchange.request.headers(), &exchange.peer);
        let mut attempt = Attempt {
            of: None,
            is_counted: false,
        };
        let Some(connection) = peer.connection.clone().filter(|_| has_credentials(headers, peer)) else {
            return Some(attempt);
        };
        let digest = self.digest(headers, peer);
        let runtime = exchange.context.runtime.clone();
        if !self.digests.lock().knows(digest) {
            if !connection.takes_stranger(runtime.monotonic()) {
                return None;
            }
            attempt.is_counted = true;
        }
        attempt.of = Some(Of {
            digest,
            accepted: Arc::clone(self),
            connection,
            runtime,
        });
        Some(attempt)
    }
}

/// See [`AcceptedCredentials::begin`].
pub(crate) struct Attempt {
    /// `None` in process, and without credentials.
    of: Option<Of>,
    is_counted: bool,
}

struct Of {
    digest: u64,
    accepted: Arc<AcceptedCredentials>,
    connection: Arc<Connection>,
    runtime: Runtime,
}

impl Attempt {
    /// Reports whether the credentials proved somebody's identity.
    pub(crate) fn ended(self, is_accepted: bool) {
        let Some(of) = self.of else { return };
        let mut digests = of.accepted.digests.lock();
        match (is_accepted, self.is_counted) {
            (true, true) => {
                digests.note(of.digest);
                of.connection.give_back_stranger();
            }
            (true, false) | (false, true) => {}
            (false, false) => {
                digests.forget(of.digest);
                of.connection.takes_stranger(of.runtime.monotonic());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::{Connections, Limits};
    use apiserver_endpoints::{Body, RequestInfo};
    use apiserver_registry::RequestContext;
    use machinery_meta::UserInfo;
    use machinery_runtime::Simulation;
    use std::net::Ipv4Addr;

    /// Clients of one address; the time stands still.
    struct Address {
        accepted: Arc<AcceptedCredentials>,
        connection: Arc<Connection>,
        runtime: Runtime,
    }

    impl Address {
        fn new(runtime: Runtime) -> Self {
            let limits = Limits {
                all: 8,
                of_address: 8,
            };
            let place = Connections::new(limits).open(Ipv4Addr::LOCALHOST.into(), runtime.monotonic());
            Self {
                accepted: Arc::default(),
                connection: Arc::clone(&place.unwrap().connection),
                runtime,
            }
        }

        /// Reports whether a request with this token is authenticated at all.
        fn sends(&self, token: &str, is_accepted: bool) -> bool {
            let request = http::Request::get("/api").header(AUTHORIZATION, token);
            let request = request.body(Body::empty()).unwrap();
            let info = RequestInfo::parse(request.method(), request.uri()).unwrap();
            let exchange = Exchange {
                info: Arc::new(info),
                context: RequestContext::internal(UserInfo::anonymous(), self.runtime.clone()),
                peer: Peer {
                    connection: Some(Arc::clone(&self.connection)),
                    ..Peer::default()
                },
                request,
            };
            let attempt = self.accepted.begin(&exchange);
            attempt.map(|attempt| attempt.ended(is_accepted)).is_some()
        }

        fn taken_of_invented(&self, asked: u32) -> usize {
            let asked = 0..asked;
            asked
                .filter(|number| self.sends(&format!("Bearer {number}"), false))
                .count()
        }
    }

    #[test]
    fn accepted_credentials_are_exempt_from_the_anonymous_rate() {
        let simulation = Simulation::new(1);
        let address = Address::new(simulation.runtime());
        simulation.run(async move {
            for _ in 0..1_000 {
                assert!(address.sends("Bearer anna", true));
            }
            assert_eq!(address.taken_of_invented(1_000), 400);
            assert!(address.sends("Bearer anna", true), "who is known is served");
            assert!(!address.sends("Bearer bert", true), "bert is not known yet");
            // A token that is not good any more is like any other.
            assert!(address.sends("Bearer anna", false));
            assert!(!address.sends("Bearer anna", true));
        });
    }

    #[test]
    fn accepted_credentials_are_remembered_within_bounds() {
        let mut digests = Digests::default();
        digests.note(1);
        for digest in 2..100_000 {
            digests.note(digest);
            assert!(digests.knows(1), "what is used stays: {digest}");
        }
        assert!(!digests.knows(2));
        assert!(digests.newer.len() + digests.older.len() <= 2 * MAX_REMEMBERED);
        digests.forget(1);
        assert!(!digests.knows(1));
    }
}
