//! The table of host ports in memory, whose writes fail now and then. It outlives agents, as the kernel's does.

use async_trait::async_trait;
use machinery_runtime::Runtime;
use node_network::host_ports::flows::Flows;
use node_network::host_ports::kernel::KernelError;
use node_network::host_ports::ports::Entries;
use node_network::host_ports::table::Change;
use node_network::host_ports::{HostPortKernel, PortKey, Protocol, Target};
use node_sys::nftables_guard::TableGuard;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct ModelHostPorts {
    runtime: Runtime,
    /// One in so many writes fails; none at zero.
    fails: AtomicU64,
    table: Mutex<Entries>,
}

impl ModelHostPorts {
    /// Ports of which one leads to an unknown pod.
    pub(crate) fn new(runtime: Runtime) -> Self {
        let key = PortKey {
            protocol: Protocol::Tcp,
            port: 1,
            address: None,
        };
        let target = Target {
            address: Ipv4Addr::new(10, 88, 255, 2),
            port: 80,
        };
        Self {
            runtime,
            fails: AtomicU64::new(0),
            table: Mutex::new([(key, target)].into()),
        }
    }

    pub(crate) fn fail_one_in(&self, count: u64) {
        self.fails.store(count, Ordering::Relaxed);
    }

    pub(crate) fn entries(&self) -> Entries {
        self.table.lock().clone()
    }

    fn strike(&self) -> Result<(), KernelError> {
        match self.fails.load(Ordering::Relaxed) {
            0 => Ok(()),
            one_in if self.runtime.random_u64().is_multiple_of(one_in) => {
                Err(KernelError::Elements(std::io::ErrorKind::ResourceBusy.into()))
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl HostPortKernel for ModelHostPorts {
    fn guard(&self) -> TableGuard {
        TableGuard::unwatched()
    }

    async fn read(&self) -> Result<Entries, KernelError> {
        Ok(self.entries())
    }

    async fn replace(&self, entries: &Entries) -> Result<(), KernelError> {
        self.strike()?;
        *self.table.lock() = entries.clone();
        Ok(())
    }

    async fn change(&self, change: &Change) -> Result<(), KernelError> {
        self.strike()?;
        let mut table = self.table.lock();
        for (key, target) in &change.delete {
            assert_eq!(table.remove(key), Some(*target), "the kernel refuses it");
        }
        for (key, target) in &change.add {
            assert_eq!(table.insert(*key, *target), None, "the kernel refuses it");
        }
        Ok(())
    }

    async fn forget_flows(&self, _: Flows) -> Result<usize, KernelError> {
        Ok(0)
    }

    async fn admit_localhost(&self, _: BTreeSet<Ipv4Addr>) -> Result<(), KernelError> {
        Ok(())
    }

    async fn listeners(&self) -> Result<Vec<PortKey>, KernelError> {
        Ok(Vec::new())
    }

    async fn remove_portmap(&self) -> Result<bool, KernelError> {
        Ok(false)
    }
}
