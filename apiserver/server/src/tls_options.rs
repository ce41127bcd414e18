//! `--tls-min-version` and `--tls-cipher-suites` of the server's own connections, by Go's names as upstream's flags have them.

use rustls::crypto::CryptoProvider;
use rustls::{ProtocolVersion, SupportedCipherSuite};

/// Versions by upstream's names, and what the TLS library has of them.
const VERSIONS: [(&str, Option<ProtocolVersion>); 4] = [
    ("VersionTLS10", None),
    ("VersionTLS11", None),
    ("VersionTLS12", Some(ProtocolVersion::TLSv1_2)),
    ("VersionTLS13", Some(ProtocolVersion::TLSv1_3)),
];
/// Suites of Go's that the TLS library does not have.
const ABSENT: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];
/// End of older names of suites with ChaCha20.
const CHACHA: &str = "_CHACHA20_POLY1305";

/// Bounds of what clients may agree on with the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Upstream's name of the lowest version; TLS 1.2 where it is empty.
    pub min_version: String,
    /// Suites of TLS 1.2 by Go's names; all where there are none. Those of TLS 1.3 cannot be chosen, as Go's cannot.
    pub cipher_suites: Vec<String>,
}

/// Go's name of a suite.
fn name_of(suite: SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    name.replacen("TLS13_", "TLS_", 1)
}

fn is_newest(suite: SupportedCipherSuite) -> bool {
    suite.version().version == ProtocolVersion::TLSv1_3
}

fn full_name(name: &str) -> String {
    match name.ends_with(CHACHA) {
        true => format!("{name}_SHA256"),
        false => name.to_owned(),
    }
}

impl TlsOptions {
    /// Problems of the flags.
    pub(crate) fn check(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let version = VERSIONS.iter().find(|(name, _)| *name == self.min_version);
        match version {
            None if self.min_version.is_empty() => {}
            None => problems.push(format!(
                "--tls-min-version: unknown tls version {:?}",
                self.min_version
            )),
            Some((name, None)) => problems.push(format!(
                "--tls-min-version: this server does not have {name}, the lowest is VersionTLS12"
            )),
            Some(_) => {}
        }
        let known = rustls::crypto::ring::ALL_CIPHER_SUITES.iter();
        let known: Vec<String> = known.map(|suite| name_of(*suite)).collect();
        for name in &self.cipher_suites {
            if known.contains(&full_name(name)) {
                continue;
            }
            problems.push(match ABSENT.contains(&name.as_str()) {
                true => format!("--tls-cipher-suites: this server does not have {name}"),
                false => format!("--tls-cipher-suites: Cipher suite {name} not supported or doesn't exist"),
            });
        }
        problems
    }

    /// A provider with the suites that clients may agree on.
    pub(crate) fn restricted(&self, provider: &CryptoProvider) -> CryptoProvider {
        let mut provider = provider.clone();
        let listed: Vec<String> = self.cipher_suites.iter().map(|name| full_name(name)).collect();
        let is_lowest_newest = self.min_version == VERSIONS[3].0;
        provider.cipher_suites.retain(|suite| {
            let is_listed = || listed.is_empty() || listed.contains(&name_of(*suite));
            is_newest(*suite) || (!is_lowest_newest && is_listed())
        });
        provider
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(min_version: &str, suites: &[&str]) -> TlsOptions {
        TlsOptions {
            min_version: min_version.to_owned(),
            cipher_suites: suites.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[track_caller]
    fn check(options: &TlsOptions, expected: &[&str]) {
        assert_eq!(options.check(), Vec::<String>::new());
        let provider = options.restricted(&rustls::crypto::ring::default_provider());
        let mut left: Vec<String> = provider
            .cipher_suites
            .iter()
            .map(|suite| name_of(*suite))
            .collect();
        left.sort();
        assert_eq!(left, expected);
    }

    const NEWEST: [&str; 3] = [
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
    ];

    #[test]
    fn tls_versions_and_suites_are_restricted() {
        check(&options("VersionTLS13", &[]), &NEWEST);
        check(
            &options("", &["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]),
            &[&NEWEST[..], &["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]].concat(),
        );
        let old_name = options("VersionTLS12", &["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"]);
        let new_name = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256";
        check(&old_name, &[&NEWEST[..], &[new_name]].concat());
        let all = TlsOptions::default().restricted(&rustls::crypto::ring::default_provider());
        assert_eq!(
            all.cipher_suites.len(),
            rustls::crypto::ring::ALL_CIPHER_SUITES.len()
        );
    }

    #[test]
    fn tls_versions_and_suites_that_are_absent_are_refused_by_name() {
        for (options, expected) in [
            (
                options("VersionTLS10", &[]),
                "--tls-min-version: this server does not have VersionTLS10, the lowest is VersionTLS12",
            ),
            (
                options("TLS1.3", &[]),
                "--tls-min-version: unknown tls version \"TLS1.3\"",
            ),
            (
                options("", &["TLS_RSA_WITH_AES_128_CBC_SHA"]),
                "--tls-cipher-suites: this server does not have TLS_RSA_WITH_AES_128_CBC_SHA",
            ),
            (
                options("", &["TLS_BOATS"]),
                "--tls-cipher-suites: Cipher suite TLS_BOATS not supported or doesn't exist",
            ),
        ] {
            assert_eq!(options.check(), [expected]);
        }
    }
}
