//! Server and agent of the built binary on a machine that systemd has started, by the unit of `docs/`, with the systemd cgroup driver.

use super::image;
use super::kubectl::Kubectl;
use super::systemd_node::SystemdNode;
use super::{Host, wait_ready};
use std::path::{Path, PathBuf};

const UNIT: &str = include_str!("../../../../docs/knarr.service");
/// Limits that a machine whose root lacks CAP_SYS_RESOURCE refuses.
const LIMITS: &str = "[Service]\nOOMScoreAdjust=0\nLimitNOFILE=20000\n";

/// A node under systemd with a server and its agent.
pub(crate) struct Machine {
    pub(crate) node: SystemdNode,
    pub(crate) host: Host,
    pub(crate) folder: PathBuf,
    pub(crate) kubectl: Kubectl,
}

impl Machine {
    pub(crate) fn start(test: &str, program: PathBuf, host: &Host, folder: &Path) -> Option<Self> {
        let command = start_command(folder);
        let start = format!("[Service]\nExecStart=\nExecStart={command}\n");
        let units = [
            ("knarr.service", UNIT),
            ("knarr.service.d/limits.conf", LIMITS),
            ("knarr.service.d/start.conf", &start),
        ];
        let node = SystemdNode::start(test, host, folder, &units)?;
        node.run(&["systemctl", "start", "knarr"]);
        let kubectl = Kubectl {
            program,
            folder: folder.to_owned(),
            host: host.clone(),
            namespace: None,
        };
        let machine = Self {
            node,
            host: host.clone(),
            folder: folder.to_owned(),
            kubectl,
        };
        wait_ready(&machine.kubectl);
        Some(machine)
    }

    pub(crate) fn wait_node(&self) {
        self.kubectl.until("a node", || {
            !self.kubectl.kubectl(&["get", "nodes", "-o", "name"]).is_empty()
        });
        let node = self.kubectl.kubectl(&["get", "nodes", "-o", "name"]);
        self.kubectl.wait(node.trim(), "condition=Ready");
    }

    pub(crate) fn knarr(&self, arguments: &[&str]) -> String {
        let program = [env!("CARGO_BIN_EXE_knarr")];
        self.node.run(&[&program, arguments].concat())
    }

    pub(crate) fn data_dir(&self) -> String {
        self.folder.join("data").display().to_string()
    }

    pub(crate) fn import(&self) {
        let archive = self.folder.join("tools.tar");
        image::write(&archive, &self.folder);
        let archive = archive.display().to_string();
        self.knarr(&["image", "import", "--data-dir", &self.data_dir(), &archive]);
    }

    /// A property of a unit.
    pub(crate) fn property(&self, unit: &str, name: &str) -> String {
        let shown = self
            .node
            .run(&["systemctl", "show", "--property", name, "--value", unit]);
        shown.trim().to_owned()
    }

    /// Names of the slices of pods that systemd knows.
    pub(crate) fn slices_of_pods(&self) -> String {
        self.node.run(&[
            "systemctl",
            "list-units",
            "--all",
            "--plain",
            "--no-legend",
            "*kubepods*pod*.slice",
        ])
    }
}

fn start_command(folder: &Path) -> String {
    let knarr = env!("CARGO_BIN_EXE_knarr");
    let folder = folder.display();
    let flags = [
        "--secure-port 6443",
        "--cgroup-driver systemd",
        "--cgroup-root /own-node",
        "--shutdown-grace-period-by-pod-priority 0=60,1000=30",
        "--eviction-hard memory.available<100Mi,nodefs.available<1Gi,imagefs.available<1Gi",
    ];
    format!(
        "{knarr} server --data-dir {folder}/data --write-kubeconfig {folder}/kubeconfig {}",
        flags.join(" ")
    )
}
