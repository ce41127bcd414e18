//! Further nodes of an isolated cluster on this machine: each an agent in a network namespace beside the first node's.
//!
//! `cargo xtask up --nodes`, the conformance suite and the test of joining start them, and take them down again.

use crate::host::Host;
use crate::process;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A node that joins with a token; number 2 is the second of the cluster.
#[derive(Debug)]
pub struct FurtherNode {
    pub host: Host,
    /// The agent's data directory.
    pub data_dir: PathBuf,
    name: String,
    server: String,
}

impl FurtherNode {
    /// Makes the place beside the first node's; `secure_port` is the API server's.
    ///
    /// # Errors
    /// The first node has no namespace of its own, or the kernel refuses the link.
    pub fn beside(first: &Host, number: u8, name: &str, data_dir: &Path, secure_port: u16) -> Result<Self> {
        Ok(Self {
            host: first.beside(&number.to_string(), number)?,
            data_dir: data_dir.to_owned(),
            name: name.to_owned(),
            server: format!("https://{}:{secure_port}", Host::address(1)),
        })
    }

    /// The agent, to be started; it joins with the token of that file.
    pub fn agent(&self, knarr: &Path, token_file: &Path) -> Command {
        let mut agent = self.host.command(knarr);
        agent
            .args(["agent", "--hostname-override", &self.name])
            .args(["--server", &self.server])
            .args(["--cgroup-root", &self.host.cgroup_root()])
            .arg("--data-dir")
            .arg(&self.data_dir)
            .arg("--token-file")
            .arg(token_file)
            .stdin(Stdio::null());
        agent
    }

    /// Starts the agent, its log in its directory.
    ///
    /// # Errors
    /// The directory cannot be made, or the program does not start.
    pub fn start<W: AsRef<OsStr>>(&self, knarr: &Path, token_file: &Path, flags: &[W]) -> Result<Child> {
        fs::create_dir_all(&self.data_dir)?;
        fs::set_permissions(&self.data_dir, fs::Permissions::from_mode(0o700))?;
        let log = self.data_dir.join("agent.log");
        let log = fs::File::options().create(true).append(true).open(log)?;
        let mut agent = self.agent(knarr, token_file);
        agent.args(flags).stdout(log.try_clone()?).stderr(log);
        // Not ended by an interrupt of the process that starts it.
        agent
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting the agent of {}", self.name))
    }

    /// Removes the node from this machine: agent, pods, files and namespace. Returns the list of what was removed.
    ///
    /// # Errors
    /// Something of it stays.
    pub fn remove(&self, knarr: &Path) -> Result<String> {
        self.host.remove_cluster(knarr, &self.data_dir)
    }
}

/// Writes a new token of that server into a file that only its owner reads.
///
/// # Errors
/// The server does not run, or the file cannot be written.
pub fn write_token(first: &Host, knarr: &Path, data_dir: &Path, file: &Path) -> Result<()> {
    let mut create = first.command(knarr);
    create
        .args(["token", "create", "--ttl", "1h", "--data-dir"])
        .arg(data_dir);
    let token = process::output(&mut create)?;
    fs::write(file, "")?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))?;
    Ok(fs::write(file, token)?)
}
