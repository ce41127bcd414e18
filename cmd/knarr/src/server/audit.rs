//! The flags of audit, as upstream's.

use super::controllers::duration;
use apiserver_server::{
    AuditBatchConfig, AuditLogConfig, AuditMode, AuditThrottle, AuditTruncateConfig, AuditWebhookConfig,
};
use clap::{ArgGroup, Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Back ends, one of which a policy needs.
const BACKEND: &str = "audit_backend";

/// See the module.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new(BACKEND).multiple(true).args(["audit_log_path", "audit_webhook_config_file"]))]
pub(crate) struct AuditArguments {
    /// Write a JSON line about every request to this file; - is the standard output
    #[arg(long)]
    audit_log_path: Option<PathBuf>,
    /// Strategy for audit events: requests wait for their events (blocking), are also refused without the first one (blocking-strict), or do not wait (batch)
    #[arg(long, value_enum, default_value = "blocking")]
    audit_log_mode: Mode,
    /// Events that wait to be written to the audit log in the mode batch; further ones are dropped
    #[arg(long, default_value_t = 10_000)]
    audit_log_batch_buffer_size: usize,
    /// Maximum number of days to retain old audit log files; 0 retains them
    #[arg(long, default_value_t = 366)]
    audit_log_maxage: u32,
    /// Maximum number of old audit log files to retain; 0 retains all
    #[arg(long, default_value_t = 100)]
    audit_log_maxbackup: usize,
    /// Maximum size in megabytes of an audit log file before it is rotated
    #[arg(long, default_value_t = 100)]
    audit_log_maxsize: u64,
    /// Format of the audit log
    #[arg(long, value_enum, default_value = "json")]
    audit_log_format: Format,
    /// Group and version of the events in the audit log
    #[arg(long, value_enum, default_value = "audit.k8s.io/v1")]
    audit_log_version: Version,
    /// Bound the events of the audit log: larger ones go without their objects, or not at all
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    audit_log_truncate_enabled: bool,
    /// Maximum size in bytes of an event in the audit log
    #[arg(long, default_value_t = 100 << 10)]
    audit_log_truncate_max_event_size: usize,
    /// Maximum size in bytes of the events that are written together; lines are written each by itself
    #[arg(long, default_value_t = 10 << 20)]
    audit_log_truncate_max_batch_size: usize,
    /// File with an audit.k8s.io/v1 Policy; by default all requests are recorded at level Metadata
    #[arg(long, requires = BACKEND)]
    pub(crate) audit_policy_file: Option<PathBuf>,
    #[command(flatten)]
    webhook: WebhookArguments,
}

#[derive(Debug, Args)]
struct WebhookArguments {
    /// Kubeconfig of a webhook that audit events are sent to
    #[arg(long)]
    audit_webhook_config_file: Option<PathBuf>,
    /// Strategy for sending audit events: requests do not wait (batch), wait for their events (blocking), or are also refused without the first one (blocking-strict)
    #[arg(long, value_enum, default_value = "batch")]
    audit_webhook_mode: Mode,
    /// Events that wait to be put together in the mode batch; further ones are dropped
    #[arg(long, default_value_t = 10_000)]
    audit_webhook_batch_buffer_size: usize,
    /// Maximum number of events of a batch
    #[arg(long, default_value_t = 400)]
    audit_webhook_batch_max_size: usize,
    /// Time that a batch which is not full waits for further events
    #[arg(long, value_parser = duration, default_value = "30s")]
    audit_webhook_batch_max_wait: Duration,
    /// Bound the rate of batches (the default); =false does not
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    audit_webhook_batch_throttle_enable: bool,
    /// Maximum average number of batches in a second
    #[arg(long, default_value_t = 10.0)]
    audit_webhook_batch_throttle_qps: f32,
    /// Maximum number of batches at once, where the rate was not used before
    #[arg(long, default_value_t = 15)]
    audit_webhook_batch_throttle_burst: usize,
    /// Pause before a failed call of the audit webhook is made again
    #[arg(long, alias = "audit-webhook-batch-initial-backoff", value_parser = duration, default_value = "10s")]
    audit_webhook_initial_backoff: Duration,
    /// Bound the events that the audit webhook is sent: larger ones go without their objects, or not at all
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    audit_webhook_truncate_enabled: bool,
    /// Maximum size in bytes of an event that the audit webhook is sent
    #[arg(long, default_value_t = 100 << 10)]
    audit_webhook_truncate_max_event_size: usize,
    /// Maximum size in bytes of the events that are sent together; a batch beyond is split
    #[arg(long, default_value_t = 10 << 20)]
    audit_webhook_truncate_max_batch_size: usize,
    /// Group and version of the events that the audit webhook is sent
    #[arg(long, value_enum, default_value = "audit.k8s.io/v1")]
    audit_webhook_version: Version,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    Batch,
    Blocking,
    BlockingStrict,
}

/// Formats of the audit log; upstream's `legacy` is not supported.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Json,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Version {
    #[value(name = "audit.k8s.io/v1")]
    V1,
}

impl From<Mode> for AuditMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Batch => Self::Batch,
            Mode::Blocking => Self::Blocking,
            Mode::BlockingStrict => Self::BlockingStrict,
        }
    }
}

impl AuditArguments {
    pub(crate) fn log(&self) -> Option<AuditLogConfig> {
        Some(AuditLogConfig {
            path: self.audit_log_path.clone()?,
            mode: self.audit_log_mode.into(),
            buffer_size: self.audit_log_batch_buffer_size,
            truncate: self.audit_log_truncate_enabled.then_some(AuditTruncateConfig {
                max_event_size: self.audit_log_truncate_max_event_size,
                max_batch_size: self.audit_log_truncate_max_batch_size,
            }),
            max_age: self.audit_log_maxage,
            max_backups: self.audit_log_maxbackup,
            max_size: self.audit_log_maxsize,
        })
    }

    pub(crate) fn webhook(&self) -> Option<AuditWebhookConfig> {
        let own = &self.webhook;
        let throttle = AuditThrottle {
            qps: own.audit_webhook_batch_throttle_qps,
            burst: own.audit_webhook_batch_throttle_burst,
        };
        Some(AuditWebhookConfig {
            config_file: own.audit_webhook_config_file.clone()?,
            mode: own.audit_webhook_mode.into(),
            batch: AuditBatchConfig {
                buffer_size: own.audit_webhook_batch_buffer_size,
                max_size: own.audit_webhook_batch_max_size,
                max_wait: own.audit_webhook_batch_max_wait,
                throttle: own.audit_webhook_batch_throttle_enable.then_some(throttle),
            },
            initial_backoff: own.audit_webhook_initial_backoff,
            truncate: own.audit_webhook_truncate_enabled.then_some(AuditTruncateConfig {
                max_event_size: own.audit_webhook_truncate_max_event_size,
                max_batch_size: own.audit_webhook_truncate_max_batch_size,
            }),
        })
    }
}
