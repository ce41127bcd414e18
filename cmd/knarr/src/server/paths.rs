//! What lies where below `--data-dir`.

use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Paths(PathBuf);

impl Paths {
    pub(crate) fn new(data_dir: &Path) -> Self {
        Self(data_dir.to_owned())
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.0.join("pki")
    }

    pub(crate) fn storage(&self) -> PathBuf {
        self.0.join("storage")
    }

    /// The administrator's kubeconfig.
    pub(crate) fn admin(&self) -> PathBuf {
        self.0.join("admin.kubeconfig")
    }

    /// The node agent's own data directory; its identity lies in it.
    pub(crate) fn agent(&self) -> PathBuf {
        self.0.join("agent")
    }

    pub(crate) fn in_agent(&self, name: &str) -> PathBuf {
        self.agent().join(name)
    }
}
