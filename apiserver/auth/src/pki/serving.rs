//! The certificates that the API server shows: its own, and those of an operator's authorities.
//!
//! The choice among them is upstream's (its `dynamiccertificates` above Go's TLS): an explicit name, a name of a certificate,
//! then the first certificate that fits the client. Under [`LOOPBACK_CLIENT_NAME`] the server always shows its own: by that
//! name clients find it that trust the cluster's authority, whatever the operator serves.

use super::given::ServingCertificate;
use super::{Identity, PkiError, ServingNames};
use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The name by which clients of this cluster's own making request the server's own certificate; upstream's name for its
/// client of itself.
pub const LOOPBACK_CLIENT_NAME: &str = "apiserver-loopback-client";

/// Certificates of an operator's authorities.
#[derive(Debug, Clone, Default)]
pub struct GivenCertificates {
    /// Shown in place of the server's own.
    pub default: Option<Arc<ServingCertificate>>,
    /// Shown to clients that request one of these names; without, for one of the certificate's. Earlier ones go before later.
    pub named: Vec<(Arc<ServingCertificate>, Vec<String>)>,
}

/// The certificates of a listener; a change counts for the next connection.
#[derive(Debug)]
pub struct ServingIdentity {
    own: ArcSwap<OwnCertificate>,
    given: ArcSwap<GivenCertificate>,
    /// Shown behind the server's own certificate: a client that has its hash finds it there (`knarr agent --token`).
    authority: CertificateDer<'static>,
    pub(super) provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
struct OwnCertificate {
    key: Arc<CertifiedKey>,
    names: ServingNames,
}

/// See [`GivenCertificates`].
#[derive(Debug, Default)]
struct GivenCertificate {
    default: Option<Arc<ServingCertificate>>,
    named: Vec<Arc<ServingCertificate>>,
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

impl OwnCertificate {
    fn new(
        identity: &Identity,
        authority: &CertificateDer<'static>,
        provider: &CryptoProvider,
    ) -> Result<Self, PkiError> {
        let mut chain = identity.chain().to_vec();
        // Sent with it, so that a client that pins the authority's key (kubeadm's join hash) finds it in the
        // handshake.
        if !chain.contains(authority) {
            chain.push(authority.clone());
        }
        let key = CertifiedKey::from_der(chain, identity.key(), provider)?;
        Ok(Self {
            key: Arc::new(key),
            names: identity.names().clone(),
        })
    }
}

impl GivenCertificate {
    fn new(given: &GivenCertificates) -> Self {
        let mut by_name = HashMap::new();
        let mut insert = |name: &str, certificate: &Arc<ServingCertificate>| {
            by_name.insert(name.to_ascii_lowercase(), Arc::clone(&certificate.key));
        };
        // Earlier ones come last and win; so do explicit names.
        let unlisted = given.named.iter().rev().filter(|(_, names)| names.is_empty());
        for (certificate, _) in unlisted {
            let names = certificate.names.iter();
            names.for_each(|name| insert(name, certificate));
        }
        for (certificate, names) in given.named.iter().rev() {
            names.iter().for_each(|name| insert(name, certificate));
        }
        Self {
            default: given.default.clone(),
            named: given.named.iter().map(|(own, _)| Arc::clone(own)).collect(),
            by_name,
        }
    }

    /// The certificate that is listed under this name, or under `*` in place of its first label.
    fn listed(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let wildcard = || {
            let rest = name.split_once('.').map_or("", |(_, rest)| rest);
            let wildcard = if rest.is_empty() {
                "*".to_owned()
            } else {
                format!("*.{rest}")
            };
            self.by_name.get(&wildcard)
        };
        self.by_name.get(name).or_else(wildcard)
    }
}

impl ServingIdentity {
    pub fn new(
        identity: &Identity,
        authority: &CertificateDer<'static>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<Self>, PkiError> {
        Ok(Arc::new(Self {
            own: ArcSwap::from_pointee(OwnCertificate::new(identity, authority, provider)?),
            authority: authority.clone(),
            given: ArcSwap::default(),
            provider: Arc::clone(provider),
        }))
    }

    /// Replaces the server's own certificate.
    pub fn replace(&self, identity: &Identity) -> Result<(), PkiError> {
        let own = OwnCertificate::new(identity, &self.authority, &self.provider)?;
        self.own.store(Arc::new(own));
        Ok(())
    }

    /// Replaces the operator's certificates.
    pub fn give(&self, given: &GivenCertificates) {
        self.given.store(Arc::new(GivenCertificate::new(given)));
    }

    /// Verifies and signs.
    pub fn provider(&self) -> &Arc<CryptoProvider> {
        &self.provider
    }

    /// The configuration for a connection to this address of the machine: a client that sends no server name, because it goes by an
    /// address, may be served by what is listed under it.
    pub fn for_address(self: &Arc<Self>, config: Arc<ServerConfig>, address: IpAddr) -> Arc<ServerConfig> {
        let address = address.to_canonical().to_string();
        // The common case keeps the shared configuration, with its cache of sessions.
        if !self.given.load().by_name.contains_key(&address) {
            return config;
        }
        let mut config = ServerConfig::clone(&config);
        config.cert_resolver = Arc::new(AtAddress {
            identity: Arc::clone(self),
            address,
        });
        Arc::new(config)
    }

    /// The certificate for a client that requests this name, or goes by an address; `fits` says whether the client can
    /// verify signatures of its key.
    fn choose(
        &self,
        name: Option<&str>,
        address: Option<&str>,
        fits: impl Fn(&CertifiedKey) -> bool,
    ) -> Arc<CertifiedKey> {
        let (own, given) = (self.own.load(), self.given.load());
        let name = name.map(str::to_ascii_lowercase);
        // Before the operator's certificates: clients of the server itself trust the cluster's authority only.
        if name.as_deref() == Some(LOOPBACK_CLIENT_NAME) {
            return Arc::clone(&own.key);
        }
        let listed = match &name {
            Some(name) => given.listed(name),
            None => address.and_then(|address| given.by_name.get(address)),
        };
        if let Some(listed) = listed {
            return Arc::clone(listed);
        }
        let of_own = || name.as_ref().is_none_or(|name| own.names.contains(name));
        let of_given = |given: &ServingCertificate| name.as_ref().is_none_or(|name| given.covers(name));
        let default = given.default.as_ref();
        let first = default.map_or(&own.key, |default| &default.key);
        let covering = default
            .map(|default| (&default.key, of_given(default)))
            .into_iter()
            .chain(default.is_none().then(|| (&own.key, of_own())))
            .chain(given.named.iter().map(|given| (&given.key, of_given(given))))
            .chain(default.is_some().then(|| (&own.key, of_own())));
        let mut chosen = covering.filter(|(key, covers)| *covers && fits(key));
        Arc::clone(chosen.next().map_or(first, |(key, _)| key))
    }

    fn answer(&self, hello: &ClientHello<'_>, address: Option<&str>) -> Arc<CertifiedKey> {
        let schemes = hello.signature_schemes();
        self.choose(hello.server_name(), address, |key| {
            key.key.choose_scheme(schemes).is_some()
        })
    }
}

impl ResolvesServerCert for ServingIdentity {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.answer(&hello, None))
    }
}

/// The certificates, for connections to one address.
#[derive(Debug)]
struct AtAddress {
    identity: Arc<ServingIdentity>,
    address: String,
}

impl ResolvesServerCert for AtAddress {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.identity.answer(&hello, Some(&self.address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Pki;
    use jiff::Timestamp;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn provider() -> Arc<CryptoProvider> {
        Arc::new(rustls::crypto::ring::default_provider())
    }

    fn certificate(common_name: &str, names: &[&str]) -> Arc<ServingCertificate> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        let read = ServingCertificate::from_pem(&made.pem(), &key.serialize_pem(), &provider());
        Arc::new(read.unwrap())
    }

    struct World {
        identity: Arc<ServingIdentity>,
        known: Vec<(&'static str, Arc<ServingCertificate>)>,
    }

    impl World {
        fn new() -> Self {
            let names: ServingNames = ["kubernetes.default.svc".to_owned(), "10.96.0.1".to_owned()].into();
            let pki = Pki::generate(&names, Timestamp::UNIX_EPOCH).unwrap();
            Self {
                identity: ServingIdentity::new(&pki.serving, pki.cluster.certificate(), &provider()).unwrap(),
                known: Vec::new(),
            }
        }

        fn add(&mut self, label: &'static str, common_name: &str, names: &[&str]) -> Arc<ServingCertificate> {
            let made = certificate(common_name, names);
            self.known.push((label, Arc::clone(&made)));
            made
        }

        #[track_caller]
        fn check(&self, name: Option<&str>, address: Option<&str>, expected: &str) {
            let chosen = self.identity.choose(name, address, |_| true);
            let known = self
                .known
                .iter()
                .find(|(_, known)| Arc::ptr_eq(&known.key, &chosen));
            let label = known.map_or("own", |(label, _)| label);
            assert_eq!(label, expected, "{name:?} {address:?}");
        }
    }

    /// Upstream's rules, which its `TestBuiltNamedCertificates` and Go's `getCertificate` have.
    #[test]
    fn serving_certificate_is_chosen_by_name_as_upstream() {
        let mut world = World::new();
        world.check(None, None, "own");
        let default = world.add("default", "x", &["api.example.com"]);
        let first = world.add("first", "first.example.com", &["*.example.com", "192.0.2.1"]);
        let second = world.add("second", "192.0.2.9", &["api.example.com", "deep.a.example.org"]);
        let explicit = world.add("explicit", "first.example.com", &["other.example.org"]);
        let listed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        world.identity.give(&GivenCertificates {
            default: Some(default),
            named: vec![
                (first, Vec::new()),
                (second, Vec::new()),
                (
                    explicit,
                    listed(&["*.example.net", "FIRST.example.com", "192.0.2.7"]),
                ),
            ],
        });
        // An exact name before one with a wildcard, an explicit name before a certificate's.
        world.check(Some("api.example.com"), None, "second");
        world.check(Some("API.Example.com"), None, "second");
        world.check(Some("web.example.com"), None, "first");
        world.check(Some("first.example.com"), None, "explicit");
        // A wildcard stands for one label.
        world.check(Some("a.b.example.com"), None, "default");
        world.check(Some("a.example.net"), None, "explicit");
        world.check(Some("example.net"), None, "default");
        // The names of a certificate with explicit names do not count first, but it fits its own name better than the default.
        world.check(Some("other.example.org"), None, "explicit");
        // Addresses: those that are listed alone; one in a certificate, or as its common name, is none.
        world.check(None, Some("192.0.2.7"), "explicit");
        world.check(None, Some("192.0.2.1"), "default");
        world.check(None, Some("192.0.2.9"), "default");
        world.check(None, None, "default");
        // What no other covers is the server's own, where that does; else the default's.
        world.check(Some("kubernetes.default.svc"), None, "own");
        world.check(Some("nobody.example.org"), None, "default");
        world.check(Some(LOOPBACK_CLIENT_NAME), None, "own");
    }

    #[test]
    fn serving_certificate_of_a_name_leaves_the_default_as_it_is() {
        let mut world = World::new();
        let first = world.add("first", "x", &["api.example.com"]);
        let again = world.add("again", "x", &["api.example.com"]);
        world.identity.give(&GivenCertificates {
            default: None,
            named: vec![
                (first, Vec::new()),
                (again, vec![LOOPBACK_CLIENT_NAME.to_owned()]),
            ],
        });
        world.check(Some("api.example.com"), None, "first");
        world.check(None, None, "own");
        world.check(Some("nobody.example.org"), None, "own");
        // No given certificate takes the name of the server's own clients.
        world.check(Some(LOOPBACK_CLIENT_NAME), None, "own");
        world.identity.give(&GivenCertificates::default());
        world.check(Some("api.example.com"), None, "own");
    }

    #[test]
    fn serving_certificate_fits_the_signatures_that_the_client_verifies() {
        let mut world = World::new();
        let default = world.add("default", "x", &["api.example.com"]);
        let other = world.add("other", "x", &["api.example.com"]);
        let unfit = Arc::clone(&default.key);
        world.identity.give(&GivenCertificates {
            default: Some(default),
            named: vec![(other.clone(), vec!["unlisted.example.com".to_owned()])],
        });
        let chosen =
            |fits: &dyn Fn(&CertifiedKey) -> bool| world.identity.choose(Some("api.example.com"), None, fits);
        assert!(Arc::ptr_eq(&chosen(&|_| true), &unfit));
        let by_other = chosen(&|key: &CertifiedKey| !std::ptr::eq(key, &*unfit));
        assert!(Arc::ptr_eq(&by_other, &other.key));
        // Where none fits, the first says so in the handshake.
        assert!(Arc::ptr_eq(&chosen(&|_| false), &unfit));
    }
}
