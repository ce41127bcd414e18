//! Authorities and the key of service account tokens, shared by all servers of one etcd.
//!
//! The first server stores those of its data directory, or new ones; every other one takes them over. Who has etcd's
//! credentials may join: the same credentials read every Secret.

use super::arguments::ServerArguments;
use super::paths::Paths;
use anyhow::Context;
use apiserver_server::pki::{PkiError, SharedKeys};
use apiserver_storage::SharedValues;
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
