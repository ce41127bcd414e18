//! The cgroup driver: the runtime says which it has, where it can (upstream's `KubeletCgroupDriverFromCRI`), and the
//! configuration otherwise.

use std::sync::Arc;
use std::time::Duration;

use machinery_runtime::Runtime;
use node_cri::{CriClient, CriError, v1};
use node_sys::cgroup::{CgroupDriver, Cgroups, SystemdCgroups};
use node_sys::systemd::{self, SystemdManager};

use crate::config::KubeletConfig;
use crate::metrics::groups::TimedCgroups;

/// Requests to a runtime that is just starting, and the pause between them.
const TRIES: u32 = 3;
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// The driver is not known, or cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum CgroupDriverError {
    /// The container runtime does not answer.
    #[error("the container runtime does not answer with its cgroup driver")]
    Runtime(#[source] CriError),
    /// The machine does not have it.
    #[error("{0}")]
    Refused(String),
}

/// Refusal of the systemd driver on a machine without systemd.
pub fn refusal(driver: CgroupDriver) -> Option<String> {
    let is_missing = driver == CgroupDriver::Systemd && !systemd::is_running();
    is_missing.then(|| {
        format!(
            "cgroup driver \"systemd\": systemd has not started this machine ({} is absent); use --cgroup-driver cgroupfs, and \
             the same driver in a container runtime of your own",
            systemd::BOOTED
        )
    })
}

/// The configuration with the driver of the runtime, where it says one.
pub(crate) async fn of_runtime(
    runtime: &Runtime,
    cri: &CriClient,
    config: Arc<KubeletConfig>,
) -> Result<Arc<KubeletConfig>, CgroupDriverError> {
    let said = said(runtime, cri).await.map_err(CgroupDriverError::Runtime)?;
    let Some(driver) = said.filter(|driver| *driver != config.cgroup_driver) else {
        return Ok(config);
    };
    tracing::info!(%driver, configured = %config.cgroup_driver, "the cgroup driver is the container runtime's");
    let config = Arc::unwrap_or_clone(config);
    Ok(Arc::new(KubeletConfig {
        cgroup_driver: driver,
        ..config
    }))
}

async fn said(runtime: &Runtime, cri: &CriClient) -> Result<Option<CgroupDriver>, CriError> {
    let mut left = TRIES;
    loop {
        left -= 1;
        match cri.runtime_config(v1::RuntimeConfigRequest {}).await {
            Ok(answer) => return Ok(answer.linux.and_then(|linux| driver_of(linux.cgroup_driver))),
            Err(error) if error.is_unknown_call() => return Ok(None),
            Err(error) if left == 0 => return Err(error),
            Err(_) => runtime.sleep(TRY_AGAIN_AFTER).await,
        }
    }
}

fn driver_of(number: i32) -> Option<CgroupDriver> {
    match v1::CgroupDriver::try_from(number).ok()? {
        v1::CgroupDriver::Systemd => Some(CgroupDriver::Systemd),
        v1::CgroupDriver::Cgroupfs => Some(CgroupDriver::Cgroupfs),
    }
}

/// The groups as the driver makes them, and timed.
pub(crate) fn groups(
    runtime: &Runtime,
    config: &KubeletConfig,
    files: Arc<dyn Cgroups>,
) -> Result<Arc<dyn Cgroups>, CgroupDriverError> {
    if let Some(problem) = refusal(config.cgroup_driver) {
        return Err(CgroupDriverError::Refused(problem));
    }
    let groups: Arc<dyn Cgroups> = match config.cgroup_driver {
        CgroupDriver::Cgroupfs => files,
        CgroupDriver::Systemd => {
            let bus_address = config.shutdown.bus_address.clone();
            let manager = SystemdManager::new(runtime.clone(), bus_address);
            Arc::new(SystemdCgroups::new(files, Arc::new(manager)))
        }
    };
    Ok(Arc::new(TimedCgroups::new(runtime, groups)))
}
