//! The kernel's side, behind a trait: write the table, change elements, forget flows.

use crate::conntrack::Stale;
use crate::elements::Delta;
use crate::{netlink, table};
use async_trait::async_trait;
use node_sys::{CommandSpec, Exec, ExecError};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

/// Elements that are changed while the caller's thread waits, a few milliseconds at most; more of them are left to `nft`.
const MAX_INLINE: usize = 4096;

/// What could not be done.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    #[error("changing the nftables table")]
    Table(#[source] ExecError),
    #[error("changing elements of the nftables table")]
    Elements(#[source] io::Error),
}

/// Where rules go.
#[async_trait]
pub trait Kernel: Send + Sync + Debug {
    /// Applies the script as one transaction: all of it, or nothing.
    async fn apply(&self, script: String) -> Result<(), KernelError>;

    /// Changes elements as one transaction.
    async fn change(&self, delta: &Delta) -> Result<(), KernelError>;

    /// Forgets flows, as far as it can.
    async fn forget(&self, stale: &BTreeSet<Stale>);
}

/// The kernel of this machine, in the network namespace of this process: `nft`, `conntrack` and netlink.
#[derive(Debug, Clone)]
pub struct LinuxKernel {
    exec: Arc<dyn Exec>,
}

impl LinuxKernel {
    pub fn new(exec: Arc<dyn Exec>) -> Self {
        Self { exec }
    }
}

#[async_trait]
impl Kernel for LinuxKernel {
    async fn apply(&self, script: String) -> Result<(), KernelError> {
        let spec = CommandSpec::new("nft").args(["-f", "-"]).stdin(script);
        let output = self.exec.run(spec).await.map_err(KernelError::Table)?;
        output.success("nft").map_err(KernelError::Table)?;
        Ok(())
    }

    async fn change(&self, delta: &Delta) -> Result<(), KernelError> {
        if delta.delete.len() + delta.add.len() > MAX_INLINE {
            return self.apply(table::change(delta)).await;
        }
        netlink::batch(delta).apply().map_err(KernelError::Elements)
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
