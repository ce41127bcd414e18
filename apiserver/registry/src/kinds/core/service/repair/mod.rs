//! Repairs what services hold: their addresses and their node ports.
//!
//! Both land with their service in one group of writes, so that nothing is lost on the way. Faults come from changes made
//! by hand, by another server on the same etcd, or by a backup that was put back. [`verdict`] says what is wrong with an
//! address and what would be right, in upstream's words; `addresses` looks at every change of a service or an address,
//! and at all of them every [`ROUND_EVERY`]; `ports` rebuilds the bitmap in the same rounds. A fault that cannot be repaired,
//! such as one address of two services, is recorded as an event of the service.
//!
//! Never: changes a service.

mod addresses;
mod ports;
mod verdict;

use crate::engine::admission::{Door, SystemWriter};
use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use crate::engine::registry::Registry;
use crate::engine::store::Store;
use addresses::AddressRepair;
use machinery_meta::UserInfo;
use ports::PortRepair;
use std::sync::Arc;
use std::time::Duration;

/// Interval between full checks, as upstream has it.
const ROUND_EVERY: Duration = Duration::from_secs(180);
/// Delay after an error.
const RETRY: Duration = Duration::from_secs(1);

/// Repairs once, then goes on in tasks of its own.
pub async fn start(registry: &Registry) -> Result<(), RegistryError> {
    let addresses = AddressRepair::new(registry)?;
    let mut ports = PortRepair::new(registry)?;
    let mut rounds = addresses.rounds();
    addresses.round(&mut rounds).await?;
    ports.round().await?;
    let runtime = registry.runtime();
    let (addresses, mut rounds) = (Arc::new(addresses), Some(rounds));
    let repair_addresses = move || {
        let rounds = rounds.take().unwrap_or_else(|| addresses.rounds());
        Arc::clone(&addresses).run(rounds)
    };
    runtime.keep("service address repair", repair_addresses).detach();
    let (registry, mut first) = (registry.clone(), Some(ports));
    let repair_ports = move || {
        // One that panicked has forgotten how long ports have had no service.
        let ports = first.take().map_or_else(|| PortRepair::new(&registry), Ok);
        async move {
            ports.map_err(|error| error.to_string())?.run().await;
            Ok(())
        }
    };
    runtime.supervise("node port repair", repair_ports).detach();
    Ok(())
}

/// The writer of all of it.
const DOOR: Door<'static> = Door::system(SystemWriter::AllocatorRepair);

fn context(registry: &Registry) -> RequestContext {
    let user = UserInfo::named("system:apiserver", [UserInfo::MASTERS]);
    RequestContext::internal(user, registry.runtime().clone())
}

fn core_store(registry: &Registry, plural: &str) -> Result<Store, RegistryError> {
    registry
        .store("", "v1", plural)
        .ok_or_else(|| RegistryError::Internal(format!("{plural} are not served")))
}
