//! The agent's serving certificate, which grows old while the agent runs.
//!
//! The server writes a new one in time (`server/identities.rs`), or the agent requests one of the cluster (`join/`). The agent
//! follows the files, as it follows its kubeconfigs, and goes on.

use apiserver_server::pki::Identity;
use jiff::Timestamp;
use machinery_runtime::Runtime;
use std::path::Path;
use std::time::Duration;

/// Interval of reads of a certificate file whose renewal is due, and of reads of the clock.
const LOOK_INTERVAL: Duration = Duration::from_secs(3_600);

/// Files of the certificate that the server gave to the agent.
pub(crate) const CERTIFICATE: &str = "kubelet.crt";
pub(crate) const KEY: &str = "kubelet.key";

/// Resolves when that time has come, by a clock that may be set meanwhile.
pub(crate) async fn due(at: Timestamp, runtime: &Runtime) {
    loop {
        let left = at.as_second() - runtime.now().as_second();
        match u64::try_from(left).map(Duration::from_secs) {
            Err(_) | Ok(Duration::ZERO) => return,
            Ok(left) => runtime.sleep(left.min(LOOK_INTERVAL)).await,
        }
    }
}

/// The certificate in the folder with its key.
pub(crate) fn read(folder: &Path) -> Option<Identity> {
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    Identity::from_pem(text(CERTIFICATE)?, text(KEY)?)
}
