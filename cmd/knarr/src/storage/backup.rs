//! `knarr storage backup`: one revision of all objects in one file.

use super::source;
use crate::server::paths::Paths;
use anyhow::{Context, bail};
use apiserver_storage::{OfflineState, Salvaged, StorageError, write_backup};
use clap::{Args, ValueEnum};
use machinery_runtime::{RealDisk, Runtime};
use std::io::Write;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Args, Debug)]
pub(crate) struct BackupArguments {
    /// File to write; it must not exist
    file: PathBuf,
    /// The server's data directory
    #[arg(long, default_value = crate::server::DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Read from the server of this kubeconfig instead of a data directory
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Format of the file
    #[arg(long, value_enum, default_value_t = Format::Knarr)]
    format: Format,
    /// EncryptionConfiguration that decrypts and re-encrypts objects, for --format etcd
    #[arg(long)]
    encryption_provider_config: Option<PathBuf>,
    /// Save what can be read of a damaged data directory, up to the first damage
    #[arg(long, conflicts_with = "kubeconfig")]
    up_to_damage: bool,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// Backup for `knarr storage restore`
    Knarr,
    /// A snapshot as `etcdctl snapshot save` makes it
    Etcd,
}

pub(crate) async fn run(arguments: &BackupArguments, runtime: &Runtime) -> anyhow::Result<()> {
    let (disk, file) = (RealDisk::new(), arguments.file.as_path());
    if arguments.up_to_damage {
        return save_damaged(&arguments.data_dir, file);
    }
    if arguments.format == Format::Etcd {
        let mut state =
            source::of_directory(&arguments.data_dir, arguments.kubeconfig.as_deref(), runtime).await?;
        let config = arguments.encryption_provider_config.as_deref();
        let encryption = source::open_sealed(&mut state, "", config, runtime)?;
        let codec = apiserver_server::built_in_values();
        let values = (&*codec, encryption.as_deref());
        let length = state
            .write_etcd_snapshot(&disk, file, values, source::now(runtime))
            .with_context(|| keys_are_missing(config))?;
        return print_summary(file, &state, length);
    }
    let paths = Paths::new(&arguments.data_dir);
    let opened = match &arguments.kubeconfig {
        Some(_) => None,
        None => match OfflineState::open(&disk, &paths.storage()) {
            Err(StorageError::Locked(_)) => None,
            opened => Some(opened.with_context(|| advice(&arguments.data_dir))?),
        },
    };
    if let Some(state) = opened {
        let length = write_state(&state, file)?;
        return print_summary(file, &state, length);
    }
    let kubeconfig = arguments.kubeconfig.clone().unwrap_or_else(|| paths.admin());
    let length = source::download(&disk, file, &kubeconfig, runtime).await?;
    print_summary(file, &OfflineState::of_backup(&disk, file)?, length)
}

fn keys_are_missing(config: Option<&Path>) -> &'static str {
    match config {
        Some(_) => "writing a snapshot",
        None => "writing a snapshot (--encryption-provider-config opens what is encrypted)",
    }
}

fn advice(data_dir: &Path) -> String {
    let dir = data_dir.display();
    if !Paths::new(data_dir).storage().is_dir() {
        return format!(
            "--data-dir {dir} has no objects: a server on etcd has them there (`etcdctl snapshot save` saves them), or it is \
             no server's directory"
        );
    }
    format!(
        "reading --data-dir {dir} (`knarr storage check --data-dir {dir}` has details, --up-to-damage saves what is whole)"
    )
}

fn write_state(state: &OfflineState, file: &Path) -> anyhow::Result<u64> {
    let mut backup = state.backup();
    Ok(write_backup(&RealDisk::new(), file, || Ok(backup.next_piece()))?)
}

fn save_damaged(data_dir: &Path, file: &Path) -> anyhow::Result<()> {
    let dir = Paths::new(data_dir).storage();
    let Salvaged { state, ended, lost } = OfflineState::open_damaged(&RealDisk::new(), &dir)?;
    for error in &lost {
        tracing::warn!(%error, "objects of the checkpoint are left out here");
    }
    if let Some(error) = ended {
        tracing::warn!(%error, "changes after the damage are left out");
    }
    if state.entries().next().is_none() {
        bail!("no object before the damage: nothing was written, restore a backup");
    }
    let length = write_state(&state, file)?;
    print_summary(file, &state, length)
}

fn print_summary(file: &Path, state: &OfflineState, length: u64) -> anyhow::Result<()> {
    let (objects, revision) = (state.entries().count(), state.revision());
    let line = format!(
        "{}: {objects} objects at revision {revision}, {length} bytes",
        file.display()
    );
    writeln!(std::io::stdout(), "{line}").context("writing to standard output")
}
