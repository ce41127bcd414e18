//! The scheduler's configuration file: upstream's `KubeSchedulerConfiguration`.

use anyhow::{Context, bail};
use clap::Args;
use cluster::SchedulerConfiguration;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A longer file is refused.
const MAX_FILE_BYTES: usize = 1 << 20;

/// See the module.
#[derive(Debug, Args)]
pub(crate) struct SchedulerArguments {
    /// File with a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1): profiles, plugins and their arguments
    #[arg(long, value_name = "FILE", conflicts_with = "disable_scheduler")]
    scheduler_config: Option<PathBuf>,
}

impl SchedulerArguments {
    /// The configuration of the file, upstream's default where none is given.
    pub(crate) fn configuration(&self) -> anyhow::Result<SchedulerConfiguration> {
        let Some(path) = &self.scheduler_config else {
            return Ok(SchedulerConfiguration::default());
        };
        let read = read(path).and_then(|value| Ok(SchedulerConfiguration::read(&value)?));
        let configuration = read.with_context(|| format!("--scheduler-config {}", path.display()))?;
        let names: Vec<&str> = configuration
            .profiles
            .iter()
            .map(|own| &*own.scheduler_name)
            .collect();
        tracing::info!(path = %path.display(), profiles = ?names, "scheduler configuration read");
        if !configuration.without_effect.is_empty() {
            let fields = &configuration.without_effect;
            tracing::warn!(
                ?fields,
                "fields of the scheduler configuration have no effect here"
            );
        }
        Ok(configuration)
    }
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let bytes = node_sys::fs::read_head(path, MAX_FILE_BYTES as u64 + 1)?;
    if bytes.len() > MAX_FILE_BYTES {
        bail!("it is longer than {MAX_FILE_BYTES} bytes");
    }
    if let Some((line, key)) = machinery_schema::yaml::duplicate_key(&bytes) {
        bail!("line {line}: the key {key} is there already");
    }
    let json = machinery_schema::yaml::yaml_to_json(&bytes)?;
    Ok(serde_json::from_str(&json)?)
}
