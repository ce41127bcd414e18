//! Directories of the system and of users, which no command removes.

use anyhow::{bail, ensure};
use std::path::{Path, PathBuf};

/// Directories whose removal would take more than a cluster, and so would that of any above them.
const SYSTEM: &[&str] = &[
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib32",
    "/lib64",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr/bin",
    "/usr/lib",
    "/usr/local",
    "/usr/share",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/run",
    "/var/tmp",
];
/// Bytes of the longest list of accounts that is read.
const PASSWD_BYTES_MAX: u64 = 1 << 20;

/// Refuses directories of the system and of users, and those above them.
pub(super) fn guard(dir: &Path) -> anyhow::Result<()> {
    let accounts = node_sys::fs::read_head(Path::new("/etc/passwd"), PASSWD_BYTES_MAX).unwrap_or_default();
    let homes = homes(&String::from_utf8_lossy(&accounts));
    let system = SYSTEM.iter().map(PathBuf::from);
    if let Some(kept) = system.chain(homes).find(|kept| kept.starts_with(dir)) {
        bail!(
            "--data-dir {} is not removed: {} belongs to the system or is a home directory",
            dir.display(),
            kept.display()
        );
    }
    ensure!(dir.is_dir(), "--data-dir {} is not a directory", dir.display());
    Ok(())
}

/// Home directories of accounts that can log in.
pub(super) fn homes(accounts: &str) -> Vec<PathBuf> {
    let fields = accounts.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let people = fields.filter(|fields| {
        let shell = fields
            .get(6)
            .unwrap_or(&"")
            .rsplit('/')
            .next()
            .unwrap_or_default();
        !matches!(shell, "nologin" | "false" | "sync")
    });
    let homes = people.filter_map(|fields| fields.get(5).map(PathBuf::from));
    homes.filter(|home| home.is_absolute()).collect()
}
