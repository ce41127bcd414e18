//! `knarr check`: whether this machine can be a node. One line per finding, with what to do.

use crate::network_namespace::NetworkNamespace;
use anyhow::{Context, bail};
use clap::Args;
use node_sys::exec::find_program;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Text before the Debian package in a finding.
const INSTALL: &str = "apt-get install ";

/// Flags of `knarr check`.
#[derive(Args, Debug, Clone)]
pub(crate) struct CheckArguments {
    /// Check the requirements of the control plane only
    #[arg(long)]
    disable_agent: bool,
    /// Data directory to check
    #[arg(long, default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
}

impl CheckArguments {
    /// Requirements of server and agent with this data directory, and defaults elsewhere.
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self {
            disable_agent: false,
            data_dir: data_dir.to_owned(),
        }
    }
}

/// Grade of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grade {
    Well,
    Advice,
    Missing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    grade: Grade,
    text: String,
}

fn well(text: impl Into<String>) -> Finding {
    Finding {
        grade: Grade::Well,
        text: text.into(),
    }
}

fn missing(text: impl Into<String>) -> Finding {
    Finding {
        grade: Grade::Missing,
        text: text.into(),
    }
}

fn advice(text: impl Into<String>) -> Finding {
    Finding {
        grade: Grade::Advice,
        text: text.into(),
    }
}

pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<()> {
    let findings = findings(arguments);
    print(&findings)?;
    refuse_missing(&findings)
}

/// Prints what is missing and what is advised, and nothing of a machine that has all.
pub(crate) fn run_quietly(arguments: &CheckArguments) -> anyhow::Result<()> {
    let findings = findings(arguments);
    let (_, reported): (Vec<_>, Vec<_>) = findings
        .into_iter()
        .partition(|finding| finding.grade == Grade::Well);
    print(&reported)?;
    refuse_missing(&reported)
}

fn findings(arguments: &CheckArguments) -> Vec<Finding> {
    let mut findings = vec![
        check_free_space(&arguments.data_dir),
        socket_path(&arguments.data_dir),
    ];
    if !arguments.disable_agent {
        findings.push(root());
        findings.extend(programs());
        findings.push(overlay());
        findings.push(cgroups());
        findings.push(cgroup_driver(node_sys::systemd::is_running()));
        findings.push(forwarding());
        findings.push(swap());
        findings.push(route(crate::agent::address::has_default_route()));
        findings.extend(network(NetworkNamespace::of_this_process()));
    }
    findings
}

fn print(findings: &[Finding]) -> anyhow::Result<()> {
    for finding in findings {
        let mark = match finding.grade {
            Grade::Well => "ok     ",
            Grade::Advice => "advice ",
            Grade::Missing => "missing",
        };
        writeln!(std::io::stdout(), "{mark}  {}", finding.text).context("writing to standard output")?;
    }
    Ok(())
}

fn refuse_missing(findings: &[Finding]) -> anyhow::Result<()> {
    let missing = || findings.iter().filter(|finding| finding.grade == Grade::Missing);
    let packages: Vec<&str> = missing()
        .filter_map(|finding| Some(finding.text.rsplit_once(INSTALL)?.1))
        .collect();
    let install = match packages.is_empty() {
        true => String::new(),
        false => format!("; on Debian `{INSTALL}{}` helps", packages.join(" ")),
    };
    match missing().count() {
        0 => Ok(()),
        1 => bail!("1 requirement is not met, see the line above{install}"),
        count => bail!("{count} requirements are not met, see the lines above{install}"),
    }
}

fn root() -> Finding {
    if node_sys::machine::is_root() {
        return well("running as root");
    }
    missing("not root: run as root, or start the server with --disable-agent")
}

fn programs() -> Vec<Finding> {
    let needed = [
        ("containerd", "containerd"),
        ("runc", "runc"),
        ("nft", "nftables"),
        ("ip", "iproute2"),
    ];
    let look = |(program, package): (&str, &str)| match find_program(program) {
        Some(path) => well(format!("{program} is {}", path.display())),
        None => missing(format!("{program} is missing: {INSTALL}{package}")),
    };
    needed.into_iter().map(look).collect()
}

fn overlay() -> Finding {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if known
        .lines()
        .any(|line| line.trim_start_matches("nodev").trim() == "overlay")
    {
        return well("the kernel has overlayfs");
    }
    missing("the kernel has no overlayfs: modprobe overlay")
}

/// Returns the text of missing cgroups, without which no pod can start.
pub(crate) fn missing_cgroups() -> Option<String> {
    let found = cgroups();
    (found.grade == Grade::Missing).then_some(found.text)
}

fn cgroups() -> Finding {
    let version = node_sys::cgroup::detect().version();
    let root = Path::new(node_sys::cgroup::CGROUP_ROOT);
    let usable = match version {
        1 => root.join("memory").try_exists().unwrap_or(false),
        _ => {
            std::fs::read_to_string(root.join("cgroup.controllers")).is_ok_and(|list| list.contains("memory"))
        }
    };
    if usable {
        return well(format!("cgroup v{version} with the memory controller"));
    }
    if !is_mount_point(root) {
        return missing(format!(
            "no cgroups are mounted at {}: `ip netns exec` hides those of the machine, `{}` does not; mount -t cgroup2 none \
             {0} mounts them",
            root.display(),
            NetworkNamespace::of_this_process()
                .map_or("nsenter --net=/run/netns/NAME".to_owned(), |own| own.entry())
        ));
    }
    missing("no cgroup memory controller: boot with cgroup_enable=memory")
}

/// Drivers that a node can have here.
fn cgroup_driver(has_systemd: bool) -> Finding {
    match has_systemd {
        true => well("systemd runs: --cgroup-driver may be cgroupfs, the default, or systemd"),
        false => well("systemd does not run: --cgroup-driver can be cgroupfs alone, the default"),
    }
}

/// Reports whether a file system is mounted there, or below it, as those of cgroup v1 are.
fn is_mount_point(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    places.into_iter().any(|place| Path::new(place).starts_with(path))
}

fn forwarding() -> Finding {
    match std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward") {
        Ok(text) if text.trim() == "1" => well("IPv4 forwarding is on"),
        Ok(_) => well("IPv4 forwarding is off: the agent will turn it on"),
        Err(_) => missing("the kernel has no IPv4 forwarding"),
    }
}

fn swap() -> Finding {
    if node_sys::machine::Machine::observe().swap_bytes == 0 {
        return well("no swap");
    }
    advice("swap is on: pods may use it beyond their memory limits; swapoff -a turns it off")
}

/// Packets to addresses of services are rewritten on their way out, which only a route gives them.
fn route(has_default: bool) -> Finding {
    match has_default {
        true => well("a default route leads out of this machine"),
        false => advice(
            "no default route: this machine reaches no address of a service, and pods nothing beyond its networks; \
             ip route add default via GATEWAY",
        ),
    }
}

/// The way of all commands into a network namespace, from which nothing else leads to the cluster.
fn network(namespace: Option<NetworkNamespace>) -> Option<Finding> {
    let entry = namespace?.entry();
    Some(advice(format!(
        "this is a network namespace, in which the whole cluster will be: begin kubectl and knarr with `{entry}`; \
         `ip netns exec` would hide the machine's cgroups"
    )))
}

fn check_free_space(data_dir: &Path) -> Finding {
    const BYTES_MIN: u64 = 2 << 30;
    // A relative path ends before the directory that it begins in.
    let place = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
    let existing = place.ancestors().find(|path| path.try_exists().unwrap_or(false));
    match existing.map(node_sys::fs::usage) {
        Some(Ok(usage)) if usage.available_bytes < BYTES_MIN => advice(format!(
            "only {} MiB are free at {}: images need more",
            usage.available_bytes >> 20,
            data_dir.display()
        )),
        Some(Ok(usage)) => well(format!(
            "{} GiB are free at {}",
            usage.available_bytes >> 30,
            data_dir.display()
        )),
        _ => missing(format!(
            "{} cannot be read: choose another --data-dir",
            data_dir.display()
        )),
    }
}

fn socket_path(data_dir: &Path) -> Finding {
    const SOCKET_PATH_BYTES_MAX: usize = 107;
    let longest = data_dir.join("agent/containerd/containerd.sock.ttrpc");
    if longest.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return well("socket paths are short enough");
    }
    missing(format!(
        "--data-dir {} is too long for socket paths: choose a shorter one",
        data_dir.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_looks_at_the_disk_of_a_relative_directory_that_is_to_be_made() {
        for path in ["not/there/yet", "/not/there/yet"] {
            let found = check_free_space(Path::new(path));
            assert!(
                found.grade != Grade::Missing && found.text.contains("free at"),
                "{found:?}"
            );
        }
    }

    #[test]
    fn check_names_the_packages_of_all_that_is_missing() {
        refuse_missing(&[well("all is there"), advice("swap is on")]).unwrap();
        let one = [missing("runc is missing: apt-get install runc"), well("no swap")];
        let refusal = refuse_missing(&one).unwrap_err().to_string();
        assert_eq!(
            refusal,
            "1 requirement is not met, see the line above; on Debian `apt-get install runc` helps"
        );
        let two = [
            missing("nft is missing: apt-get install nftables"),
            missing("not root"),
            missing("x: apt-get install y"),
        ];
        let refusal = refuse_missing(&two).unwrap_err().to_string();
        assert_eq!(
            refusal,
            "3 requirements are not met, see the lines above; on Debian `apt-get install nftables y` helps"
        );
    }
}
