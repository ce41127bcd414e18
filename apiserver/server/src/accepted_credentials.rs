//! Requests whose credentials are not known to be good are counted with anonymous ones, by address, until they are
//! accepted: to check an invented token costs more than to answer a request without one.
//!
//! Credentials that were accepted of late are remembered, as digests under a key of this process, so that clients that share an
//! address with a client that guesses are served. A certificate and a token are remembered each by itself, the one that was
//! accepted, and nothing else of a request: whatever else varies, one credential takes one place.

use crate::anonymous_rate::Charged;
use crate::connections::Connection;
use crate::exchange::{Peer, RequestExchange};
use apiserver_auth::authn::{Refusal, is_anonymous, tokens_of};
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Name and beginning of what a user known by a certificate carries.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
const OF_CERTIFICATE: &str = "X509SHA256=";
/// Least number of remembered credentials, the most recently used; there are twice as many at most.
const MAX_REMEMBERED: usize = 8_192;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct AcceptedCredentials {
    key: RandomState,
    digests: Mutex<Digests>,
}

/// Digests of a request's credentials.
#[derive(Debug, Clone, Copy)]
struct Digest {
    certificate: Option<u64>,
    token: Option<u64>,
}

impl Digest {
    fn parts(self) -> impl Iterator<Item = u64> {
        self.certificate.into_iter().chain(self.token)
    }

    /// The one that proved the user's identity.
    fn accepted(self, user: &UserInfo) -> Option<u64> {
        let proofs = user.extra.get(CREDENTIAL_ID).into_iter().flatten();
        let is_certificate =
            self.token.is_none() || proofs.into_iter().any(|id| id.starts_with(OF_CERTIFICATE));
        if is_certificate {
            self.certificate
        } else {
            self.token
        }
    }
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
    fn digest(&self, headers: &HeaderMap, peer: &Peer) -> Digest {
        let certificate = peer.certificate.as_ref().map(|own| own.leaf());
        let certificate = certificate.map(|leaf| self.key.hash_one(("certificate", leaf)));
        let tokens: Vec<String> = tokens_of(headers).collect();
        let token = (!tokens.is_empty()).then(|| self.key.hash_one(("token", tokens)));
        Digest { certificate, token }
    }

    /// A request that is about to be authenticated; `None` where its address has used up the rate of anonymous requests.
    pub(crate) fn begin(self: &Arc<Self>, exchange: &RequestExchange) -> Option<Attempt> {
        let (headers, peer) = (exchange.request.headers(), &exchange.peer);
        let mut attempt = Attempt {
            of: None,
            charged: None,
        };
        let Some(connection) = peer.connection.clone().filter(|_| has_credentials(headers, peer)) else {
            return Some(attempt);
        };
        let digest = self.digest(headers, peer);
        let runtime = exchange.context.runtime.clone();
        if !digest.parts().any(|part| self.digests.lock().knows(part)) {
            attempt.charged = Some(connection.take_anonymous(runtime.monotonic())?);
        }
        attempt.of = Some(CredentialKey {
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
    of: Option<CredentialKey>,
    /// The entry of anonymous requests that it counts in.
    charged: Option<Charged>,
}

struct CredentialKey {
    digest: Digest,
    accepted: Arc<AcceptedCredentials>,
    connection: Arc<Connection>,
    runtime: Runtime,
}

impl Attempt {
    /// Takes the user whose identity the credentials proved, or the reason why they proved none. Where that is that they
    /// were not looked at, known ones stay known, and others stay charged.
    pub(crate) fn ended(self, identified: Result<&UserInfo, &Refusal>) {
        let Some(of) = self.of else { return };
        if identified.is_err_and(|refusal| refusal.is_unchecked) {
            return;
        }
        let user = identified.ok().filter(|user| !is_anonymous(user));
        let mut digests = of.accepted.digests.lock();
        match (user, self.charged) {
            (Some(user), Some(charged)) => {
                if let Some(digest) = of.digest.accepted(user) {
                    digests.note(digest);
                }
                of.connection.release_anonymous(&charged);
            }
            (Some(_), None) | (None, Some(_)) => {}
            (None, None) => {
                for digest in of.digest.parts() {
                    digests.forget(digest);
                }
                of.connection.admits_anonymous(of.runtime.monotonic());
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
            self.sends_beside(token, "x", is_accepted)
        }

        /// The same beside these protocols of a WebSocket.
        fn sends_beside(&self, token: &str, protocols: &str, is_accepted: bool) -> bool {
            let refusal = Refusal::new("bad");
            let user = UserInfo::named("carol", [UserInfo::AUTHENTICATED]);
            let identified = if is_accepted { Ok(&user) } else { Err(&refusal) };
            self.sends_that_ends(token, protocols, identified)
        }

        /// The same where authentication comes to this.
        fn sends_that_ends(
            &self,
            token: &str,
            protocols: &str,
            identified: Result<&UserInfo, &Refusal>,
        ) -> bool {
            let request = http::Request::get("/api").header(AUTHORIZATION, token);
            let request = request.header(SEC_WEBSOCKET_PROTOCOL, protocols);
            let request = request.body(Body::empty()).unwrap();
            let info = RequestInfo::parse(request.method(), request.uri()).unwrap();
            let exchange = RequestExchange {
                info: Arc::new(info),
                context: RequestContext::internal(UserInfo::anonymous(), self.runtime.clone()),
                peer: Peer {
                    connection: Some(Arc::clone(&self.connection)),
                    ..Peer::default()
                },
                request,
                delegate: None,
            };
            let attempt = self.accepted.begin(&exchange);
            attempt.map(|attempt| attempt.ended(identified)).is_some()
        }

        fn taken_of_invented(&self, requests: u32) -> usize {
            let requests = 0..requests;
            requests
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

    /// A crowded webhook does not make its known users unknown.
    #[test]
    fn accepted_credentials_that_are_not_looked_at_stay_known() {
        let simulation = Simulation::new(1);
        let address = Address::new(simulation.runtime());
        simulation.run(async move {
            let unchecked = Refusal::unchecked("too many");
            let crowded = |token| address.sends_that_ends(token, "x", Err(&unchecked));
            assert!(address.sends("Bearer anna", true));
            assert!(crowded("Bearer anna") && crowded("Bearer bert"));
            assert_eq!(
                address.taken_of_invented(1_000),
                399,
                "bert's is charged, anna's not"
            );
            assert!(crowded("Bearer anna") && address.sends("Bearer anna", true));
            assert!(!crowded("Bearer bert"));
        });
    }

    #[test]
    fn accepted_token_is_remembered_once_whatever_stands_beside_it() {
        let simulation = Simulation::new(1);
        let address = Address::new(simulation.runtime());
        simulation.run(async move {
            assert!(address.sends("Bearer anna", true));
            for number in 0..2 * MAX_REMEMBERED {
                assert!(address.sends_beside("Bearer mallory", &format!("v{number}"), true));
            }
            let digests = address.accepted.digests.lock();
            assert_eq!(digests.newer.len() + digests.older.len(), 2);
        });
    }

    #[test]
    fn accepted_credential_of_a_user_with_a_certificate_is_the_certificate() {
        let digest = Digest {
            certificate: Some(1),
            token: Some(2),
        };
        let mut user = UserInfo::anonymous();
        assert_eq!(digest.accepted(&user), Some(2));
        let id = format!("{OF_CERTIFICATE}00");
        user.extra.insert(CREDENTIAL_ID.to_owned(), vec![id]);
        assert_eq!(digest.accepted(&user), Some(1));
        let alone = Digest {
            token: None,
            ..digest
        };
        assert_eq!(alone.accepted(&UserInfo::anonymous()), Some(1));
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
