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
    /// An EncryptionConfiguration of apiserver.config.k8s.io/v1: how objects are encrypted where they are stored
    #[arg(long)]
    encryption_provider_config: Option<PathBuf>,
    /// Follow changes of that file while the server runs
    #[arg(long)]
    encryption_provider_config_automatic_reload: bool,
}

/// How often the file is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

impl EncryptionArguments {
    /// What the flags ask for.
    pub(crate) fn open(&self, runtime: &Runtime) -> anyhow::Result<Option<Arc<Encryption>>> {
        let Some(path) = &self.encryption_provider_config else {
            if self.encryption_provider_config_automatic_reload {
                bail!(
                    "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
                );
            }
            return Ok(None);
        };
        Ok(Some(load(path, runtime)?))
    }

    /// Follows the file from now on, where the flags ask for it.
    pub(crate) fn keep_up(&self, storage: &Arc<dyn Storage>, runtime: &Runtime) {
        let (Some(path), Some(encryption)) = (&self.encryption_provider_config, storage.encryption()) else {
            return;
        };
        if self.encryption_provider_config_automatic_reload {
            let (own, storage, path) = (runtime.clone(), Arc::clone(storage), path.clone());
            let begin = move || {
                follow(
                    own.clone(),
                    Arc::clone(&encryption),
                    Arc::clone(&storage),
                    path.clone(),
                )
            };
            runtime.keep("encryption-config", begin).detach();
        }
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

/// Takes the file's changes up, for ever, and what servers share with it. A file that cannot be used leaves what is in use.
async fn follow(runtime: Runtime, encryption: Arc<Encryption>, storage: Arc<dyn Storage>, path: PathBuf) {
    let mut is_resealed = true;
    loop {
        if !is_resealed {
            is_resealed = authorities::reseal(&*storage).await;
        }
        runtime.sleep(LOOK_INTERVAL).await;
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                encryption.reload_failed();
                tracing::error!(%error, path = %path.display(), "error processing encryption config file");
                continue;
            }
        };
        match encryption.reload(&path, &bytes) {
            Ok(false) => {}
            Ok(true) => {
                tracing::info!(path = %path.display(), "loaded new encryption config content");
                is_resealed = false;
            }
            Err(error) => {
                tracing::error!(%error, path = %path.display(), "error processing encryption config file");
            }
        }
    }
}
