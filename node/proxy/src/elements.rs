//! The elements of the table's maps and sets, the services that want them, and what to change to get them.

use crate::choice::Target;
use ipnet::Ipv4Net;
use machinery_views::Protocol;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Address and port to which clients connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Frontend {
    /// An address of a service.
    Address(Ipv4Addr, Protocol, u16),
    /// A port of every address of the node.
    NodePort(Protocol, u16),
}

impl Frontend {
    pub fn protocol(self) -> Protocol {
        match self {
            Self::Address(_, protocol, _) | Self::NodePort(protocol, _) => protocol,
        }
    }
}

/// Set of endpoints: those for all traffic, or those of this node for traffic from outside, where the service's policy
/// makes the difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    Cluster,
    Local,
}

/// The name of one element. Its variant is its map or set; where a set depends on the value there is one for every
/// value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A frontend with endpoints.
    Service(Frontend, Scope),
    /// One slot of it.
    Endpoint(Frontend, Scope, u16),
    /// Traffic from outside the pod network to here gets this node's address.
    Masquerade(Frontend),
    /// Traffic from outside stays on this node.
    Local(Frontend),
    /// New connections to here are refused or dropped.
    Refused(Frontend),
    /// Summary of all frontends; other traffic is passed at once.
    Summary(Summary),
    /// Clients of this frontend stay with their endpoint.
    Affine(Frontend),
    /// An endpoint that they may stay with.
    Sticky(Frontend, Target),
    /// Only some sources may come here.
    Restricted(Ipv4Addr, Protocol, u16),
    /// One range of them.
    Allowed(Ipv4Addr, Protocol, u16, Ipv4Net),
    /// An endpoint that might reach itself through a service.
    Hairpin(Ipv4Addr),
    ClusterIp(Ipv4Addr),
}

/// Frontends without what distinguishes services of one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Summary {
    Address(Ipv4Addr),
    NodePort(Protocol, u16),
}

/// Data of a map's element, or the set of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// Sets have keys only.
    Nothing,
    /// Spread over so many slots, at random.
    Spread {
        slots: u16,
    },
    Target(Ipv4Addr, u16),
    /// For so many seconds.
    Seconds(u32),
    Reject,
    Drop,
}

/// Elements one service wants.
pub type Wanted = BTreeMap<Key, Value>;

/// Changes of the kernel's elements.
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
    wanted: BTreeMap<Key, Owners>,
    /// Keys of each service, in order.
    by_service: BTreeMap<Arc<str>, Box<[Key]>>,
}

/// The services that want an element, with its value for each. Nearly every element is of one service, and takes no
/// allocation of its own.
#[derive(Debug)]
enum Owners {
    One(Arc<str>, Value),
    #[expect(
        clippy::box_collection,
        reason = "few elements have several owners, and all are as large as this one"
    )]
    Several(Box<BTreeMap<Arc<str>, Value>>),
}

impl Owners {
    /// Value for the service first in order.
    fn first(&self) -> Option<Value> {
        match self {
            Self::One(_, value) => Some(*value),
            Self::Several(all) => all.values().next().copied(),
        }
    }

    fn of(&self, service: &str) -> Option<Value> {
        match self {
            Self::One(own, value) => (**own == *service).then_some(*value),
            Self::Several(all) => all.get(service).copied(),
        }
    }

    fn insert(&mut self, service: &Arc<str>, value: Value) {
        match self {
            Self::One(own, present) if own == service => *present = value,
            Self::One(own, present) => {
                let both = [(Arc::clone(own), *present), (Arc::clone(service), value)];
                *self = Self::Several(Box::new(both.into()));
            }
            Self::Several(all) => {
                all.insert(Arc::clone(service), value);
            }
        }
    }

    /// Reports whether no service is left.
    fn remove(&mut self, service: &str) -> bool {
        match self {
            Self::One(own, _) => **own == *service,
            Self::Several(all) => {
                all.remove(service);
                if all.len() == 1
                    && let Some((own, value)) = all.pop_first()
                {
                    *self = Self::One(own, value);
                }
                false
            }
        }
    }
}

impl Elements {
    /// The service wants these from now on; adds to `delta` what that changes.
    pub fn set(&mut self, service: &Arc<str>, wanted: &Wanted, delta: &mut Delta) {
        let before = self.by_service.remove(service).unwrap_or_default();
        for key in before.iter().filter(|key| !wanted.contains_key(key)) {
            let Some(owners) = self.wanted.get_mut(key) else {
                continue;
            };
            let had = owners.first();
            let has = if owners.remove(service) {
                self.wanted.remove(key);
                None
            } else {
                owners.first()
            };
            note(*key, had, has, delta);
        }
        for (key, value) in wanted {
            match self.wanted.get_mut(key) {
                Some(owners) => {
                    let had = owners.first();
                    owners.insert(service, *value);
                    note(*key, had, owners.first(), delta);
                }
                None => {
                    self.wanted.insert(*key, Owners::One(Arc::clone(service), *value));
                    note(*key, None, Some(*value), delta);
                }
            }
        }
        if !wanted.is_empty() {
            self.by_service
                .insert(Arc::clone(service), wanted.keys().copied().collect());
        }
    }

    /// Everything there should be.
    pub fn all(&self) -> impl Iterator<Item = (Key, Value)> {
        self.wanted
            .iter()
            .filter_map(|(key, owners)| Some((*key, owners.first()?)))
    }

    /// Returns the elements of a service.
    pub fn of(&self, service: &str) -> Wanted {
        let keys = self.by_service.get(service).into_iter().flatten();
        keys.filter_map(|key| Some((*key, self.wanted.get(key)?.of(service)?)))
            .collect()
    }

    /// Returns the planned value of a key.
    pub fn get(&self, key: &Key) -> Option<Value> {
        self.wanted.get(key)?.first()
    }

    pub fn len(&self) -> usize {
        self.wanted.len()
    }

    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }
}

/// Adds to `delta` that the planned value of a key was `before` and is `after`.
fn note(key: Key, before: Option<Value>, after: Option<Value>, delta: &mut Delta) {
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
