//! Issuers of tokens, under upstream's names.

use super::families::Families;
use super::{identity, reloads};
use apiserver_auth::authn::oidc::JwtObserver;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntGaugeVec, Opts};
use std::collections::HashMap;
use std::sync::Arc;

const BUCKETS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// See the module. Issuers are those of the configuration: there are few.
#[derive(Debug)]
pub(crate) struct JwtMetrics {
    latencies: HistogramVec,
    fetched: GaugeVec,
    keys: IntGaugeVec,
    /// Digests of the sets of keys that were fetched last, by issuer.
    sets: Mutex<HashMap<String, String>>,
    /// SHA-256 of the server's identity.
    server: String,
    runtime: Runtime,
}

impl JwtMetrics {
    pub(crate) fn new(families: &Families, runtime: &Runtime) -> Result<Arc<Self>, prometheus::Error> {
        let name = |name: &str| format!("apiserver_authentication_jwt_authenticator_{name}");
        let latencies = HistogramOpts::new(
            name("latency_seconds"),
            "[ALPHA] Latency of jwt authentication operations in seconds. This is the time spent authenticating a token for cache miss only (i.e. when the token is not found in the cache).",
        );
        let fetched = Opts::new(
            name("jwks_fetch_last_timestamp_seconds"),
            "[ALPHA] Timestamp of the last successful or failed JWKS fetch split by result, api server identity and jwt issuer for the JWT authenticator.",
        );
        let keys = Opts::new(
            name("jwks_fetch_last_key_set_info"),
            "[ALPHA] Information about the last JWKS fetched by the JWT authenticator with hash as label, split by api server identity and jwt issuer.",
        );
        let own = Self {
            latencies: families.vector(HistogramVec::new(
                latencies.buckets(BUCKETS.to_vec()),
                &["result", "jwt_issuer_hash"],
            )?)?,
            fetched: families.vector(GaugeVec::new(
                fetched,
                &["result", "jwt_issuer_hash", "apiserver_id_hash"],
            )?)?,
            keys: families.vector(IntGaugeVec::new(
                keys,
                &["jwt_issuer_hash", "apiserver_id_hash", "hash"],
            )?)?,
            sets: Mutex::default(),
            server: identity::hash(),
            runtime: runtime.clone(),
        };
        Ok(Arc::new(own))
    }

    fn forget_set(&self, issuer: &str) {
        if let Some(set) = self.sets.lock().remove(issuer) {
            let labels = [issuer, self.server.as_str(), &set];
            // It may have been reset meanwhile.
            let _ = self.keys.remove_label_values(&labels);
        }
    }
}

fn result(succeeded: bool) -> &'static str {
    if succeeded { "success" } else { "failure" }
}

impl JwtObserver for JwtMetrics {
    fn authenticated(&self, issuer: &str, succeeded: bool, seconds: f64) {
        let labels = [result(succeeded), &identity::hash_of(issuer)];
        self.latencies.with_label_values(&labels).observe(seconds);
    }

    fn fetched(&self, issuer: &str, keys: Option<&[u8]>) {
        let issuer = identity::hash_of(issuer);
        let labels = [result(keys.is_some()), &issuer, self.server.as_str()];
        self.fetched
            .with_label_values(&labels)
            .set(reloads::seconds(&self.runtime));
        if let Some(keys) = keys {
            self.forget_set(&issuer);
            let set = identity::hash_of(keys);
            let labels = [issuer.as_str(), &self.server, &set];
            self.keys.with_label_values(&labels).set(1);
            self.sets.lock().insert(issuer, set);
        }
    }

    fn removed(&self, issuer: &str) {
        let issuer = identity::hash_of(issuer);
        self.forget_set(&issuer);
        for succeeded in [true, false] {
            let labels = [result(succeeded), &issuer, self.server.as_str()];
            // There may be none.
            let _ = self.fetched.remove_label_values(&labels);
        }
    }
}
