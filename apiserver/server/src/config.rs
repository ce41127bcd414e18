//! Configuration of a server; names as upstream's flags.

use crate::authentication_options::AuthenticationOptions;
use crate::authorization_options::AuthorizationOptions;
use crate::feature_gates::{FeatureGates, GateComponent};
use crate::filters::audit::log::AuditLogConfig;
use crate::filters::audit::webhook::AuditWebhookConfig;
use crate::front_proxy::RequestHeaderConfig;
use crate::runtime_config::RuntimeConfig;
use crate::serving_certificates::{self, SniCertificate};
use crate::tls_options::TlsOptions;
use apiserver_auth::pki::{LOOPBACK_CLIENT_NAME, ServingNames};
use apiserver_auth::token_request::{
    EXTENDED_EXPIRATION_SECONDS, TokenLifetimes, WARN_ONLY_EXPIRATION_SECONDS,
};
use apiserver_registry::store::early_expiry::ExpiryBounds;
use ipnet::IpNet;
use machinery_meta::syntax::{dns1123_subdomain, wildcard_dns1123_subdomain};
use machinery_runtime::KeepAlive;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// Upstream's.
const MAX_GOAWAY_CHANCE: f64 = 0.02;

/// Values of `--service-account-max-token-expiration` besides 0 (upstream's `completeServiceAccountOptions`).
const MAX_TOKEN_EXPIRATIONS: RangeInclusive<Duration> =
    Duration::from_secs(3_600)..=Duration::from_secs(1 << 32);

/// Settings of one API server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// `--bind-address` and `--secure-port`; `None` serves in process only.
    pub listen: Option<SocketAddr>,
    /// The address in the `kubernetes` service; `None`: the bind address, or this machine's own.
    pub advertise_address: Option<IpAddr>,
    /// Directory of certificates and keys; `None` keeps them in memory.
    pub cert_dir: Option<PathBuf>,
    /// Further names and addresses in the serving certificate.
    pub tls_san: Vec<String>,
    /// A chain, the leaf first, that is served in place of the server's own certificate, and its key.
    pub tls_cert_file: Option<PathBuf>,
    pub tls_private_key_file: Option<PathBuf>,
    /// Certificates for clients that request certain names; earlier ones go before later ones.
    pub tls_sni_cert_keys: Vec<SniCertificate>,
    pub service_cluster_ip_range: IpNet,
    pub service_node_port_range: (u16, u16),
    pub cluster_domain: String,
    pub token_auth_file: Option<PathBuf>,
    /// Authorities in PEM whose client certificates are accepted besides those of the cluster's own.
    pub client_ca_file: Option<PathBuf>,
    /// Front proxies besides the cluster's own.
    pub request_header: RequestHeaderConfig,
    /// Interval between checks of the files of authorities and of the serving certificate for changes.
    pub file_reload_interval: Duration,
    /// Keys in PEM, private or public, that verify service account tokens besides the one that signs.
    pub service_account_key_files: Vec<PathBuf>,
    /// The key that signs; `None`: the one in `cert_dir`, made at the first start.
    pub service_account_signing_key_file: Option<PathBuf>,
    /// The first signs, tokens of all are accepted; none: the name of the `kubernetes` service.
    pub service_account_issuers: Vec<String>,
    /// Address at which relying parties find the keys of service account tokens; none: this server's advertised
    /// address.
    pub service_account_jwks_uri: Option<String>,
    /// Lifetime of service account tokens at most; zero: tokens live as long as they are requested for.
    pub service_account_max_token_expiration: Duration,
    /// Tokens that the ServiceAccount admission plugin requests live for a year, and their use is warned of after an hour.
    pub service_account_extend_token_expiration: bool,
    /// Audiences that a token must have for this API; none: the issuers.
    pub api_audiences: Vec<String>,
    /// Issuers of tokens, and anonymous requests.
    pub authentication: AuthenticationOptions,
    /// Authorizers in their order; the authorizer of nodes and RBAC where nothing is given.
    pub authorization: AuthorizationOptions,
    /// Without limit at 0, and so the next.
    pub max_requests_inflight: usize,
    pub max_mutating_requests_inflight: usize,
    /// Timeout of requests other than watches and streams.
    pub request_timeout: Duration,
    /// A watch without `timeoutSeconds` ends after this time, or up to twice as long.
    pub min_request_timeout: Duration,
    /// Share of the requests of HTTP/2 after which their client is to open another connection.
    pub goaway_chance: f64,
    /// Bytes of request bodies in memory, over all requests.
    pub body_memory_bytes: usize,
    /// Bytes of lists being made and sent, over all requests.
    pub list_memory_bytes: usize,
    /// Bytes of objects and reviews of requests that wait for admission webhooks, over all requests.
    pub webhook_memory_bytes: usize,
    /// Connections that are served at once; a further one takes the place of the longest idle.
    pub max_connections: usize,
    /// Connections to nodes, pods and services that requests are passed on over; no user and no namespace has more
    /// than half of them.
    pub max_proxied_connections: usize,
    /// Connections that are served at once from one address, those of administrators and nodes aside.
    pub max_connections_per_address: usize,
    /// Time in which a client must send the head of a request, the first of a connection included.
    pub header_timeout: Duration,
    /// Idle time after which a connection is closed; upstream's 90 seconds.
    pub idle_timeout: Duration,
    /// TCP keep-alive of silent connections.
    pub tcp_keep_alive: KeepAlive,
    /// In each such time the body of a request must go on.
    pub body_pace_interval: Duration,
    /// Events of one namespace that are kept; the oldest ones of a namespace with more expire early.
    pub events_per_namespace: ExpiryBounds,
    /// Stores objects that guard something although nothing enforces them yet.
    pub allow_unenforced: bool,
    /// Admission plugins that do not run, by upstream's names.
    pub disable_admission_plugins: Vec<String>,
    /// Admission plugins that run although they are off by default.
    pub enable_admission_plugins: Vec<String>,
    /// `--admission-control-config-file`, with the configurations of admission plugins.
    pub admission_control_config_file: Option<PathBuf>,
    /// In each such time the client of a list must read on.
    pub answer_pace_interval: Duration,
    /// `--audit-log-path` and its companions; `None` writes no audit log.
    pub audit_log: Option<AuditLogConfig>,
    /// `--audit-webhook-config-file` and its companions; `None` sends events to no webhook.
    pub audit_webhook: Option<AuditWebhookConfig>,
    /// `--audit-policy-file`; without, everything is recorded at level `Metadata`.
    pub audit_policy_file: Option<PathBuf>,
    /// `--feature-gates`.
    pub feature_gates: FeatureGates,
    /// `--runtime-config`.
    pub runtime_config: RuntimeConfig,
    /// Time for which events are kept; `None` keeps them.
    pub event_ttl: Option<Duration>,
    /// Versions and cipher suites of TLS.
    pub tls: TlsOptions,
    /// Time that a shutdown waits for requests and mutations.
    pub shutdown_grace: Duration,
    /// Names and values of the flags the server was started with, as `/flagz` shows them.
    pub flags: Vec<(String, String)>,
    /// Definitions of custom kinds in YAML that are written at the start.
    pub bundled_definitions: Vec<&'static str>,
    /// Other parts of the control plane in this process, by the names that `componentstatuses` shows.
    pub components: Vec<&'static str>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: None,
            advertise_address: None,
            cert_dir: None,
            tls_san: Vec::new(),
            tls_cert_file: None,
            tls_private_key_file: None,
            tls_sni_cert_keys: Vec::new(),
            service_cluster_ip_range: IpNet::new_assert(Ipv4Addr::new(10, 96, 0, 0).into(), 16),
            service_node_port_range: (30_000, 32_767),
            cluster_domain: "cluster.local".to_owned(),
            token_auth_file: None,
            client_ca_file: None,
            request_header: RequestHeaderConfig::default(),
            file_reload_interval: Duration::from_secs(5),
            service_account_key_files: Vec::new(),
            service_account_signing_key_file: None,
            service_account_issuers: Vec::new(),
            service_account_jwks_uri: None,
            service_account_max_token_expiration: Duration::ZERO,
            service_account_extend_token_expiration: true,
            api_audiences: Vec::new(),
            authentication: AuthenticationOptions::default(),
            authorization: AuthorizationOptions::default(),
            max_requests_inflight: 400,
            max_mutating_requests_inflight: 200,
            request_timeout: Duration::from_secs(60),
            min_request_timeout: Duration::from_secs(1_800),
            goaway_chance: 0.0,
            body_memory_bytes: 64 << 20,
            list_memory_bytes: 256 << 20,
            webhook_memory_bytes: 128 << 20,
            max_connections: 8_192,
            max_proxied_connections: 2_048,
            max_connections_per_address: 2_048,
            header_timeout: Duration::from_secs(32),
            idle_timeout: Duration::from_secs(90),
            tcp_keep_alive: KeepAlive::default(),
            body_pace_interval: Duration::from_secs(5),
            events_per_namespace: ExpiryBounds::default(),
            allow_unenforced: false,
            disable_admission_plugins: Vec::new(),
            enable_admission_plugins: Vec::new(),
            admission_control_config_file: None,
            answer_pace_interval: Duration::from_secs(5),
            audit_log: None,
            audit_webhook: None,
            audit_policy_file: None,
            feature_gates: FeatureGates::default(),
            runtime_config: RuntimeConfig::default(),
            event_ttl: Some(Duration::from_secs(60 * 60)),
            tls: TlsOptions::default(),
            shutdown_grace: Duration::from_secs(20),
            flags: Vec::new(),
            bundled_definitions: Vec::new(),
            components: Vec::new(),
        }
    }
}

/// Everything that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct ConfigError(pub Vec<String>);

/// The smallest range that has room for the `kubernetes` service.
const MAX_SERVICE_PREFIX_V4: u8 = 30;
const MAX_SERVICE_PREFIX_V6: u8 = 126;

impl ServerConfig {
    /// Checks everything at once.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut problems = Vec::new();
        let range = &self.service_cluster_ip_range;
        let smallest = if range.addr().is_ipv4() {
            MAX_SERVICE_PREFIX_V4
        } else {
            MAX_SERVICE_PREFIX_V6
        };
        if range.prefix_len() > smallest {
            problems.push(format!(
                "--service-cluster-ip-range {range} is too small: give at least a /{smallest}"
            ));
        }
        let (first, last) = self.service_node_port_range;
        if first == 0 || first > last {
            problems.push(format!("--service-node-port-range {first}-{last} is empty"));
        }
        if !dns1123_subdomain(&self.cluster_domain).is_empty() {
            problems.push(format!(
                "--cluster-domain {:?} is not a domain name",
                self.cluster_domain
            ));
        }
        let bad_names = self.tls_san.iter().filter(|name| !is_host(name));
        problems.extend(
            bad_names.map(|name| format!("--tls-san {name:?} is neither a domain name nor an address")),
        );
        for (at, issuer) in self.service_account_issuers.iter().enumerate() {
            // As upstream: a URL, where it looks like one, must be one of https.
            let is_url = issuer.contains(':');
            if issuer.is_empty() || (is_url && !issuer.starts_with("https://")) {
                problems.push(format!(
                    "--service-account-issuer {issuer:?} is not an https:// URL"
                ));
            }
            if self.service_account_issuers[..at].contains(issuer) {
                problems.push(format!(
                    "--service-account-issuer {issuer:?} is already specified"
                ));
            }
        }
        if let Some(uri) = self
            .service_account_jwks_uri
            .as_ref()
            .filter(|uri| !uri.starts_with("https://"))
        {
            problems.push(format!(
                "--service-account-jwks-uri {uri:?} is not an https:// URL"
            ));
        }
        let longest = self.service_account_max_token_expiration;
        if !longest.is_zero() && !MAX_TOKEN_EXPIRATIONS.contains(&longest) {
            problems.push(format!(
                "--service-account-max-token-expiration {longest:?} must be between 1 hour and 2^32 seconds"
            ));
        }
        problems.extend(serving_certificates::check(self));
        problems.extend(self.request_header.check());
        problems.extend(self.authentication.check());
        problems.extend(self.authorization.check());
        problems.extend(self.tls.check());
        problems.extend(self.audit_log.iter().flat_map(AuditLogConfig::problems));
        problems.extend(self.audit_webhook.iter().flat_map(AuditWebhookConfig::problems));
        let refused = self.feature_gates.refusal(GateComponent::Server);
        problems.extend(refused.map(|why| format!("--feature-gates: {why}")));
        if self.request_timeout.is_zero() {
            problems.push("--request-timeout must be above 0s: no request could be answered".to_owned());
        }
        if !(0.0..=MAX_GOAWAY_CHANCE).contains(&self.goaway_chance) {
            let most = MAX_GOAWAY_CHANCE;
            problems.push(format!(
                "--goaway-chance can not be less than 0 or greater than {most}"
            ));
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(ConfigError(problems))
        }
    }

    /// Bounds of the lifetimes of service account tokens; contradictory ones are warned of.
    pub(crate) fn token_lifetimes(&self) -> TokenLifetimes {
        let maximum_seconds = i64::try_from(self.service_account_max_token_expiration.as_secs());
        let maximum = maximum_seconds.unwrap_or(i64::MAX);
        let extends = self.service_account_extend_token_expiration;
        if extends && (1..EXTENDED_EXPIRATION_SECONDS).contains(&maximum) {
            tracing::warn!(
                maximum,
                "tokens of pods are extended to a year (--service-account-extend-token-expiration), which is longer than --service-account-max-token-expiration"
            );
        }
        if extends && (1..WARN_ONLY_EXPIRATION_SECONDS).contains(&maximum) {
            tracing::warn!(
                maximum,
                "tokens of pods are not extended (--service-account-extend-token-expiration), since --service-account-max-token-expiration is below 3607 seconds"
            );
        }
        TokenLifetimes {
            maximum_seconds: maximum,
            extends,
        }
    }

    /// Issuers of service account tokens, the one that signs first.
    pub fn issuers(&self) -> Vec<String> {
        match self.service_account_issuers.as_slice() {
            [] => vec![format!("https://kubernetes.default.svc.{}", self.cluster_domain)],
            given => given.to_vec(),
        }
    }

    /// Audiences of this server.
    pub fn audiences(&self) -> Vec<String> {
        match self.api_audiences.as_slice() {
            [] => self.issuers(),
            given => given.to_vec(),
        }
    }

    /// The address of the `kubernetes` service: the first of the range.
    pub fn kubernetes_service_ip(&self) -> IpAddr {
        let network = self.service_cluster_ip_range.network();
        match network {
            IpAddr::V4(address) => Ipv4Addr::from(u32::from(address) + 1).into(),
            IpAddr::V6(address) => std::net::Ipv6Addr::from(u128::from(address) + 1).into(),
        }
    }

    /// The tenth address of the service range, by custom the one where names are answered; `None` where the range
    /// ends before it.
    pub fn cluster_dns_ip(&self) -> Option<IpAddr> {
        self.service_cluster_ip_range.hosts().nth(9)
    }

    /// Names and addresses the serving certificate answers to.
    pub(crate) fn serving_names(&self, advertised: Option<IpAddr>) -> ServingNames {
        let domain = &self.cluster_domain;
        let mut names: ServingNames = [
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
            "::1".to_owned(),
            LOOPBACK_CLIENT_NAME.to_owned(),
            "kubernetes".to_owned(),
            "kubernetes.default".to_owned(),
            "kubernetes.default.svc".to_owned(),
            format!("kubernetes.default.svc.{domain}"),
            self.kubernetes_service_ip().to_string(),
        ]
        .into();
        names.extend(self.tls_san.iter().cloned());
        names.extend(advertised.map(|address| address.to_string()));
        let bound = self
            .listen
            .map(|address| address.ip())
            .filter(|address| !address.is_unspecified());
        names.extend(bound.map(|address| address.to_string()));
        names
    }
}

/// Reports whether a text can be a host in a certificate.
fn is_host(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_domain = |check: fn(&str) -> Vec<String>| check(&lower).is_empty();
    name.parse::<IpAddr>().is_ok() || is_domain(dns1123_subdomain) || is_domain(wildcard_dns1123_subdomain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_certificates_are_domains_and_addresses() {
        for good in [
            "knarr.test",
            "Knarr.Test",
            "*.knarr.test",
            "knarr",
            "192.0.2.1",
            "fd00::1",
        ] {
            assert!(is_host(good), "{good}");
        }
        for bad in ["", "bad_name/x", "a b", "*", "-a", "192.0.2.1/24", "knarr.test."] {
            assert!(!is_host(bad), "{bad}");
        }
    }

    #[test]
    fn service_account_issuer_is_given_once() {
        let check = |issuers: &[&str]| {
            let issuers = issuers.iter().map(|own| (*own).to_owned());
            let config = ServerConfig {
                service_account_issuers: issuers.collect(),
                ..ServerConfig::default()
            };
            config.check().map_err(|error| error.to_string())
        };
        assert_eq!(check(&["https://knarr.test", "knarr"]), Ok(()));
        let refused = check(&["knarr", "https://knarr.test", "knarr"]);
        let again = "--service-account-issuer \"knarr\" is already specified";
        assert_eq!(refused, Err(again.to_owned()));
    }
}
