//! A cluster with containers, in a network namespace made for it and removed with everything else afterwards.

use super::{Built, Figure, page};
use crate::{packages, process};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use xtask::host::Host;

/// The port of a server in a network namespace of its own.
const PORT: u16 = 6443;

/// The table, or nothing after saying what this machine lacks.
pub(super) fn measure(built: &Built, scratch: &Path) -> Result<Option<String>> {
    if let Some(reason) = missing_prerequisite()? {
        println!("SKIPPED, not measured: a node: {reason}");
        return Ok(None);
    }
    println!("==> Knarr with a node");
    let cluster = Isolated::new(scratch.join("node"), built.program("knarr"))?;
    let figures = process::output(&mut cluster.bench(built, scratch))?;
    let figures: Vec<Figure> = serde_json::from_str(&figures).context("reading the figures")?;
    Ok(Some(page::alone(&figures)))
}

fn missing_prerequisite() -> Result<Option<&'static str>> {
    let missing = ["containerd", "runc", "nft", "ip"]
        .iter()
        .any(|name| packages::find_program(name).is_none());
    Ok(match (packages::is_root()?, missing) {
        (false, _) => Some("this is not root"),
        (true, true) => Some("containerd, runc, nftables or iproute2 is not installed"),
        (true, false) => None,
    })
}

/// The place of a cluster; whatever happens, nothing of it stays.
struct Isolated {
    host: Host,
    data_dir: PathBuf,
    knarr: PathBuf,
}

impl Isolated {
    fn new(data_dir: PathBuf, knarr: PathBuf) -> Result<Self> {
        let host = Host::prepare(Some(format!("knarr-bench-{}", std::process::id())))?;
        Ok(Self {
            host,
            data_dir,
            knarr,
        })
    }

    fn bench(&self, built: &Built, scratch: &Path) -> std::process::Command {
        let kubeconfig = scratch.join("node.kubeconfig");
        let cgroups = self.host.cgroup_root();
        let mut bench = self.host.command(built.program("knarr-bench"));
        bench.arg("--kubeconfig").arg(&kubeconfig);
        bench.arg("--node").arg(&self.data_dir);
        bench.arg("--runtime").arg(built.program("start_pods"));
        // In the class of the bench's own pods: what requests nothing gets little time beside others.
        let group = format!("{cgroups}/kubepods/besteffort/direct");
        bench.args(["--cgroup-parent", &group, "--"]);
        bench.arg(built.program("knarr")).arg("server");
        bench.arg("--data-dir").arg(&self.data_dir);
        bench.args(["--secure-port", &PORT.to_string(), "--cgroup-root", &cgroups]);
        bench.arg("--write-kubeconfig").arg(&kubeconfig);
        bench
    }
}

impl Drop for Isolated {
    fn drop(&mut self) {
        if let Err(error) = self.host.remove_cluster(&self.knarr, &self.data_dir) {
            println!("the cluster was not taken down: {error:#}");
        }
    }
}
