//! The loop over node ports: each round the bitmap is recreated from the services there are.

use super::super::port_range::PortRange;
use super::super::ports::number;
use super::{DOOR, ROUND_EVERY, context, core_store};
use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use crate::engine::event_recorder::EventRecorder;
use crate::engine::options::ListOptions;
use crate::engine::registry::Registry;
use crate::engine::scope::Scope;
use crate::engine::store::{Store, UPDATE_ATTEMPTS};
use apiserver_storage::{ReadAt, StorageError};
use machinery_schema::{Ref, Tree};
use std::collections::{BTreeMap, HashSet};

/// Upstream's name for the loop.
const COMPONENT: &str = "portallocator-repair-controller";
/// Rounds in which a port has no service before it is given back: another server may just be about to write it.
const ROUNDS_BEFORE_CLEANUP: u32 = 3;

/// Ports without a service, and for how many more rounds they stay taken.
type Leaks = BTreeMap<i64, u32>;

/// See the module.
pub(super) struct PortRepair {
    registry: Registry,
    ctx: RequestContext,
    services: Store,
    recorder: EventRecorder,
    leaks: Leaks,
}

impl PortRepair {
    pub(super) fn new(registry: &Registry) -> Result<Self, RegistryError> {
        Ok(Self {
            registry: registry.clone(),
            ctx: context(registry),
            services: core_store(registry, "services")?,
            recorder: EventRecorder::new(registry, DOOR, COMPONENT, "")?,
            leaks: Leaks::new(),
        })
    }

    pub(super) async fn run(mut self) {
        loop {
            self.ctx.runtime.sleep(ROUND_EVERY).await;
            if let Err(error) = self.round().await {
                tracing::warn!(%error, "repairing node ports failed");
            }
        }
    }

    /// Looks at all services once, again when a port is taken meanwhile.
    pub(super) async fn round(&mut self) -> Result<(), RegistryError> {
        for _ in 0..UPDATE_ATTEMPTS {
            if self.attempt().await? {
                return Ok(());
            }
        }
        // Ports come and go so quickly that the next round has to do.
        Ok(())
    }

    async fn attempt(&mut self) -> Result<bool, RegistryError> {
        let page = self
            .services
            .list(&Scope::Cluster, &ListOptions::default())
            .await?;
        let decoded = page.entries.iter().map(|entry| self.services.decode(entry));
        let services = decoded.collect::<Result<Vec<Tree>, _>>()?;
        // The bitmap as it was with these services, so that no service lies between the two.
        let stored = PortRange::read(&self.registry, ReadAt::Exact(page.revision)).await?;
        let rebuilt = Rebuilt::new(&stored, &services, &self.leaks);
        let unchanged = rebuilt.range.is_as_read();
        if !unchanged {
            match self.registry.storage().commit(vec![rebuilt.range.write()?]).await {
                Ok(_) => {}
                Err(StorageError::Conflict { .. }) => return Ok(false),
                Err(error) => return Err(self.services.storage_error(&error)),
            }
        }
        self.leaks = rebuilt.leaks;
        for (service, reason, message) in rebuilt.found {
            self.recorder.warn(&services[service], reason, &message).await;
        }
        Ok(true)
    }
}

/// The bitmap as the services would have it.
struct Rebuilt {
    range: PortRange,
    leaks: Leaks,
    /// Index of the service, with reason and message of the event.
    found: Vec<(usize, &'static str, String)>,
}

impl Rebuilt {
    fn new(stored: &PortRange, services: &[Tree], leaks: &Leaks) -> Self {
        let mut rebuilt = Self {
            range: stored.cleared(),
            leaks: Leaks::new(),
            found: Vec::new(),
        };
        for (at, service) in services.iter().enumerate() {
            for port in ports_of(service.root()) {
                rebuilt.take(at, port, stored);
            }
        }
        rebuilt.keep_leaks(stored, leaks);
        rebuilt
    }

    fn take(&mut self, service: usize, port: i64, stored: &PortRange) {
        let ports = stored.ports();
        let (reason, message) = if !ports.contains(port) {
            let message =
                format!("Port {port} is not within the port range {ports}; please recreate service");
            ("PortOutOfRange", message)
        } else if self.range.is_set(port) {
            let message = format!("Port {port} was assigned to multiple services; please recreate service");
            ("PortAlreadyAllocated", message)
        } else {
            self.range.set(port, true);
            if stored.is_set(port) {
                return;
            }
            (
                "PortNotAllocated",
                format!("Port {port} is not allocated; repairing"),
            )
        };
        self.found.push((service, reason, message));
    }

    /// A port of no service stays taken for some rounds.
    fn keep_leaks(&mut self, stored: &PortRange, leaks: &Leaks) {
        let leaked: Vec<i64> = stored.taken().filter(|port| !self.range.is_set(*port)).collect();
        for port in leaked {
            match leaks.get(&port).copied().unwrap_or(ROUNDS_BEFORE_CLEANUP - 1) {
                0 => tracing::warn!(port, "a node port appears to have leaked: cleaning up"),
                rounds => {
                    self.leaks.insert(port, rounds - 1);
                    self.range.set(port, true);
                }
            }
        }
    }
}

/// The node ports of a service. One number under two protocols counts once, twice under the same is reported as taken.
fn ports_of(service: Ref<'_>) -> Vec<i64> {
    let mut ports = Vec::new();
    let (mut numbers, mut seen) = (HashSet::new(), HashSet::new());
    let Some(spec) = service.get("spec") else {
        return ports;
    };
    let listed = spec
        .list("ports")
        .map(|port| (number(port, "nodePort"), port.str("protocol")));
    // Kubelets answer health checks over TCP.
    let health = (number(spec, "healthCheckNodePort"), "TCP");
    for (port, protocol) in listed.chain([health]).filter(|(port, _)| *port != 0) {
        let (is_new, repeats) = (numbers.insert(port), !seen.insert((port, protocol)));
        if is_new || repeats {
            ports.push(port);
        }
    }
    ports
}
