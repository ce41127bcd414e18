//! Authorities and the key of service account tokens, shared by all servers of one etcd.
//!
//! The first server stores those of its data directory, or new ones; every other one takes them over. Etcd's credentials are
//! enough to join, as they are to read every Secret; where Secrets are encrypted these are too, and the key is needed beside.

use super::arguments::ServerArguments;
use super::paths::Paths;
use anyhow::Context;
use apiserver_server::pki::{PkiError, SharedKeys};
use apiserver_storage::{SharedValues, Storage};
use machinery_runtime::Runtime;

/// The name they are stored under.
const NAME: &str = "authorities";

/// Makes the data directory's the shared ones.
pub(super) async fn share(
    shared: &dyn SharedValues,
    arguments: &ServerArguments,
    paths: &Paths,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    let (folder, now) = (paths.pki(), runtime.now());
    let offered = SharedKeys::offer(&folder, now)?;
    let agreed = shared.agree(NAME, offered.encode()).await;
    let agreed = agreed.context("agreeing with the other servers on authorities and keys")?;
    let keys = SharedKeys::decode(&agreed).context("reading what the servers of --etcd-servers share")?;
    match keys.write(&folder) {
        Err(error @ PkiError::Another { .. }) => Err(anyhow::Error::new(error).context(format!(
            "--data-dir {} belongs to another cluster than --etcd-servers {}: use an empty one, or move its pki folder \
             away to join (what its authorities have signed is then no longer accepted)",
            arguments.data_dir.display(),
            arguments.etcd_servers.join(","),
        ))),
        written => Ok(written?),
    }
}

/// Encrypts what is shared with the key that writes Secrets now; whether that is done.
pub(super) async fn reseal(storage: &dyn Storage) -> bool {
    let Some(shared) = storage.shared() else {
        return true;
    };
    match shared.reseal(NAME).await {
        Ok(false) => true,
        Ok(true) => {
            tracing::info!("the authorities in etcd are encrypted with the key that writes secrets now");
            true
        }
        Err(error) => {
            tracing::warn!(%error, "re-encrypting the authorities in etcd failed");
            false
        }
    }
}
