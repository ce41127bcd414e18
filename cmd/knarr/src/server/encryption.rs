//! The flags of encryption at rest, as upstream's, and the loop that follows the file.

use super::authorities;
use anyhow::{Context, bail};
use apiserver_storage::Storage;
use apiserver_storage::encryption::{Encryption, ResourceNames};
use clap::Args;
use machinery_runtime::Runtime;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// See the module.
#[derive(Debug, Args)]
pub(crate) struct EncryptionArguments {
    /// File with an apiserver.config.k8s.io/v1 EncryptionConfiguration for encryption at rest
    #[arg(long)]
    encryption_provider_config: Option<PathBuf>,
    /// Reload the encryption configuration when the file changes
    #[arg(long)]
    encryption_provider_config_automatic_reload: bool,
}

/// Interval between reads of the file.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

impl EncryptionArguments {
    /// Loads the configuration that the flags name.
    pub(crate) async fn open(&self, runtime: &Runtime) -> anyhow::Result<Option<Arc<Encryption>>> {
        let Some(path) = &self.encryption_provider_config else {
            if self.encryption_provider_config_automatic_reload {
                bail!(
                    "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
                );
            }
            return Ok(None);
        };
        let (path, own) = (path.clone(), runtime.clone());
        // It waits for plugins.
        let loaded = runtime.blocking(move || load(&path, &own)).await?;
        loaded.map(Some)
    }

    /// Follows the keys of plugins from now on.
    pub(crate) fn follow_keys(storage: &Arc<dyn Storage>, runtime: &Runtime) {
        let Some(encryption) = storage.encryption() else {
            return;
        };
        let storage = Arc::clone(storage);
        let begin = move || follow_keys(Arc::clone(&encryption), Arc::clone(&storage));
        runtime.keep("encryption-keys", begin).detach();
    }

    /// Follows the file from now on, where the flags request it.
    pub(crate) fn follow_file(&self, storage: &Arc<dyn Storage>, runtime: &Runtime) {
        let (Some(path), Some(encryption)) = (&self.encryption_provider_config, storage.encryption()) else {
            return;
        };
        if !self.encryption_provider_config_automatic_reload {
            return;
        }
        let followed = Followed {
            path: path.clone(),
            encryption,
            storage: Arc::clone(storage),
            runtime: runtime.clone(),
        };
        let begin = move || follow(followed.clone());
        runtime.keep("encryption-config", begin).detach();
    }
}

/// The encryption that a file configures.
pub(crate) fn load(path: &Path, runtime: &Runtime) -> anyhow::Result<Arc<Encryption>> {
    let named = || format!("--encryption-provider-config {}", path.display());
    let bytes = std::fs::read(path).with_context(named)?;
    let names = ResourceNames::new(apiserver_server::stored_resources());
    let encryption = Encryption::new(runtime, names, path, &bytes).with_context(named)?;
    Ok(Arc::new(encryption))
}

/// Has values looked at again whose key has come or gone, for ever.
async fn follow_keys(encryption: Arc<Encryption>, storage: Arc<dyn Storage>) {
    let mut changes = encryption.changes();
    if encryption.plugins_health().is_some() {
        // They may have answered while the storage was opened.
        changes.mark_changed();
    }
    while changes.changed().await.is_ok() {
        storage.keys_changed().await;
        authorities::reseal(&*storage).await;
    }
}

/// A file and what it configures.
#[derive(Clone)]
struct Followed {
    path: PathBuf,
    encryption: Arc<Encryption>,
    storage: Arc<dyn Storage>,
    runtime: Runtime,
}

/// Follows changes of the file, and of the keys that servers share, for ever. An invalid file leaves the configuration in use.
async fn follow(followed: Followed) {
    let mut is_resealed = true;
    loop {
        if !is_resealed {
            is_resealed = authorities::reseal(&*followed.storage).await;
        }
        followed.runtime.sleep(LOOK_INTERVAL).await;
        if let Some(shared) = followed.storage.shared()
            && let Err(error) = shared.note_keys().await
        {
            // A change of the file is refused then.
            tracing::debug!(%error, "recording the keys of shared data failed");
        }
        let own = followed.clone();
        // Whether values would be lost is looked up among all that are stored.
        match followed.runtime.blocking(move || own.reload()).await {
            Ok(Ok(false)) => {}
            Ok(Ok(true)) => {
                tracing::info!(path = %followed.path.display(), "loaded new encryption config content");
                followed.storage.encryption_replaced().await;
                is_resealed = false;
            }
            Ok(Err(error)) => tracing::error!(
                error = format!("{error:#}"), path = %followed.path.display(),
                "error processing encryption config file"
            ),
            Err(ended) => tracing::error!(%ended, "encryption config file not read"),
        }
    }
}

impl Followed {
    /// Reloads the file and reports whether another configuration is in use now. The same fault is an error once.
    fn reload(&self) -> anyhow::Result<bool> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(_) if !self.encryption.reload_failed() => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let lost = |next: &Encryption| self.storage.lost_by(next);
        Ok(self.encryption.reload_unless_lost(&self.path, &bytes, lost)?)
    }
}
