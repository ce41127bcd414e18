//! The kernel's side, behind a trait: the table, UDP flows, listeners, links of pods.

use super::flows::Flows;
use super::listeners::{FILES, listener};
use super::portmap;
use super::ports::{Entries, PortKey};
use super::table::{AT_ADDRESS, AT_ANY, Change, TABLE, read, whole};
use crate::config::POD_LINKS;
use async_trait::async_trait;
use ipnet::Ipv4Net;
use machinery_runtime::Runtime;
use node_sys::nftables::Table;
use node_sys::nftables_guard::TableGuard;
use node_sys::{CommandSpec, Exec, ExecError, conntrack, exec, machine, nftables};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const GUARDED: &[Table] = &[Table::ip(TABLE)];

/// Error of the kernel's tables, flows or files.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    #[error("changing the nftables table")]
    Table(#[source] ExecError),
    #[error("changing elements of the nftables table")]
    Elements(#[source] io::Error),
    #[error("changing flows that the kernel remembers")]
    Flows(#[source] io::Error),
    #[error("reading which ports programs of the node listen on")]
    Listeners(#[source] io::Error),
    #[error("letting the node's loopback addresses reach a pod")]
    Localhost(#[source] io::Error),
    #[error("searching for rules of the CNI plugin portmap")]
    Portmap(#[source] io::Error),
    #[error("removing rules of the CNI plugin portmap")]
    PortmapRules(#[source] ExecError),
    #[error("watching the nftables table")]
    Watch(#[source] io::Error),
    #[error("the nftables table was removed while it was written")]
    Removed,
}

/// State of the kernel that host ports use: table, flows, listeners.
#[async_trait]
pub trait HostPortKernel: Send + Sync + Debug {
    /// The guard of the table.
    fn guard(&self) -> TableGuard;

    /// Reads what the table has; nothing where there is none.
    async fn read(&self) -> Result<Entries, KernelError>;

    /// Replaces the table in one transaction.
    async fn replace(&self, entries: &Entries) -> Result<(), KernelError>;

    /// Changes elements in one transaction.
    async fn change(&self, change: &Change) -> Result<(), KernelError>;

    /// Forgets UDP flows that go where they should not, and returns their number.
    async fn forget_flows(&self, flows: Flows) -> Result<usize, KernelError>;

    /// Lets what the node sends from a loopback address reach these pods.
    async fn admit_localhost(&self, pods: BTreeSet<Ipv4Addr>) -> Result<(), KernelError>;

    /// Ports that programs of the node listen on.
    async fn listeners(&self) -> Result<Vec<PortKey>, KernelError>;

    /// Removes what CNI's `portmap` made for pods of ours, and returns whether there was any.
    async fn remove_portmap(&self) -> Result<bool, KernelError>;
}

/// The kernel of this machine, in the network namespace of the calling thread.
#[derive(Debug)]
pub struct LinuxHostPorts {
    reserved: Arc<[Ipv4Net]>,
    exec: Arc<dyn Exec>,
    runtime: Runtime,
}

impl LinuxHostPorts {
    /// Host ports reach no address of these ranges.
    pub fn new(reserved: &[Ipv4Net], exec: Arc<dyn Exec>, runtime: Runtime) -> Self {
        Self {
            reserved: reserved.into(),
            exec,
            runtime,
        }
    }

    /// Work that takes as long as there are flows, sockets or ports, off the caller's thread.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let ended = |error| io::Error::other(format!("{error}"));
        self.runtime.blocking(work).await.map_err(ended)?
    }

    async fn run(&self, spec: CommandSpec) -> Result<Vec<u8>, ExecError> {
        let program = spec.program.clone();
        Ok(self.exec.run(spec).await?.success(&program)?.stdout)
    }
}

#[async_trait]
impl HostPortKernel for LinuxHostPorts {
    fn guard(&self) -> TableGuard {
        TableGuard::open(GUARDED, self.runtime.clone())
    }

    async fn read(&self) -> Result<Entries, KernelError> {
        let elements = self.aside(|| {
            let mut all = Vec::new();
            for map in [AT_ADDRESS, AT_ANY] {
                match nftables::elements(TABLE, map) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    elements => all.extend(elements?.iter().filter_map(read)),
                }
            }
            Ok(all)
        });
        let elements = elements.await.map_err(KernelError::Elements)?;
        Ok(elements.into_iter().collect())
    }

    async fn replace(&self, entries: &Entries) -> Result<(), KernelError> {
        let script = whole(&self.reserved, entries);
        let spec = CommandSpec::new("nft").args(["-f", "-"]).stdin(script);
        self.run(spec).await.map(drop).map_err(KernelError::Table)
    }

    async fn change(&self, change: &Change) -> Result<(), KernelError> {
        let batch = change.batch();
        self.aside(move || batch.apply())
            .await
            .map_err(KernelError::Elements)
    }

    async fn forget_flows(&self, flows: Flows) -> Result<usize, KernelError> {
        let reserved = Arc::clone(&self.reserved);
        let work = self.aside(move || {
            let own: BTreeSet<Ipv4Addr> = machine::addresses()
                .into_iter()
                .filter_map(|address| match address {
                    IpAddr::V4(address) => Some(address),
                    IpAddr::V6(_) => None,
                })
                .collect();
            // Only flows to the node's own addresses are stale: traffic to the same port of another host stays.
            let stale = conntrack::udp_flows(|flow| flows.is_stale(flow, &own, &reserved))?;
            conntrack::forget(&stale)?;
            Ok(stale.len())
        });
        work.await.map_err(KernelError::Flows)
    }

    async fn admit_localhost(&self, pods: BTreeSet<Ipv4Addr>) -> Result<(), KernelError> {
        let work = self.aside(move || {
            // `thread-self`: the process's main thread may be in another network namespace.
            let routes = std::fs::read_to_string("/proc/thread-self/net/route")?;
            links_of(&routes, &pods).into_iter().try_for_each(|link| {
                std::fs::write(format!("/proc/sys/net/ipv4/conf/{link}/route_localnet"), "1")
            })
        });
        work.await.map_err(KernelError::Localhost)
    }

    async fn listeners(&self) -> Result<Vec<PortKey>, KernelError> {
        let work = self.aside(|| {
            let mut all = BTreeSet::new();
            for (name, protocol) in FILES {
                let file = match File::open(format!("/proc/thread-self/net/{name}")) {
                    // A kernel without IPv6.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    file => file?,
                };
                for line in BufReader::new(file).lines() {
                    all.extend(listener(protocol, &line?));
                }
            }
            Ok(all.into_iter().collect())
        });
        work.await.map_err(KernelError::Listeners)
    }

    async fn remove_portmap(&self) -> Result<bool, KernelError> {
        // Where there is no table `nat`, `iptables-save -t nat` would make one.
        let has_nat = self.aside(|| {
            let legacy = std::fs::read_to_string("/proc/thread-self/net/ip_tables_names").unwrap_or_default();
            Ok(legacy.lines().any(|table| table == "nat") || Table::ip("nat").exists()?)
        });
        let has_nat = has_nat.await.map_err(KernelError::Portmap)?;
        if !has_nat || exec::find_program("iptables-save").is_none() {
            return Ok(false);
        }
        let save = CommandSpec::new("iptables-save").args(["-t", "nat"]);
        let saved = self.run(save).await.map_err(KernelError::PortmapRules)?;
        let removal = portmap::removal(&String::from_utf8_lossy(&saved));
        if removal.is_empty() {
            return Ok(false);
        }
        let restore = CommandSpec::new("iptables-restore")
            // Without it iptables-restore would empty the table, with kube-proxy's or an administrator's rules.
            .args(["--noflush"])
            .stdin(removal);
        self.run(restore).await.map_err(KernelError::PortmapRules)?;
        Ok(true)
    }
}

/// The node's ends of these pods' own links, from the kernel's routes as `/proc/net/route` has them.
fn links_of<'a>(routes: &'a str, pods: &BTreeSet<Ipv4Addr>) -> Vec<&'a str> {
    let link = |line: &'a str| {
        let mut fields = line.split_ascii_whitespace();
        let (link, destination, mask) = (fields.next()?, fields.next()?, fields.nth(5)?);
        let address = Ipv4Addr::from(u32::from_str_radix(destination, 16).ok()?.to_ne_bytes());
        (mask == "FFFFFFFF" && link.starts_with(POD_LINKS) && pods.contains(&address)).then_some(link)
    };
    routes.lines().filter_map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn links_of_pods_are_found_by_their_routes() {
        let routes = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0102000A\t0003\t0\t0\t0\t00000000\t0\t0\t0
veth1\t0200F40A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0
veth2\t0300F40A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0
cni0\t0400F40A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0
veth3\t0500F40A\t00000000\t0005\t0\t0\t0\t00FFFFFF\t0\t0\t0
";
        let pods = [2, 4, 5, 6].map(|last| Ipv4Addr::new(10, 244, 0, last)).into();
        assert_eq!(links_of(routes, &pods), ["veth1"]);
    }
}
