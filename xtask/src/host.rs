//! Place of the cluster of `up`: in the machine's own network, or in namespaces made for it.
//!
//! Isolated, everything the node does (bridge, routes, nftables, mounts) stays inside one network and one mount
//! namespace, so that it cannot meet what else the machine runs; that is what the tests use.

use crate::process;
use anyhow::{Context, Result};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The place a node runs in.
#[derive(Debug, Clone)]
pub struct Host {
    /// A network namespace by name, or the machine's own.
    namespace: Option<String>,
}

/// Addresses of isolated places: the first node's and, on its link, those beside it. They exist in these namespaces only.
const ISOLATED_NETWORK: [u8; 3] = [172, 31, 255];
/// Length of their network's prefix.
const PREFIX: u8 = 24;

impl Host {
    /// Makes the namespace if it is requested and missing. An isolated node has a bridge of its own as its uplink,
    /// so that it has an address and a default route without touching the machine's links.
    pub fn prepare(namespace: Option<String>) -> Result<Self> {
        let host = Self { namespace };
        let Some(name) = &host.namespace else {
            return Ok(host);
        };
        if !netns_path(name).try_exists()? {
            process::run(process::command("ip").args(["netns", "add", name]))?;
            let address = Self::address(1);
            let link = format!(
                "ip link set lo up && ip link add node0 type bridge && ip address add {address}/{PREFIX} dev node0 \
                 && ip link set node0 up && ip route add default dev node0"
            );
            process::run(host.command("sh").args(["-c", &link]))
                .context("giving the isolated node an address")?;
        }
        Ok(host)
    }

    /// Makes a place on the link of this isolated node, if it is missing: another node's, or a client's. Its default route is
    /// the first node.
    ///
    /// # Errors
    /// This node is not isolated, or the kernel refuses the link.
    pub fn beside(&self, suffix: &str, number: u8) -> Result<Self> {
        let first = self
            .namespace
            .as_ref()
            .context("a place beside needs a namespace")?;
        let name = format!("{first}-{suffix}");
        let place = Self::existing(Some(name.clone()));
        if netns_path(&name).try_exists()? {
            return Ok(place);
        }
        process::run(process::command("ip").args(["netns", "add", &name]))?;
        let near = format!("to-{suffix}");
        let pair = ["link", "add", &near, "netns", first, "type", "veth", "peer"];
        let peer = ["name", "uplink0", "netns", &name];
        process::run(process::command("ip").args(pair).args(peer))?;
        let up = format!("ip link set {near} master node0 && ip link set {near} up");
        process::run(self.command("sh").args(["-c", &up]))?;
        let (address, gateway) = (Self::address(number), Self::address(1));
        let link = format!(
            "ip link set lo up && ip address add {address}/{PREFIX} dev uplink0 && ip link set uplink0 up \
             && ip route add default via {gateway}"
        );
        process::run(place.command("sh").args(["-c", &link]))
            .with_context(|| format!("giving {name} an address"))?;
        Ok(place)
    }

    /// The address of an isolated place; the first node has number 1.
    pub fn address(number: u8) -> Ipv4Addr {
        let [a, b, c] = ISOLATED_NETWORK;
        Ipv4Addr::new(a, b, c, number + 1)
    }

    /// The place beside this one that was made by that suffix; a machine's own network has none.
    pub fn existing_beside(&self, suffix: &str) -> Option<Self> {
        let name = format!("{}-{suffix}", self.namespace.as_ref()?);
        Some(Self::existing(Some(name)))
    }

    /// A namespace that already exists.
    pub fn existing(namespace: Option<String>) -> Self {
        Self { namespace }
    }

    /// A command that runs in this place.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        match &self.namespace {
            None => process::command(program.as_ref()),
            Some(name) => {
                let mut command = process::command("nsenter");
                command
                    .arg(format!("--net={}", netns_path(name).display()))
                    .arg("--")
                    .arg(program.as_ref());
                command
            }
        }
    }

    /// Removal of the cluster that keeps its files there, running or not. Where its namespace is gone, so is all that was in it.
    pub fn uninstall(&self, knarr: &Path, data_dir: &Path) -> Command {
        let is_gone = self.network_namespace().is_some_and(|path| !path.is_file());
        let mut command = match is_gone {
            true => process::command(knarr),
            false => self.command(knarr),
        };
        command.args([
            "uninstall",
            "--stop",
            "--yes",
            "--cgroup-root",
            &self.cgroup_root(),
        ]);
        command.arg("--data-dir").arg(data_dir);
        command
    }

    /// Removes that cluster, and the namespace with every link in it. Returns the list of what was removed.
    pub fn remove_cluster(&self, knarr: &Path, data_dir: &Path) -> Result<String> {
        let mut list = String::new();
        if data_dir.try_exists()? {
            list = process::output(&mut self.uninstall(knarr, data_dir))?;
        }
        self.remove()?;
        Ok(list)
    }

    /// File of its network namespace, if it has one.
    pub fn network_namespace(&self) -> Option<PathBuf> {
        self.namespace.as_deref().map(netns_path)
    }

    /// The cgroup of all pods: a cluster of its own has one of its own.
    pub fn cgroup_root(&self) -> String {
        self.namespace
            .as_ref()
            .map_or("/".to_owned(), |name| format!("/knarr-{name}"))
    }

    /// Prefix of a command that a user runs in this place.
    pub fn prefix(&self) -> String {
        self.namespace.as_ref().map_or(String::new(), |name| {
            format!("nsenter --net={} ", netns_path(name).display())
        })
    }

    /// Removes the namespace and every link in it.
    pub fn remove(&self) -> Result<()> {
        match &self.namespace {
            Some(name) if netns_path(name).try_exists()? => {
                process::run(process::command("ip").args(["netns", "delete", name]))
            }
            _ => Ok(()),
        }
    }
}

fn netns_path(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}
