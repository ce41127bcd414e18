//! Remains of a node in the kernel: nftables' tables, routes, the cluster's DNS address, settings, mounts and cgroups.
//!
//! Those of the network are the cluster's if the agent's record of this network namespace (`/run/knarr/agent.NUMBER`) names its
//! directory; a machine that has started since has neither record nor remains.

use super::cgroups::Groups;
use super::directory::Directories;
use super::files::{entries, remove_file};
use crate::agent_claim::RECORDS;
use crate::network_namespace;
use anyhow::{Context, bail};
use machinery_runtime::Runtime;
use node_sys::mount::{LinuxMounter, Mounter};
use node_sys::nftables::Table;
use node_sys::routes::{LinuxRoutes, Range, Routes};
use node_sys::{CommandSpec, Exec, SystemExec};
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Tables of the agent's components, by family and name.
const TABLES: [(&str, &str); 5] = [
    ("ip", "knarr-host-ports"),
    ("ip", "knarr-proxy"),
    ("ip", "knarr-network"),
    ("ip6", "knarr-network"),
    ("ip", DNS_TABLE),
];
const DNS_TABLE: &str = "knarr-dns";
/// A longer record, or list of settings, is none.
const NOTE_BYTES_MAX: u64 = 64 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Remains {
    tables: Vec<(&'static str, &'static str)>,
    routes: Vec<Range>,
    /// The cluster's DNS address, on the loopback link.
    address: Option<Ipv4Addr>,
    settings: Vec<Setting>,
    mounts: Vec<PathBuf>,
    groups: Groups,
    /// Records of the agent, and the locks beside them.
    records: Vec<PathBuf>,
}

/// A setting of the machine that the agent was the last to change.
#[derive(Debug, PartialEq, Eq)]
struct Setting {
    path: PathBuf,
    before: String,
}

impl Remains {
    pub(super) async fn find(directories: &Directories, cgroup_root: &str) -> anyhow::Result<Self> {
        let Some(agent) = &directories.agent else {
            return Ok(Self::default());
        };
        let namespace = fs::metadata("/proc/self/ns/net")
            .context("reading /proc/self/ns/net")?
            .ino();
        let records = records_of(agent, Path::new(RECORDS));
        let is_here = records.iter().any(|record| number(record) == Some(namespace));
        if let Some(path) = records
            .iter()
            .filter(|_| !is_here)
            .find_map(|record| network_namespace::file(number(record)?))
        {
            bail!(
                "the node of {} is in another network namespace: run this by `nsenter --net={}`",
                agent.display(),
                path.display()
            );
        }
        let mut found = Self {
            mounts: mounts(agent)?,
            groups: Groups::find(cgroup_root, &agent.join("pods")),
            records: records
                .iter()
                .flat_map(|record| [record.clone(), lock_of(record)])
                .collect(),
            ..Self::default()
        };
        if is_here {
            found.find_network(agent).await?;
        }
        Ok(found)
    }

    async fn find_network(&mut self, agent: &Path) -> anyhow::Result<()> {
        for (family, name) in TABLES {
            let table = if family == "ip" {
                Table::ip(name)
            } else {
                Table::ip6(name)
            };
            if table.exists().context("listing nftables' tables")? {
                self.tables.push((family, name));
            }
        }
        if self.tables.contains(&("ip", DNS_TABLE)) {
            let rules = output("nft", &["list", "table", "ip", DNS_TABLE]).await?;
            self.address = silenced_address(&rules);
        }
        let routes = LinuxRoutes::open().context("opening the kernel's routes")?;
        self.routes = routes.list().context("listing routes")?.into_keys().collect();
        let note = node_sys::fs::read_head(&agent.join("host-settings"), NOTE_BYTES_MAX).unwrap_or_default();
        self.settings = settings(&String::from_utf8_lossy(&note), Path::new("/proc/sys"));
        Ok(())
    }

    pub(super) fn list(&self) -> Vec<String> {
        let tables = self
            .tables
            .iter()
            .map(|(family, name)| format!("nftables    table {family} {name}"));
        let routes = self
            .routes
            .iter()
            .map(|(to, length)| format!("route       {to}/{length}"));
        let address = self
            .address
            .iter()
            .map(|address| format!("address     {address} on lo"));
        let setting = |setting: &Setting| {
            format!(
                "setting     {} back to {}",
                setting.path.display(),
                setting.before
            )
        };
        let mounts = self
            .mounts
            .iter()
            .map(|path| format!("mount       {}", path.display()));
        let network = tables.chain(routes).chain(address);
        let others = self
            .settings
            .iter()
            .map(setting)
            .chain(mounts)
            .chain(self.groups.list());
        network.chain(others).collect()
    }

    /// Removes them. Absent ones count as removed.
    pub(super) async fn remove(&self, directories: &Directories, runtime: &Runtime) -> anyhow::Result<()> {
        self.groups.remove(runtime).await;
        // Those that the processes had mounted are seen only now.
        if let Some(agent) = &directories.agent {
            for point in mounts(agent)? {
                LinuxMounter.unmount(&point)?;
            }
        }
        if !self.tables.is_empty() {
            let lines = self
                .tables
                .iter()
                .map(|(family, name)| format!("table {family} {name}\ndelete table {family} {name}\n"));
            let spec = CommandSpec::new("nft")
                .args(["-f", "-"])
                .stdin(lines.collect::<String>());
            SystemExec
                .run(spec)
                .await?
                .success("nft")
                .context("removing nftables' tables")?;
        }
        if let Some(address) = self.address {
            let spec =
                CommandSpec::new("ip").args(["address", "delete", &format!("{address}/32"), "dev", "lo"]);
            let removed = SystemExec.run(spec).await?.success("ip");
            if removed.is_err() && node_sys::machine::addresses().contains(&address.into()) {
                removed.context("removing the cluster's DNS address")?;
            }
        }
        let routes = LinuxRoutes::open().context("opening the kernel's routes")?;
        for range in &self.routes {
            routes.remove(*range).context("removing routes")?;
        }
        for setting in &self.settings {
            // One that cannot be put back is as harmless as it was.
            let _ = fs::write(&setting.path, &setting.before);
        }
        self.records.iter().try_for_each(|record| remove_file(record))
    }
}

async fn output(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let spec = CommandSpec::new(program).args(arguments.iter().copied());
    let output = SystemExec.run(spec).await?.success(program)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Locks of the claims to a machine for this directory, which an agent holds as long as it runs.
pub(super) fn claims_of(agent: &Path) -> Vec<PathBuf> {
    records_of(agent, Path::new(RECORDS))
        .iter()
        .map(|record| lock_of(record))
        .collect()
}

fn lock_of(record: &Path) -> PathBuf {
    record.with_added_extension("lock")
}

/// Records that name this directory, one for each network namespace.
fn records_of(agent: &Path, folder: &Path) -> Vec<PathBuf> {
    let names = |path: &PathBuf| {
        let text = node_sys::fs::read_head(path, NOTE_BYTES_MAX).unwrap_or_default();
        number(path).is_some() && Path::new(String::from_utf8_lossy(&text).trim()) == agent
    };
    entries(folder).into_iter().filter(names).collect()
}

/// The number of a record's network namespace.
fn number(record: &Path) -> Option<u64> {
    record.file_name()?.to_str()?.strip_prefix("agent.")?.parse().ok()
}

/// Mount points below the agent's directory, the deepest first.
fn mounts(agent: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut points = LinuxMounter.below(agent)?;
    points.retain(|point| point != agent);
    Ok(points)
}

/// The address in the rules of the DNS server's table.
fn silenced_address(rules: &str) -> Option<Ipv4Addr> {
    let words = rules.split_whitespace();
    let behind = words.clone().skip(1);
    let mut sources = words.zip(behind).filter(|(word, _)| *word == "saddr");
    sources.find_map(|(_, address)| address.parse().ok())
}

/// Settings in the agent's note, one `NAME BEFORE AFTER` a line, that are still as the agent has set them.
fn settings(note: &str, root: &Path) -> Vec<Setting> {
    let line = |line: &str| {
        let [name, before, after] = line.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        // Nothing above the root is a setting.
        let path = root.join(name);
        let is_below = !name.starts_with('/') && !name.split('/').any(|part| part == "..");
        let is_ours = is_below && fs::read_to_string(&path).is_ok_and(|now| now.trim() == after);
        is_ours.then(|| Setting {
            path,
            before: before.to_owned(),
        })
    };
    note.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uninstall_knows_the_address_of_the_dns_server_by_its_rules() {
        let rules = "table ip knarr-dns {\n chain refusals {\n  ip saddr 10.43.0.10 icmp type destination-unreachable drop\n";
        assert_eq!(silenced_address(rules), Some(Ipv4Addr::new(10, 43, 0, 10)));
        assert_eq!(silenced_address("table ip knarr-dns {\n}\n"), None);
        let counted = format!(" update @askers {{ ip saddr limit rate over 1/second }} drop\n{rules}");
        assert_eq!(silenced_address(&counted), Some(Ipv4Addr::new(10, 43, 0, 10)));
    }

    #[test]
    fn uninstall_puts_back_settings_that_nobody_else_has_changed() {
        let root = tempfile::tempdir().unwrap();
        for (name, now) in [("ours", "1\n"), ("changed", "2\n")] {
            fs::write(root.path().join(name), now).unwrap();
        }
        let note = "ours 0 1\nchanged 0 1\nabsent 0 1\n../ours 0 1\n/etc/hostname a b\nhalf 1\n";
        let expected = Setting {
            path: root.path().join("ours"),
            before: "0".to_owned(),
        };
        assert_eq!(settings(note, root.path()), [expected]);
    }

    #[test]
    fn uninstall_takes_the_records_of_its_own_directory_alone() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("agent.1", "/one\n"),
            ("agent.2", "/two\n"),
            ("agent.1.lock", "/one"),
            ("other", "/one"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(
            records_of(Path::new("/one"), folder.path()),
            [folder.path().join("agent.1")]
        );
    }
}
