//! `knarr kubeconfig`: a file for the administrator, made from the certificate authority of a server on this machine.

use crate::server::paths::Paths;
use anyhow::{Context, bail};
use apiserver_server::pki::{Kubeconfig, Pki, ServingNames};
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The flags.
#[derive(Debug, Args)]
pub(crate) struct KubeconfigArguments {
    /// The server's data directory
    #[arg(long, default_value = crate::server::DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Address of the server
    #[arg(long, default_value = "https://127.0.0.1:6443")]
    server: String,
    /// Write it to a file instead of printing it
    #[arg(long)]
    write_kubeconfig: Option<PathBuf>,
}

pub(crate) fn run(arguments: &KubeconfigArguments) -> anyhow::Result<()> {
    let folder = Paths::new(&arguments.data_dir).pki();
    if !folder.try_exists()? {
        bail!(
            "no server has run with --data-dir {}; start one with `knarr server`",
            arguments.data_dir.display()
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let now = runtime.block_on(async { machinery_runtime::Runtime::real().now() });
    let text = render(&folder, &arguments.server, now)?;
    match &arguments.write_kubeconfig {
        Some(path) => apiserver_server::pki::write_private(path, &text)?,
        None => write!(std::io::stdout(), "{text}")?,
    }
    Ok(())
}

fn render(folder: &Path, server: &str, now: jiff::Timestamp) -> anyhow::Result<String> {
    let pki = Pki::open(folder, &ServingNames::new(), now)
        .context("reading the certificate authority (are you root?)")?;
    let identity = pki
        .cluster
        .client("kubernetes-admin", Some("system:masters"), now)?;
    let authority_pem = pki.cluster.certificate_pem();
    Ok(Kubeconfig {
        server,
        authority_pem,
        cluster: "knarr",
        user: "kubernetes-admin",
        identity: &identity,
    }
    .render())
}
