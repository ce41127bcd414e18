//! Facts of this machine: processors, memory, identity, kernel and distribution.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Facts that do not change while we run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// Processors we may use.
    pub cpus: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Swap in bytes.
    pub swap_bytes: u64,
    /// Huge pages that are kept for use, by the size of one in bytes; sizes of which there are none count as well.
    pub huge_pages: BTreeMap<u64, u64>,
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// The DMI product uuid, or the machine id where there is none.
    pub system_uuid: String,
    /// This boot's id.
    pub boot_id: String,
    /// `uname -r`.
    pub kernel_version: String,
    /// The distribution's pretty name.
    pub os_image: String,
    /// Go's name of the architecture, which is what Kubernetes uses.
    pub architecture: &'static str,
    /// The host name.
    pub hostname: String,
    /// Processes and threads that the kernel allows at once.
    pub tasks_max: u64,
    /// Start of the kernel, in seconds of Unix time.
    pub booted_at_seconds: i64,
    /// The kernel confines processes by AppArmor profiles.
    pub app_armor: bool,
}

impl Machine {
    /// Reads them; what cannot be read stays empty.
    pub fn observe() -> Self {
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let machine_id = first_line("/etc/machine-id");
        let product = first_line("/sys/class/dmi/id/product_uuid");
        Self {
            // Respects affinity and quota of the agent's own cgroup: a node in a container has those of the
            // container.
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
            memory_bytes: meminfo_bytes(&memory, "MemTotal"),
            swap_bytes: meminfo_bytes(&memory, "SwapTotal"),
            huge_pages: huge_pages(Path::new("/sys/kernel/mm/hugepages")),
            system_uuid: if product.is_empty() {
                machine_id.clone()
            } else {
                product
            },
            machine_id,
            boot_id: first_line("/proc/sys/kernel/random/boot_id"),
            kernel_version: first_line("/proc/sys/kernel/osrelease"),
            os_image: os_image(&std::fs::read_to_string("/etc/os-release").unwrap_or_default()),
            architecture: go_architecture(std::env::consts::ARCH),
            hostname: first_line("/proc/sys/kernel/hostname"),
            tasks_max: ["pid_max", "threads-max"]
                .iter()
                .filter_map(|name| first_line(&format!("/proc/sys/kernel/{name}")).parse().ok())
                .min()
                .unwrap_or(32768),
            booted_at_seconds: boot_time(&std::fs::read_to_string("/proc/stat").unwrap_or_default()),
            app_armor: std::path::Path::new("/sys/kernel/security/apparmor").is_dir()
                && first_line("/sys/module/apparmor/parameters/enabled").starts_with('Y'),
        }
    }
}

/// Sizes of huge pages that are read; processors have four at most.
const PAGE_SIZES_MAX: usize = 16;

/// Huge pages of a folder of the kernel, of the machine or of a NUMA node, by the size of one in bytes.
pub fn huge_pages(folder: &Path) -> BTreeMap<u64, u64> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let pages = entries.take(PAGE_SIZES_MAX).filter_map(|entry| {
        let name = entry.file_name();
        let kilobytes = name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        let bytes = kilobytes.parse::<u64>().ok()?.checked_mul(1024)?;
        let count = std::fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
        Some((bytes, count.trim().parse().ok()?))
    });
    pages.collect()
}

/// Physical processors; zero where the kernel does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Processors {
    /// Cores, each of which may run several threads.
    pub cores: u64,
    /// Sockets.
    pub sockets: u64,
}

impl Processors {
    /// Reads them.
    pub fn observe() -> Self {
        Self::of(Path::new("/sys/devices/system/cpu"))
    }

    fn of(folder: &Path) -> Self {
        let (mut cores, mut sockets) = (BTreeSet::new(), BTreeSet::new());
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let topology = entry.path().join("topology");
            let read = |name: &str| std::fs::read_to_string(topology.join(name)).ok();
            if let (Some(socket), Some(core)) = (read("physical_package_id"), read("core_id")) {
                cores.insert((socket.clone(), core));
                sockets.insert(socket);
            }
        }
        Self {
            cores: cores.len() as u64,
            sockets: sockets.len() as u64,
        }
    }
}

/// Memory that new work could use now, in bytes.
pub fn memory_available_bytes() -> u64 {
    memory_bytes().0
}

/// Memory that new work could use now, and all there is, in bytes.
pub fn memory_bytes() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let of = |name: &str| meminfo_bytes(&text, name);
    (of("MemAvailable"), of("MemTotal"))
}

/// Memory that is in use, page cache included, in bytes: upstream's figure of the root group of version 2.
pub fn memory_used_bytes() -> u64 {
    used_bytes("MemTotal", "MemFree")
}

/// Swap that is in use, in bytes.
pub fn swap_used_bytes() -> u64 {
    used_bytes("SwapTotal", "SwapFree")
}

fn used_bytes(all: &str, free: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    meminfo_bytes(&text, all).saturating_sub(meminfo_bytes(&text, free))
}

/// Memory that this process may use, in bytes: all there is, or less where its cgroup or one above it has a limit; 0 where
/// both are unknown.
pub fn memory_limit_bytes() -> u64 {
    let total = Some(memory_bytes().1).filter(|bytes| *bytes > 0);
    let read = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
    let limit = cgroup_memory_limit(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
    total.into_iter().chain(limit).min().unwrap_or(0)
}

/// The smallest limit from a process' own cgroups up to the roots that it sees, by its `mountinfo` and `cgroup` of
/// `/proc/self` (cgroups(7)). Version 1 has a number beyond all memory where there is no limit.
fn cgroup_memory_limit(mounts: &str, membership: &str) -> Option<u64> {
    let hierarchies = mounts.lines().filter_map(memory_hierarchy);
    let limits = hierarchies.filter_map(|hierarchy| hierarchy.limit(membership));
    limits.min()
}

/// A mounted hierarchy of cgroups that limits memory.
struct MemoryHierarchy<'a> {
    /// The cgroup that is mounted.
    root: &'a Path,
    mounted_at: &'a Path,
    /// The file with a cgroup's limit.
    file: &'static str,
    /// Reports whether a line of `/proc/self/cgroup` with these controllers belongs to it.
    is_of: fn(&str) -> bool,
}

/// Reads a line of `mountinfo` (proc(5)).
fn memory_hierarchy(mount: &str) -> Option<MemoryHierarchy<'_>> {
    let (mount, kind) = mount.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let mut kind = kind.split(' ');
    let (file, is_of): (_, fn(&str) -> bool) = match (kind.next()?, kind.nth(1)?) {
        ("cgroup2", _) => ("memory.max", str::is_empty),
        ("cgroup", options) if has_memory(options) => ("memory.limit_in_bytes", has_memory),
        _ => return None,
    };
    Some(MemoryHierarchy {
        root: Path::new(mount.next()?),
        mounted_at: Path::new(mount.next()?),
        file,
        is_of,
    })
}

fn has_memory(controllers: &str) -> bool {
    controllers.split(',').any(|name| name == "memory")
}

impl MemoryHierarchy<'_> {
    /// The smallest limit from the process' own cgroup up to the one that is mounted.
    fn limit(&self, membership: &str) -> Option<u64> {
        let own = membership.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            (self.is_of)(controllers).then_some(Path::new(path))
        })?;
        // A container may see the path of its host, of which only the end is mounted.
        let below = own.strip_prefix(self.root).unwrap_or(Path::new(""));
        let limit = |folder: &Path| {
            let text = std::fs::read_to_string(self.mounted_at.join(folder).join(self.file)).ok()?;
            text.trim().parse().ok()
        };
        below.ancestors().filter_map(limit).min()
    }
}

/// Reports whether this process runs as root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The addresses of this machine's links, in their order.
pub fn addresses() -> Vec<std::net::IpAddr> {
    addresses_where(|_| true)
}

/// The same without those on the loopback link, where cluster DNS has its address, too.
pub fn outer_addresses() -> Vec<std::net::IpAddr> {
    addresses_where(|found| !found.flags.contains(nix::net::if_::InterfaceFlags::IFF_LOOPBACK))
}

fn addresses_where(is_wanted: impl Fn(&nix::ifaddrs::InterfaceAddress) -> bool) -> Vec<std::net::IpAddr> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else {
        return Vec::new();
    };
    let address = |storage: nix::sys::socket::SockaddrStorage| {
        let v4 = storage.as_sockaddr_in().map(|v4| std::net::IpAddr::V4(v4.ip()));
        v4.or_else(|| storage.as_sockaddr_in6().map(|v6| std::net::IpAddr::V6(v6.ip())))
    };
    all.filter(is_wanted)
        .filter_map(|found| found.address.and_then(address))
        .collect()
}

fn first_line(path: &str) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .lines()
        .next()
        .unwrap_or_default()
        .trim()
        .to_string()
}

fn meminfo_bytes(table: &str, name: &str) -> u64 {
    table
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

/// Reads `/proc/stat`.
fn boot_time(table: &str) -> i64 {
    table
        .lines()
        .find_map(|line| line.strip_prefix("btime "))
        .and_then(|seconds| seconds.trim().parse().ok())
        .unwrap_or(0)
}

fn os_image(release: &str) -> String {
    release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map_or_else(|| "Linux".to_string(), |name| name.trim_matches('"').to_string())
}

fn go_architecture(rust_name: &'static str) -> &'static str {
    match rust_name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read() {
        assert_eq!(
            meminfo_bytes("MemTotal:   24 kB\nMemFree: 1 kB\n", "MemTotal"),
            24 * 1024
        );
        assert_eq!(
            os_image("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"),
            "Debian GNU/Linux 12"
        );
        assert_eq!(
            boot_time("cpu  1 2\nbtime 1700000000\nprocesses 3\n"),
            1_700_000_000
        );
    }

    #[test]
    fn huge_pages_are_read_by_size() {
        let root = tempfile::tempdir().unwrap();
        for (name, count) in [
            ("hugepages-2048kB", "3\n"),
            ("hugepages-1048576kB", "0"),
            ("other", "1"),
        ] {
            std::fs::create_dir(root.path().join(name)).unwrap();
            std::fs::write(root.path().join(name).join("nr_hugepages"), count).unwrap();
        }
        assert_eq!(huge_pages(root.path()), [(2 << 20, 3), (1 << 30, 0)].into());
        assert!(huge_pages(&root.path().join("absent")).is_empty());
    }

    #[test]
    fn processors_are_counted_by_core_and_socket() {
        let root = tempfile::tempdir().unwrap();
        for (at, core) in ["0", "1", "0", "1"].iter().enumerate() {
            let topology = root.path().join(format!("cpu{at}/topology"));
            std::fs::create_dir_all(&topology).unwrap();
            std::fs::write(topology.join("physical_package_id"), "0\n").unwrap();
            std::fs::write(topology.join("core_id"), core).unwrap();
        }
        std::fs::create_dir(root.path().join("cpufreq")).unwrap();
        let expected = Processors { cores: 2, sockets: 1 };
        assert_eq!(Processors::of(root.path()), expected);
    }

    #[test]
    fn memory_limit_is_the_smallest_up_to_the_root() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("system.slice/knarr.service");
        std::fs::create_dir_all(&own).unwrap();
        let at = root.path().display();
        let mounts = format!("30 23 0:26 / {at} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
        let limit = |membership| cgroup_memory_limit(&mounts, membership);
        let membership = "1:name=systemd:/x\n0::/system.slice/knarr.service\n";
        assert_eq!(limit(membership), None);
        std::fs::write(own.join("memory.max"), "max\n").unwrap();
        assert_eq!(limit(membership), None);
        std::fs::write(root.path().join("system.slice/memory.max"), "4096\n").unwrap();
        assert_eq!(limit(membership), Some(4096));
        std::fs::write(root.path().join("memory.max"), "1024\n").unwrap();
        assert_eq!((limit(membership), limit("0::/\n")), (Some(1024), Some(1024)));
        assert_eq!(limit(""), None);
    }

    #[test]
    fn memory_limit_of_version_1_is_read_beside_version_2() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("memory/pod/one");
        std::fs::create_dir_all(&own).unwrap();
        std::fs::create_dir_all(root.path().join("unified/pod")).unwrap();
        let at = root.path().display();
        let mounts = |seen: &str| {
            format!(
                "34 31 0:31 / {at}/cpuset rw - cgroup cgroup rw,cpuset\n\
                 35 31 0:32 {seen} {at}/memory rw - cgroup cgroup rw,memory\n\
                 41 31 0:38 / {at}/unified rw - cgroup2 cgroup2 rw\n"
            )
        };
        let membership = "4:memory:/pod/one\n3:cpuset:/\n0::/pod\n";
        let write = |file: &str, text: &str| std::fs::write(root.path().join(file), text).unwrap();
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/pod/one/memory.limit_in_bytes", "8192\n");
        assert_eq!(cgroup_memory_limit(&mounts("/"), membership), Some(8192));
        write("memory/pod/memory.limit_in_bytes", "4096\n");
        assert_eq!(cgroup_memory_limit(&mounts("/"), membership), Some(4096));
        write("unified/pod/memory.max", "2048\n");
        assert_eq!(cgroup_memory_limit(&mounts("/"), membership), Some(2048));
        // As a container sees it: its own cgroup is mounted, and its path is the host's.
        write("memory/memory.limit_in_bytes", "1024\n");
        assert_eq!(cgroup_memory_limit(&mounts("/pod/one"), membership), Some(1024));
    }
}
