//! The kernel's side, behind a trait: write the table, change elements, notes of affinity, UDP flows.

use crate::affinity::AffinityEntry;
use crate::elements::Delta;
use crate::flows::Flows;
use crate::netlink;
use crate::table::{AFFINITY, TABLE};
use async_trait::async_trait;
use machinery_runtime::Runtime;
use node_sys::{CommandSpec, Exec, ExecError, conntrack, nftables};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Elements that are changed while the caller's thread waits, a few milliseconds at most; more of them have a thread of
/// their own.
const MAX_INLINE: usize = 4096;

/// Failed operation of the kernel.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    #[error("changing the nftables table")]
    Table(#[source] ExecError),
    #[error("changing elements of the nftables table")]
    Elements(#[source] io::Error),
    #[error("changing flows that the kernel remembers")]
    Flows(#[source] io::Error),
    #[error("watching the nftables table")]
    Watch(#[source] io::Error),
    #[error("the nftables table was removed while it was written")]
    Removed,
}

/// Kernel that holds the rules.
#[async_trait]
pub trait Kernel: Send + Sync + Debug {
    /// Applies the script as one transaction: all of it, or nothing.
    async fn apply(&self, script: String) -> Result<(), KernelError>;

    /// Changes elements as one transaction.
    async fn change(&self, delta: &Delta) -> Result<(), KernelError>;

    /// Clients that stay with an endpoint; none where there is no table.
    async fn notes(&self) -> Result<Vec<AffinityEntry>, KernelError>;

    /// Takes such notes away.
    async fn delete_affinity_entries(&self, notes: Vec<AffinityEntry>) -> Result<(), KernelError>;

    /// Forgets flows that go where they should not, and gives their number.
    async fn delete_conntrack_entries(&self, flows: Flows) -> Result<usize, KernelError>;
}

/// The kernel of this machine, in the network namespace of the calling thread: `nft` and netlink.
#[derive(Debug, Clone)]
pub struct LinuxKernel {
    exec: Arc<dyn Exec>,
    runtime: Runtime,
}

impl LinuxKernel {
    pub fn new(exec: Arc<dyn Exec>, runtime: Runtime) -> Self {
        Self { exec, runtime }
    }

    /// Work that takes as long as there are flows or clients, off the caller's thread.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let ended = |error| io::Error::other(format!("{error}"));
        self.runtime.blocking(work).await.map_err(ended)?
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
        let batch = netlink::batch(delta);
        if delta.delete.len() + delta.add.len() <= MAX_INLINE {
            return batch.apply().map_err(KernelError::Elements);
        }
        let applied = self.aside(move || batch.apply()).await;
        applied.map_err(KernelError::Elements)
    }

    async fn notes(&self) -> Result<Vec<AffinityEntry>, KernelError> {
        let read = self.aside(|| match nftables::elements(TABLE, AFFINITY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            elements => Ok(elements?.iter().filter_map(AffinityEntry::read).collect()),
        });
        read.await.map_err(KernelError::Elements)
    }

    async fn delete_affinity_entries(&self, notes: Vec<AffinityEntry>) -> Result<(), KernelError> {
        let work = self.aside(move || match netlink::without(&notes).apply() {
            // One of them ended by itself, and with it the whole transaction: each for itself, then.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                for note in notes {
                    match netlink::without(&[note]).apply() {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                        _ => {}
                    }
                }
                Ok(())
            }
            done => done,
        });
        work.await.map_err(KernelError::Elements)
    }

    async fn delete_conntrack_entries(&self, flows: Flows) -> Result<usize, KernelError> {
        let work = self.aside(move || {
            let own: BTreeSet<Ipv4Addr> = node_sys::machine::addresses()
                .into_iter()
                .filter_map(|address| match address {
                    IpAddr::V4(address) => Some(address),
                    IpAddr::V6(_) => None,
                })
                .collect();
            let stale = conntrack::udp_flows(|flow| flows.is_stale(flow, &own))?;
            conntrack::forget(&stale)?;
            Ok(stale.len())
        });
        work.await.map_err(KernelError::Flows)
    }
}
