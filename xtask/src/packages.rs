//! Packages that a fresh Debian 12 machine lacks, by the command that needs them.

use crate::process;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// Debian packages to build the binary: prost's code generators run `protoc`.
pub(crate) const BUILD: &[&str] = &["protobuf-compiler", "libprotobuf-dev", "gcc", "make", "libc6-dev"];

/// Debian packages of a node.
pub(crate) const NODE: &[&str] = &["containerd", "runc", "nftables", "iproute2", "util-linux"];

/// Debian packages only tests use.
pub(crate) const TEST: &[&str] = &[
    "golang-go",
    "curl",
    "openssl",
    "procps",
    "busybox-static",
    // Networks of other programs, and links and host ports of older agents' plugins.
    "containernetworking-plugins",
    "iptables",
    "bsdutils",
    // A bus and a logind on it.
    "dbus-daemon",
    "dbus",
    "systemd",
    "python3-dbus",
    "python3-gi",
];

/// Installs what is missing among `names`; says so, and needs root only when something is.
pub(crate) fn ensure(names: &[&str]) -> Result<()> {
    let missing = missing(names)?;
    if missing.is_empty() {
        return Ok(());
    }
    println!("==> installing Debian packages: {}", missing.join(" "));
    if !is_root()? {
        bail!("run this as root, or install: {}", missing.join(" "));
    }
    apt(&["update", "-q"])?;
    let mut arguments = vec!["install", "-q", "-y", "--no-install-recommends"];
    arguments.extend(&missing);
    apt(&arguments)
}

fn apt(arguments: &[&str]) -> Result<()> {
    let mut command = process::command("apt-get");
    command
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(std::process::Stdio::null());
    process::run(&mut command).context("apt-get; is this Debian, and does it reach its mirror?")
}

fn missing<'a>(names: &[&'a str]) -> Result<Vec<&'a str>> {
    let mut query = process::command("dpkg-query");
    query
        .args(["-W", "-f", "${Package} ${db:Status-Status}\n"])
        .args(names);
    query.stderr(std::process::Stdio::null());
    // dpkg-query fails when one name is unknown to it, and still lists the others.
    let listed = query
        .output()
        .context("dpkg-query; Knarr's automation knows Debian")?
        .stdout;
    let listed = String::from_utf8_lossy(&listed);
    let installed = |name: &str| {
        listed.lines().any(|line| line == format!("{name} installed")) || provided_otherwise(name)
    };
    Ok(names.iter().copied().filter(|name| !installed(name)).collect())
}

/// A Go toolchain that did not come from Debian serves as well.
fn provided_otherwise(name: &str) -> bool {
    name == "golang-go" && find_program("go").is_some()
}

/// The program's full path, looked up as the shell would.
pub(crate) fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = process::output(process::command("sh").args(["-c", &format!("command -v {name}")])).ok()?;
    let path = Path::new(path.trim()).to_owned();
    path.is_absolute().then_some(path)
}

/// Reports whether this process has the rights of root.
pub(crate) fn is_root() -> Result<bool> {
    Ok(process::output(process::command("id").arg("-u"))?.trim() == "0")
}
