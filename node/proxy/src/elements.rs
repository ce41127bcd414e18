//! The elements of the table's maps and sets, who wants them, and what to change to get them.

use crate::model::Protocol;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The name of one element. Its variant is its map or set; services, node ports and what is refused have a set for
/// every value they can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// An address of a service and its port.
    Service(Ipv4Addr, Protocol, u16),
    /// One slot of it.
    Endpoint(Ipv4Addr, Protocol, u16, u16),
    NodePort(Protocol, u16),
    NodePortEndpoint(Protocol, u16, u16),
    /// Traffic from outside the pod network to here gets this node's address.
    Masquerade(Ipv4Addr, Protocol, u16),
    NodePortMasquerade(Protocol, u16),
    /// New connections to here are refused or dropped.
    Refused(Ipv4Addr, Protocol, u16),
    NodePortRefused(Protocol, u16),
    /// An address that some service has; what goes elsewhere is let through at once.
    Frontend(Ipv4Addr),
    NodePortFrontend(Protocol, u16),
    /// An endpoint that might reach itself through a service.
    Hairpin(Ipv4Addr),
    ClusterIp(Ipv4Addr),
}

/// What an element of a map says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// Sets have keys only.
    Nothing,
    /// Spread over so many slots, at random or by the client's address.
    Spread {
        slots: u16,
        by_client: bool,
    },
    Target(Ipv4Addr, u16),
    Reject,
    Drop,
}

/// Elements one service wants.
pub type Wanted = BTreeMap<Key, Value>;

/// What to do to the kernel's elements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delta {
    pub delete: BTreeMap<Key, Value>,
    pub add: BTreeMap<Key, Value>,
}

impl Delta {
    pub fn is_empty(&self) -> bool {
        self.delete.is_empty() && self.add.is_empty()
    }
}

/// Every element that some service wants. Where several want the same (two services with one node port; two
/// services with one endpoint), the service first in order has its way, and the next when that one is gone.
#[derive(Debug, Default)]
pub struct Elements {
    wanted: BTreeMap<Key, BTreeMap<Arc<str>, Value>>,
    by_service: BTreeMap<Arc<str>, BTreeSet<Key>>,
}

impl Elements {
    /// The service wants these from now on; adds to `delta` what that changes.
    pub fn set(&mut self, service: &Arc<str>, wanted: &Wanted, delta: &mut Delta) {
        let before = self.by_service.remove(service).unwrap_or_default();
        for key in before.iter().filter(|key| !wanted.contains_key(key)) {
            self.change(*key, delta, |owners| {
                owners.remove(service);
            });
        }
        for (key, value) in wanted {
            self.change(*key, delta, |owners| {
                owners.insert(Arc::clone(service), *value);
            });
        }
        if !wanted.is_empty() {
            self.by_service
                .insert(Arc::clone(service), wanted.keys().copied().collect());
        }
    }

    fn change(&mut self, key: Key, delta: &mut Delta, act: impl FnOnce(&mut BTreeMap<Arc<str>, Value>)) {
        let owners = self.wanted.entry(key).or_default();
        let before = owners.values().next().copied();
        act(owners);
        let after = owners.values().next().copied();
        if after.is_none() {
            self.wanted.remove(&key);
        }
        if before == after {
            return;
        }
        // What this delta adds is not in the kernel yet, and what it deletes is.
        let in_kernel = match delta.add.remove(&key) {
            Some(_) => delta.delete.get(&key).copied(),
            None => delta.delete.get(&key).copied().or(before),
        };
        if in_kernel == after {
            delta.delete.remove(&key);
            return;
        }
        if let Some(value) = in_kernel {
            delta.delete.insert(key, value);
        }
        if let Some(value) = after {
            delta.add.insert(key, value);
        }
    }

    /// Everything there should be.
    pub fn all(&self) -> impl Iterator<Item = (Key, Value)> {
        self.wanted
            .iter()
            .filter_map(|(key, owners)| Some((*key, *owners.values().next()?)))
    }

    /// What the service wants now.
    pub fn of(&self, service: &str) -> Wanted {
        let keys = self.by_service.get(service).into_iter().flatten();
        keys.filter_map(|key| Some((*key, *self.wanted.get(key)?.get(service)?)))
            .collect()
    }

    pub fn len(&self) -> usize {
        self.wanted.len()
    }

    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }
}
