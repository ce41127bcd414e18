//! Sources of objects: a data directory, the server that runs in it, a backup, or a snapshot of etcd.

use crate::server::paths::Paths;
use anyhow::{Context, bail};
use apiserver_storage::encryption::Encryption;
use apiserver_storage::{BackupFile, OfflineState, SnapshotOptions, StorageError};
use futures::StreamExt;
use machinery_client::Client;
use machinery_runtime::{Disk, MemDisk, OpenMode, RealDisk, Runtime};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The path of the server's own backups.
const PATH: &str = "/knarr/storage/backup";
/// A backup of ours begins with this.
const BACKUP_MAGIC: &[u8] = b"KNARRBAK";

/// The state of a data directory, from the server that runs in it or from its files.
pub(super) async fn of_directory(
    data_dir: &Path,
    kubeconfig: Option<&Path>,
    runtime: &Runtime,
) -> anyhow::Result<OfflineState> {
    let paths = Paths::new(data_dir);
    if kubeconfig.is_none() {
        match OfflineState::open(&RealDisk::new(), &paths.storage()) {
            Err(StorageError::Locked(_)) => {}
            opened => return opened.with_context(|| advice(data_dir)),
        }
    }
    let (disk, path) = (MemDisk::new(), PathBuf::from("/backup"));
    download(&disk, &path, kubeconfig.unwrap_or(&paths.admin()), runtime).await?;
    Ok(OfflineState::of_backup(&disk, &path)?)
}

fn advice(data_dir: &Path) -> String {
    let dir = data_dir.display();
    format!("reading --data-dir {dir} (`knarr storage check --data-dir {dir}` has details)")
}

/// Brings a backup from a running server into a file; its length.
pub(super) async fn download(
    disk: &dyn Disk,
    path: &Path,
    kubeconfig: &Path,
    runtime: &Runtime,
) -> anyhow::Result<u64> {
    let requesting = || format!("requesting a backup from the server of {}", kubeconfig.display());
    let client = Client::from_kubeconfig(kubeconfig, runtime.clone())
        .await
        .with_context(requesting)?
        .with_user_agent("knarr-storage");
    let mut pieces = client.stream(PATH, &[]).await.with_context(requesting)?;
    let mut file = BackupFile::begin(disk, path)?;
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => file.write(&piece)?,
            Err(error) => {
                file.abandon();
                return Err(error).with_context(requesting);
            }
        }
    }
    Ok(file.finish()?)
}

/// A file that [`of_file`] reads.
pub(super) struct File<'a> {
    pub(super) path: &'a Path,
    pub(super) skip_hash_check: bool,
    /// Opens what is encrypted.
    pub(super) encryption: Option<Arc<Encryption>>,
    /// Of a snapshot, only objects whose key begins so.
    pub(super) prefix: &'a str,
}

/// The state of a backup or of a snapshot of etcd, whichever the file is.
pub(super) fn of_file(file: &File<'_>, runtime: &Runtime) -> anyhow::Result<OfflineState> {
    let disk = RealDisk::new();
    let reading = || format!("reading {}", file.path.display());
    let mut magic = [0; BACKUP_MAGIC.len()];
    let opened = disk.open(file.path, OpenMode::Read).with_context(reading)?;
    let read = opened.read_at(0, &mut magic).with_context(reading)?;
    if read == 0 {
        bail!("{} is empty", file.path.display());
    }
    if magic == BACKUP_MAGIC {
        return Ok(OfflineState::of_backup(&disk, file.path)?);
    }
    let options = SnapshotOptions {
        now: now(runtime),
        skip_hash_check: file.skip_hash_check,
        encryption: file.encryption.clone(),
        prefix: file.prefix.to_owned(),
    };
    let codec = apiserver_server::built_in_values();
    let content = OfflineState::of_etcd_snapshot(&disk, file.path, &*codec, &options)
        .with_context(|| format!("{} is no backup; as a snapshot of etcd", file.path.display()))?;
    for key in &content.left_out {
        tracing::warn!(key, "not a Kubernetes object, left out");
    }
    Ok(content.state)
}

/// Opens what is encrypted and whose key begins so, where keys were given; what is left sealed is not plain text.
pub(super) fn open_sealed(
    state: &mut OfflineState,
    prefix: &str,
    config: Option<&Path>,
    runtime: &Runtime,
) -> anyhow::Result<Option<Arc<Encryption>>> {
    let Some(config) = config else {
        return Ok(None);
    };
    let encryption = crate::server::load(config, runtime)?;
    state.open_sealed_below(prefix, &encryption)?;
    Ok(Some(encryption))
}

/// Seconds since 1970.
pub(super) fn now(runtime: &Runtime) -> u64 {
    u64::try_from(runtime.now().as_second()).unwrap_or(0)
}
