//! `--audit-webhook-*`.

use crate::filters::audit::backend::AuditMode;
use crate::filters::audit::truncate::AuditTruncateConfig;
use std::path::PathBuf;
use std::time::Duration;

/// The webhook that audit events are sent to.
#[derive(Debug, Clone)]
pub struct AuditWebhookConfig {
    /// A kubeconfig.
    pub config_file: PathBuf,
    pub mode: AuditMode,
    pub batch: AuditBatchConfig,
    /// Pause before a failed call is made again; each further one is half as long again.
    pub initial_backoff: Duration,
    /// Bounds of an event; `None` sends each as it is.
    pub truncate: Option<AuditTruncateConfig>,
}

/// Events that are sent together in the mode `batch`.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditBatchConfig {
    /// Events that wait to be put together; further ones are dropped.
    pub buffer_size: usize,
    /// Events of a batch.
    pub max_size: usize,
    /// Time that a batch waits for further events.
    pub max_wait: Duration,
    pub throttle: Option<AuditThrottle>,
}

/// Bound of the rate of batches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AuditThrottle {
    /// Batches in a second, on average.
    pub qps: f32,
    /// Batches at once, after a time with fewer.
    pub burst: usize,
}

impl Default for AuditBatchConfig {
    /// Upstream's.
    fn default() -> Self {
        Self {
            buffer_size: 10_000,
            max_size: 400,
            max_wait: Duration::from_secs(30),
            throttle: Some(AuditThrottle { qps: 10.0, burst: 15 }),
        }
    }
}

impl AuditWebhookConfig {
    /// A configuration with upstream's defaults.
    pub fn new(config_file: PathBuf) -> Self {
        Self {
            config_file,
            mode: AuditMode::Batch,
            batch: AuditBatchConfig::default(),
            initial_backoff: Duration::from_secs(10),
            truncate: None,
        }
    }

    /// Problems of the flags, in upstream's words.
    pub(crate) fn problems(&self) -> Vec<String> {
        let batch = Some(&self.batch).filter(|_| self.mode == AuditMode::Batch);
        let batch = batch.and_then(AuditBatchConfig::problem);
        let truncate = self.truncate.and_then(|own| own.problem(super::PLUGIN));
        batch.into_iter().chain(truncate).collect()
    }
}

impl AuditBatchConfig {
    fn problem(&self) -> Option<String> {
        let must_be_positive = |what: &str, value: &dyn std::fmt::Display| {
            Some(format!(
                "invalid audit batch webhook {what} {value}, must be a positive number"
            ))
        };
        match (self.buffer_size, self.max_size, self.throttle) {
            (0, _, _) => must_be_positive("buffer size", &0),
            (_, 0, _) => must_be_positive("max batch size", &0),
            (_, _, Some(own)) if own.qps.is_nan() || own.qps <= 0.0 => {
                must_be_positive("throttle QPS", &own.qps)
            }
            (_, _, Some(own)) if own.burst == 0 => must_be_positive("throttle burst", &0),
            _ => None,
        }
    }
}
