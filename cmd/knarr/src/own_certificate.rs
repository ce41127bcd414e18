//! The agent's certificate, which grows old while the agent runs.
//!
//! The server writes a new one in time (`server/identities.rs`). The agent then ends and is started again: pods,
//! containerd and the rules in the kernel outlive it, and its supervisor has to restart it after a crash as well.

use apiserver_server::pki::Identity;
use jiff::Timestamp;
use machinery_runtime::Runtime;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two looks at the file of one that is due, and between two at the clock.
const LOOK_INTERVAL: Duration = Duration::from_secs(3_600);

/// Files of the certificate that the server gave to the agent.
pub(crate) const CERTIFICATE: &str = "kubelet.crt";
pub(crate) const KEY: &str = "kubelet.key";

/// Resolves when the certificate that lies in `folder` now is two thirds through its life and a later one lies there;
/// never where the agent was given none.
pub(crate) fn replaced(folder: PathBuf, runtime: Runtime) -> impl Future<Output = ()> {
    let own = read(&folder);
    async move {
        let Some(own) = own else {
            return std::future::pending().await;
        };
        loop {
            due(own.renew_at(), &runtime).await;
            if read(&folder).is_some_and(|found| found.not_after() > own.not_after()) {
                return;
            }
            runtime.sleep(LOOK_INTERVAL).await;
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver_server::pki::{Pki, ServingNames, write_private};
    use machinery_runtime::Simulation;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    const DAY: Duration = Duration::from_secs(24 * 3_600);

    fn give(folder: &Path, runtime: &Runtime) {
        let pki = Pki::open(&folder.join("pki"), &ServingNames::new(), runtime.now()).unwrap();
        let identity = pki
            .cluster
            .node("n", &ServingNames::new(), runtime.now())
            .unwrap();
        write_private(&folder.join(CERTIFICATE), identity.certificate_pem()).unwrap();
        write_private(&folder.join(KEY), identity.key_pem()).unwrap();
    }

    #[test]
    fn agent_exits_for_a_newer_certificate_when_its_own_is_old() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        simulation.run(async move {
            give(&path, &runtime);
            let ended = Arc::new(AtomicBool::new(false));
            let (notes, waits) = (Arc::clone(&ended), replaced(path.clone(), runtime.clone()));
            let waiting = runtime.spawn("agent", async move {
                waits.await;
                notes.store(true, Ordering::Relaxed);
            });
            runtime.sleep(DAY * 30).await;
            give(&path, &runtime);
            runtime.sleep(DAY * 30).await;
            assert!(!ended.load(Ordering::Relaxed), "it is young");
            runtime.sleep(DAY * 200).await;
            assert!(
                ended.load(Ordering::Relaxed),
                "it is old, and a newer one is there"
            );
            drop(waiting);
        });
    }
}
