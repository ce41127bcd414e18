//! Keeps the table as pods claim it: the handle that pods' workers have, and the loop that writes.

use super::claims::{Claims, Taken};
use super::flows::Flows;
use super::kernel::{HostPortKernel, KernelError};
use super::listeners::first_in_use;
use super::ports::{Entries, HostPort, HostPortsConfig, PortKey};
use super::table::{Change, addresses};
use machinery_runtime::{Runtime, Watched};
use node_sys::nftables_guard::TableGuard;
use std::error::Error as _;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// Waits after failures: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Pause between two repairs.
const REPAIR_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait of a pod until its ports are written.
const PATIENCE: Duration = Duration::from_secs(10);

/// A pod does not get its ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostPortError {
    #[error("host port {0} belongs to another pod")]
    Taken(PortKey),
    #[error("host port {0} is in use by a program of the node")]
    InUse(PortKey),
    #[error("host ports were not written, retrying")]
    NotWritten,
}

/// Host ports of the node's pods.
#[derive(Debug, Clone)]
pub struct HostPorts {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: HostPortsConfig,
    kernel: Arc<dyn HostPortKernel>,
    runtime: Runtime,
    claims: Mutex<Claims>,
    changed: Notify,
    /// The newest revision that the kernel has; `None` until what an earlier agent left is known, 0 before the first write.
    written: Watched<Option<u64>>,
    /// Set while the removal of `portmap`'s rules is due.
    sweeps: AtomicBool,
    swept: AtomicBool,
}

impl HostPorts {
    /// A handle; nothing is written before [`Self::run`] runs.
    pub fn new(config: HostPortsConfig, kernel: Arc<dyn HostPortKernel>, runtime: Runtime) -> Self {
        let shared = Shared {
            config,
            kernel,
            runtime,
            claims: Mutex::default(),
            changed: Notify::new(),
            written: Watched::new(None),
            sweeps: AtomicBool::new(false),
            swept: AtomicBool::new(false),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Refuses ports that would take packets from a server of the node. Called before a pod's sandbox is made; a program
    /// that listens later does not take the port from the pod.
    pub async fn check(&self, ports: &[HostPort]) -> Result<(), HostPortError> {
        if ports.is_empty() {
            return Ok(());
        }
        // Fails open: the check protects the node's servers from an author's mistake, and an unreadable `/proc`
        // must not stop every pod with a port.
        let listeners = self.shared.kernel.listeners().await.unwrap_or_else(|error| {
            log(&error, "listeners of the node are not known to host ports");
            Vec::new()
        });
        let in_use = first_in_use(&self.shared.config, &listeners, ports);
        in_use.map_or(Ok(()), |key| Err(HostPortError::InUse(key)))
    }

    /// Leads these ports, and no others, to the pod at this address; returns when they do. Once done it costs nothing.
    pub async fn hold(&self, uid: &str, address: Ipv4Addr, ports: &[HostPort]) -> Result<(), HostPortError> {
        let (before, held, after) = {
            let mut claims = self.claims();
            // Read under one lock with the claim: compared later, the change of another pod would wake the loop
            // for nothing.
            let before = claims.revision();
            (before, claims.hold(uid, address, ports), claims.revision())
        };
        if after != before {
            self.shared.changed.notify_one();
        }
        let revision = held.map_err(|Taken(key)| HostPortError::Taken(key))?;
        if ports.is_empty() {
            return Ok(());
        }
        self.written(revision).await
    }

    /// Releases the ports of a pod that ends, also those of an earlier agent; returns when no rule leads to it. Called
    /// before the addresses may be allocated to another pod.
    pub async fn release(&self, uid: &str, addresses: &[Ipv4Addr]) {
        // Revision 0: what an earlier agent left is known from then on.
        let known = self.written(0).await;
        let revision = self.claims().release(uid, addresses);
        let outcome = match known {
            Ok(()) if revision > 0 => {
                self.shared.changed.notify_one();
                self.written(revision).await
            }
            known => known,
        };
        if let Err(error) = outcome {
            tracing::warn!(%uid, %error, "releasing the host ports of a pod failed");
        }
    }

    /// Every pod has been looked at: what leads to none goes, and what `portmap` left.
    pub fn settle(&self) {
        self.claims().settle();
        // Once in the life of the agent: `portmap`'s rules are not made again by ours.
        if !self.shared.swept.swap(true, Ordering::AcqRel) {
            self.shared.sweeps.store(true, Ordering::Release);
        }
        self.shared.changed.notify_one();
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.shared
            .claims
            .lock()
            .expect("nothing panics while it is held")
    }

    async fn written(&self, revision: u64) -> Result<(), HostPortError> {
        let written = self
            .shared
            .written
            .wait_for(|now| now.is_some_and(|now| now >= revision));
        let outcome = self.shared.runtime.timeout(PATIENCE, written).await;
        outcome.map(drop).map_err(|_| HostPortError::NotWritten)
    }

    /// Writes what pods claim, for ever. The table stays when it ends.
    pub async fn run(self) {
        let (kernel, runtime) = (Arc::clone(&self.shared.kernel), self.shared.runtime.clone());
        let mut table = Table {
            guard: kernel.guard(),
            kernel,
            present: None,
        };
        // Adopted before the first write, which replaces the whole table: written first, running pods would
        // lose their ports until they are synced.
        if !self.claims().is_adopted() {
            // Unreadable is taken for empty: pods claim their ports again within the first sync.
            let left = table.kernel.read().await.unwrap_or_else(|error| {
                log(&error, "reading the host ports that are there failed");
                Entries::new()
            });
            self.claims().adopt(left);
            self.shared.written.replace(Some(0));
        }
        let (mut wait, mut next_repair) = (RETRY.0, Duration::ZERO);
        loop {
            // One lock for both: `written` then never names a revision whose entries the kernel does not have.
            let (revision, entries) = {
                let claims = self.claims();
                (claims.revision(), claims.entries())
            };
            if let Err(error) = table.write(&entries).await {
                log(&error, "host ports were not written; writing all of them again");
                runtime.sleep(wait).await;
                wait = (wait * 2).min(RETRY.1);
                continue;
            }
            wait = RETRY.0;
            self.shared.written.replace(Some(revision));
            self.sweep().await;
            tokio::select! { biased;
                () = table.guard.disturbed() => {
                    table.present = None;
                    // At once, and not in a fight that never ends.
                    runtime.sleep_until(next_repair).await;
                    next_repair = runtime.monotonic() + REPAIR_PAUSE;
                }
                () = self.shared.changed.notified() => {}
            }
        }
    }

    async fn sweep(&self) {
        if !self.shared.sweeps.swap(false, Ordering::AcqRel) {
            return;
        }
        match self.shared.kernel.remove_portmap().await {
            Ok(true) => tracing::info!("rules of the CNI plugin portmap removed"),
            Ok(false) => {}
            Err(error) => log(&error, "rules of the CNI plugin portmap stay"),
        }
    }
}

fn log(error: &KernelError, what: &str) {
    let cause = error.source().map(ToString::to_string);
    tracing::warn!(%error, cause, "{what}");
}

/// The kernel's table.
struct Table {
    guard: TableGuard,
    kernel: Arc<dyn HostPortKernel>,
    /// Entries of the table; `None` if they are not known.
    present: Option<Entries>,
}

impl Table {
    async fn write(&mut self, entries: &Entries) -> Result<(), KernelError> {
        // Taken, and put back only on success: after a failure the table's content is unknown and the next
        // write replaces it whole.
        let before = self.present.take();
        let change = Change::between(&before.clone().unwrap_or_default(), entries);
        match &before {
            None => self.kernel.replace(entries).await?,
            // News of others' changes are not to be dropped with those of our own.
            Some(_) if change.is_empty() => {
                self.present = before;
                return Ok(());
            }
            Some(_) => self.kernel.change(&change).await?,
        }
        // Counts our own transaction as seen; false says that the table went meanwhile.
        if !self.guard.settle().map_err(KernelError::Watch)? {
            return Err(KernelError::Removed);
        }
        self.present = Some(entries.clone());
        let pods = if before.is_none() {
            addresses(entries)
        } else {
            change.new.clone()
        };
        if !pods.is_empty()
            && let Err(error) = self.kernel.admit_localhost(pods).await
        {
            log(&error, "the node's loopback addresses do not reach a pod");
        }
        // After the table: a flow that is forgotten earlier would be tracked again by the old rule.
        let flows = Flows::of(&change, entries);
        if !flows.is_empty() {
            match self.kernel.forget_flows(flows).await {
                Ok(0) => {}
                Ok(flows) => tracing::debug!(flows, "conntrack entries of host ports deleted"),
                Err(error) => log(&error, "deleting conntrack entries of host ports failed"),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
