//! Configurations that are read again, under upstream's names.

use super::families::Families;
use super::identity;
use machinery_runtime::Runtime;
use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec, Opts};

/// Figures of one configuration.
pub(crate) struct ReloadMetrics {
    reloads: IntCounterVec,
    last: GaugeVec,
    config: IntGaugeVec,
    /// SHA-256 of the server's identity.
    server: String,
    runtime: Runtime,
}

impl ReloadMetrics {
    pub(crate) fn authentication(families: &Families, runtime: &Runtime) -> Result<Self, prometheus::Error> {
        Self::new(families, "authentication", runtime)
    }

    pub(crate) fn authorization(families: &Families, runtime: &Runtime) -> Result<Self, prometheus::Error> {
        Self::new(families, "authorization", runtime)
    }

    fn new(families: &Families, of: &str, runtime: &Runtime) -> Result<Self, prometheus::Error> {
        let name = |name: &str| format!("apiserver_{of}_config_controller_{name}");
        let labels = ["status", "apiserver_id_hash"];
        let reloads = Opts::new(
            name("automatic_reloads_total"),
            format!(
                "[BETA] Total number of automatic reloads of {of} configuration split by status and apiserver identity."
            ),
        );
        let last = Opts::new(
            name("automatic_reload_last_timestamp_seconds"),
            format!(
                "[BETA] Timestamp of the last automatic reload of {of} configuration split by status and apiserver identity."
            ),
        );
        let config = Opts::new(
            name("last_config_info"),
            format!(
                "[ALPHA] Information about the last applied {of} configuration with hash as label, split by apiserver identity."
            ),
        );
        let own = Self {
            reloads: families.vector(IntCounterVec::new(reloads, &labels)?)?,
            last: families.vector(GaugeVec::new(last, &labels)?)?,
            config: IntGaugeVec::new(config, &["apiserver_id_hash", "hash"])?,
            server: identity::hash(),
            runtime: runtime.clone(),
        };
        families.registry().register(Box::new(own.config.clone()))?;
        Ok(own)
    }

    /// This content is in use.
    pub(crate) fn in_use(&self, text: &str) {
        self.config.reset();
        let labels = [self.server.as_str(), &identity::hash_of(text)];
        self.config.with_label_values(&labels).set(1);
    }

    pub(crate) fn succeeded(&self) {
        self.count("success");
    }

    pub(crate) fn failed(&self) {
        self.count("failure");
    }

    fn count(&self, status: &str) {
        let labels = [status, self.server.as_str()];
        self.reloads.with_label_values(&labels).inc();
        self.last.with_label_values(&labels).set(seconds(&self.runtime));
    }
}

/// Seconds since 1970.
pub(super) fn seconds(runtime: &Runtime) -> f64 {
    runtime.now().as_duration().as_secs_f64()
}
