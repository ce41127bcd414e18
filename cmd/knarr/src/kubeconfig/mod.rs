//! Kubeconfigs: the files that the server keeps ([`mod@file`]), and `knarr kubeconfig`, which makes one for the administrator
//! from the certificate authority of a server on this machine.

mod file;

pub(crate) use file::{Entries, KubeconfigError, KubeconfigFile};

use crate::server::paths::Paths;
use anyhow::{Context, bail};
use apiserver_server::pki::{Authority, Identity, Pki, ServingNames};
use clap::Args;
use jiff::Timestamp;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The administrator's user name.
pub(crate) const ADMIN: &str = "kubernetes-admin";
/// Address of a server with the default port.
const USUAL_SERVER: &str = "https://127.0.0.1:6443";

/// The flags.
#[derive(Debug, Args)]
pub(crate) struct KubeconfigArguments {
    /// The server's data directory
    #[arg(long, default_value = crate::server::DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Address of the server [default: the one that it had at its last start]
    #[arg(long)]
    server: Option<String>,
    /// Write it to a file instead of printing it; other entries of the file are kept
    #[arg(long)]
    write_kubeconfig: Option<PathBuf>,
}

/// The administrator's entries.
pub(crate) fn admin<'a>(server: &'a str, authority: &'a Authority) -> Entries<'a> {
    Entries {
        server,
        authority,
        user: ADMIN,
        group: Some("system:masters"),
    }
}

pub(crate) fn run(arguments: &KubeconfigArguments) -> anyhow::Result<()> {
    let paths = Paths::new(&arguments.data_dir);
    if !paths.pki().try_exists()? {
        bail!(
            "no server has run with --data-dir {}; start one with `knarr server`",
            arguments.data_dir.display()
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let now = runtime.block_on(async { machinery_runtime::Runtime::real().now() });
    let pki = Pki::open(&paths.pki(), &ServingNames::new(), now)
        .context("reading the certificate authority (are you root?)")?;
    // Without it the server has not been ready yet.
    let own = KubeconfigFile::read_of(&paths.admin(), &pki.cluster)
        .unwrap_or_else(|_| KubeconfigFile::empty(&paths.admin()));
    let server = arguments.server.as_deref().or(own.server());
    let entries = admin(server.unwrap_or(USUAL_SERVER), &pki.cluster);
    let identity = match own.identity(&entries, now) {
        Some(kept) => kept,
        None => made(&entries, now)?,
    };
    match &arguments.write_kubeconfig {
        Some(path) => KubeconfigFile::read_of(path, &pki.cluster)?.put(&entries, &identity),
        None => print(&entries, &identity),
    }
}

fn print(entries: &Entries<'_>, identity: &Identity) -> anyhow::Result<()> {
    let mut file = KubeconfigFile::empty(Path::new(""));
    file.set(entries, identity);
    write!(std::io::stdout(), "{}", file.render())?;
    Ok(())
}

/// New credentials of the user.
pub(crate) fn made(entries: &Entries<'_>, now: Timestamp) -> anyhow::Result<Identity> {
    Ok(entries.authority.client(entries.user, entries.group, now)?)
}
