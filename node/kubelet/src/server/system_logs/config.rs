//! Settings of `/logs/`.

use std::path::PathBuf;

/// Logs of the machine that are shown. Names of the fields' settings are upstream's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemLogsConfig {
    /// `enableSystemLogHandler`: files are served.
    pub is_served: bool,
    /// `enableSystemLogQuery`: queries are answered.
    pub is_queried: bool,
    /// Folder of the files.
    pub folder: PathBuf,
    /// Program that reads the machine's journal.
    pub journal: String,
}

impl Default for SystemLogsConfig {
    fn default() -> Self {
        Self {
            is_served: true,
            is_queried: false,
            folder: "/var/log".into(),
            journal: "journalctl".to_owned(),
        }
    }
}
