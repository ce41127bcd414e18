//! Flags of what the API serves: feature gates, versions, times; names are upstream's.

use super::controllers::duration;
use apiserver_server::{FeatureGates, RuntimeConfig};
use clap::Args;
use std::time::Duration;

/// See the module.
#[derive(Debug, Args)]
pub(crate) struct ApiArguments {
    /// States of upstream's feature gates, comma separated, repeatable: Name=true or Name=false
    ///
    /// A gate is refused in a state that this server does not have.
    #[arg(long, value_delimiter = ',', value_name = "GATE=BOOL")]
    feature_gates: Vec<String>,
    /// Versions and resources of the API that are served or not, comma separated, repeatable: group/version=false
    ///
    /// Keys are group/version, group/version/resource, and api/all, api/ga, api/beta, api/alpha for many.
    #[arg(long, value_delimiter = ',', value_name = "KEY=BOOL")]
    runtime_config: Vec<String>,
    /// Time for which events are kept (for example 1h0m0s); 0s keeps them
    #[arg(long, value_parser = duration, default_value = "1h0m0s")]
    event_ttl: Duration,
    /// Time for which the server serves on once it is to end, without being ready, for load balancers to notice
    #[arg(long, value_parser = duration, default_value = "0s")]
    pub(crate) shutdown_delay_duration: Duration,
}

impl ApiArguments {
    pub(crate) fn gates(&self) -> anyhow::Result<FeatureGates> {
        let values = self.feature_gates.iter().map(String::as_str);
        FeatureGates::parse(values).map_err(|why| anyhow::anyhow!("--feature-gates: {why}"))
    }

    pub(crate) fn versions(&self) -> anyhow::Result<RuntimeConfig> {
        let values = self.runtime_config.iter().map(String::as_str);
        RuntimeConfig::parse(values).map_err(|why| anyhow::anyhow!("--runtime-config: {why}"))
    }

    /// `None` for events that do not expire.
    pub(crate) fn event_ttl(&self) -> Option<Duration> {
        (!self.event_ttl.is_zero()).then_some(self.event_ttl)
    }
}
