//! The kernel's side, behind a trait: apply a script, forget flows.

use crate::conntrack::Stale;
use async_trait::async_trait;
use node_sys::{CommandSpec, Exec, ExecError};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

/// What could not be done.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    #[error("changing the nftables table")]
    Table(#[source] ExecError),
}

/// Where rules go.
#[async_trait]
pub trait Kernel: Send + Sync + Debug {
    /// Applies the script as one transaction: all of it, or nothing.
    async fn apply(&self, script: String) -> Result<(), KernelError>;

    /// Forgets flows, as far as it can.
    async fn forget(&self, stale: &BTreeSet<Stale>);
}

/// The `nft` and `conntrack` programs, in the network namespace of this process.
#[derive(Debug, Clone)]
pub struct Programs {
    exec: Arc<dyn Exec>,
}

impl Programs {
    pub fn new(exec: Arc<dyn Exec>) -> Self {
        Self { exec }
    }
}

#[async_trait]
impl Kernel for Programs {
    async fn apply(&self, script: String) -> Result<(), KernelError> {
        let spec = CommandSpec::new("nft").args(["-f", "-"]).stdin(script);
        let output = self.exec.run(spec).await.map_err(KernelError::Table)?;
        output.success("nft").map_err(KernelError::Table)?;
        Ok(())
    }

    /// `conntrack` ends with 1 where there was nothing to forget.
    async fn forget(&self, stale: &BTreeSet<Stale>) {
        for one in stale {
            let spec = CommandSpec::new("conntrack").args(one.arguments());
            if let Err(error) = self.exec.run(spec).await {
                tracing::warn!(%error, "flows of a changed service were not forgotten");
            }
        }
    }
}
