//! The flags of the audit log, as upstream's.

use apiserver_server::{AuditLogConfig, AuditLogMode};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// See the module.
#[derive(Debug, Args)]
pub(crate) struct AuditArguments {
    /// Write a JSON line about every request to this file; - is the standard output
    #[arg(long)]
    audit_log_path: Option<PathBuf>,
    /// Strategy for audit events: requests wait for their events (blocking), are also refused without the first one (blocking-strict), or do not wait (batch)
    #[arg(long, value_enum, default_value = "blocking")]
    audit_log_mode: Mode,
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
    /// File with an audit.k8s.io/v1 Policy; by default all requests are recorded at level Metadata
    #[arg(long, requires = "audit_log_path")]
    pub(crate) audit_policy_file: Option<PathBuf>,
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

impl From<Mode> for AuditLogMode {
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
            max_age: self.audit_log_maxage,
            max_backups: self.audit_log_maxbackup,
            max_size: self.audit_log_maxsize,
        })
    }
}
