//! `knarr storage restore`: a data directory begins from a backup, or from a snapshot of etcd.

use super::source;
use crate::server::paths::Paths;
use anyhow::Context;
use apiserver_storage::{RestoreOptions, restore};
use clap::Args;
use machinery_runtime::{Disk, RealDisk, Runtime};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// See the module.
#[derive(Args, Debug)]
pub(crate) struct RestoreArguments {
    /// A backup, or a snapshot of etcd
    file: PathBuf,
    /// Data directory to restore into; it must hold no objects
    #[arg(long)]
    data_dir: PathBuf,
    /// Number of revisions to skip, so that no revision is reused
    #[arg(long, default_value_t = 1_000_000_000)]
    bump_revision: u64,
    /// Accept a file without a hash, such as one copied from etcd's data directory
    #[arg(long)]
    skip_hash_check: bool,
    /// EncryptionConfiguration that decrypts values of a snapshot of etcd and re-encrypts them; values of a backup are copied
    #[arg(long)]
    encryption_provider_config: Option<PathBuf>,
}

pub(crate) fn run(arguments: &RestoreArguments, runtime: &Runtime) -> anyhow::Result<()> {
    let config = arguments.encryption_provider_config.as_deref();
    let encryption = config
        .map(|path| crate::server::load(path, runtime))
        .transpose()?;
    let file = source::File {
        path: &arguments.file,
        skip_hash_check: arguments.skip_hash_check,
        encryption: encryption.clone(),
        prefix: "",
    };
    let state = source::of_file(&file, runtime)?;
    let options = RestoreOptions {
        bump_revision: arguments.bump_revision,
        store: runtime.random_u64(),
        encryption,
    };
    let folder = &arguments.data_dir;
    node_sys::fs::make_private_folder(folder)
        .with_context(|| format!("creating --data-dir {}", folder.display()))?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
    let restored = restore(&disk, &Paths::new(folder).storage(), &state, options)?;
    let line = format!(
        "{}: {} objects of revision {}; the server goes on from revision {}",
        folder.display(),
        restored.objects,
        restored.backup_revision,
        restored.revision
    );
    writeln!(std::io::stdout(), "{line}").context("writing to standard output")
}
