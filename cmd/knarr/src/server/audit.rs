//! The flags of the audit log, as upstream's.

use apiserver_server::AuditLogConfig;
use clap::Args;
use std::path::PathBuf;

/// See the module.
#[derive(Debug, Args)]
pub(crate) struct AuditArguments {
    /// Write a JSON line about every request to this file; - is the standard output
    #[arg(long)]
    audit_log_path: Option<PathBuf>,
    /// Days that full audit logs are kept; 0 keeps them
    #[arg(long, default_value_t = 366)]
    audit_log_maxage: u32,
    /// Full audit logs that are kept; 0 keeps all
    #[arg(long, default_value_t = 100)]
    audit_log_maxbackup: usize,
    /// Megabytes at which an audit log is full
    #[arg(long, default_value_t = 100)]
    audit_log_maxsize: u64,
    /// A Policy of audit.k8s.io/v1; without, all requests are recorded at level Metadata
    #[arg(long, requires = "audit_log_path")]
    pub(crate) audit_policy_file: Option<PathBuf>,
}

impl AuditArguments {
    pub(crate) fn log(&self) -> Option<AuditLogConfig> {
        Some(AuditLogConfig {
            path: self.audit_log_path.clone()?,
            max_age: self.audit_log_maxage,
            max_backups: self.audit_log_maxbackup,
            max_size: self.audit_log_maxsize,
        })
    }
}
