//! Place of a run: its folder, its ports and addresses, and the placeholders that stand for them.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::catalog::Operator;
use crate::config::Config;
use crate::{process, upstream};

/// An address of documentation (RFC 5737), to learn from the kernel by which address of this machine others are reached.
const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(203, 0, 113, 1), 9);

/// Folders, ports and programs of a run.
#[derive(Debug)]
pub(crate) struct Place {
    pub folder: PathBuf,
    /// Folder of the operator's published module; none for an operator without definitions.
    pub module: PathBuf,
    /// Address of this machine that is not on loopback, where a server of its own may be reached.
    pub address: IpAddr,
    pub port: u16,
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    program: PathBuf,
    /// Folder of the scenario's files.
    files: PathBuf,
    second_port: u16,
}

impl Place {
    pub(crate) fn new(
        config: &Config,
        operator: &Operator,
        module: PathBuf,
        folder: &Path,
        kubeconfig: &Path,
    ) -> Result<Self> {
        let [port, second_port] = upstream::free_ports()?;
        Ok(Self {
            folder: folder.to_owned(),
            module,
            address: address()?,
            port,
            kubeconfig: kubeconfig.to_owned(),
            kubectl: config.tools.join("kubectl"),
            program: config.tools.join(operator.name),
            files: config.root.join("conformance/operators").join(operator.name),
            second_port,
        })
    }

    /// The operator's program, with its settings in the run's folder.
    pub(crate) fn own(&self) -> Command {
        let mut own = process::command(&self.program);
        own.env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.folder)
            .current_dir(&self.files);
        own
    }

    pub(crate) fn kubectl(&self) -> Command {
        let mut kubectl = process::command(&self.kubectl);
        kubectl.arg("--kubeconfig").arg(&self.kubeconfig);
        kubectl
    }

    /// Applies a file, a folder, or a folder's kustomization. Definitions are too long for the annotation of a client's apply.
    pub(crate) fn apply(&self, path: &Path) -> Result<()> {
        let flag = if path.is_dir() && path.join("kustomization.yaml").try_exists()? {
            "-k"
        } else {
            "-f"
        };
        process::run(self.kubectl().args(["apply", "--server-side", flag]).arg(path))
    }

    /// Text with the values of its placeholders.
    pub(crate) fn fill(&self, text: &str) -> String {
        text.replace("@KUBECONFIG@", &self.kubeconfig.display().to_string())
            .replace("@FOLDER@", &self.folder.display().to_string())
            .replace("@ADDRESS@", &self.address.to_string())
            .replace("@PORT@", &self.port.to_string())
            .replace("@PORT2@", &self.second_port.to_string())
    }

    /// Writes a file of the scenario, filled in, into the run's folder, and returns its path.
    pub(crate) fn file(&self, name: &str) -> Result<PathBuf> {
        let from = self.files.join(name);
        let text = fs::read_to_string(&from).with_context(|| format!("reading {}", from.display()))?;
        let to = self.folder.join(name);
        fs::write(&to, self.fill(&text))?;
        Ok(to)
    }

    /// True if the scenario has this file.
    pub(crate) fn has(&self, name: &str) -> Result<bool> {
        Ok(self.files.join(name).try_exists()?)
    }
}

/// Address by which this machine reaches others; nothing is sent.
fn address() -> Result<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket
        .connect(ELSEWHERE)
        .context("this machine has no address but loopback, and webhooks of services are not called there")?;
    Ok(socket.local_addr()?.ip())
}
