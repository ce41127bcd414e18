//! Bounds of the stored bytes: of the whole store, and of each namespace.
//!
//! Memory is the store, so an object costs what it takes there: [`Entry::footprint`](crate::Entry). The [`Ledger`] counts
//! it by namespace. The log's writer asks it for each group under the lock that orders writes, so what is queued counts as
//! well, and what the disk refuses is taken back; on etcd the mirror counts what it holds, and writes that are under way
//! have a reservation until it holds them.
//!
//! Deletions pass, as do puts that do not grow their object, and the put that marks it as deleted. Objects with a time to
//! live (events) have an account of their own, so that a full namespace still says why, and a flood of events stops no
//! other write.
//!
//! Never: a write that was acknowledged is not undone, and what is stored is never too much to start with.

use machinery_meta::Quantity;

mod ledger;
#[cfg(test)]
mod tests;

pub(crate) use ledger::{Held, Ledger, Reserved, marks_deletion};

/// Label of a Namespace that sets the share of its objects, as a quantity of bytes (`2Gi`); 0 sets no bound. Administrators
/// set it, as tenants may not change the Namespace.
pub const OWN_SHARE: &str = "knarr.dev/storage-quota-bytes";

/// The bytes that a value of [`OWN_SHARE`] means; none where it means nothing.
pub fn share_bytes(value: &str) -> Option<u64> {
    let amount: Quantity = value.parse().ok()?;
    u64::try_from(amount.units()).ok()
}

/// Bounds of what is stored, in bytes of memory; 0 sets none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quota {
    /// All objects together.
    pub store_bytes: u64,
    /// Objects of one namespace that sets no share of its own ([`OWN_SHARE`]); those of them that have a time to live as much
    /// again.
    pub namespace_bytes: u64,
    /// Namespaces that have no share and may use the whole store, as the system's objects without a namespace.
    pub system_namespaces: Vec<Box<str>>,
}

/// The requester of room in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// A user, within the bounds.
    User,
    /// A component of the system or an administrator: changes of what is there may go beyond, as a kubelet's of a pod's
    /// status. Their creations belong to a tenant (a controller's pods), and stay within the bounds.
    System,
}

/// Stored bytes, and writes that were refused for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    pub quota: Quota,
    /// All objects together.
    pub bytes: u64,
    /// Namespaces that take the most, the largest first; cluster-scoped objects are in the one without a name.
    pub largest: Vec<NamespaceUsage>,
    /// Bytes that Namespaces set for their objects, by name, a thousand at most; 0 sets no bound.
    pub own_shares: Vec<(String, u64)>,
    /// The last write that the bound of the store refused has no room yet.
    pub is_full: bool,
    /// Writes refused by the bound of the store.
    pub refused_by_store: u64,
    /// Writes refused by the share of a namespace.
    pub refused_by_namespace: u64,
}

/// Bytes of one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceUsage {
    pub namespace: String,
    /// Objects without a time to live.
    pub lasting_bytes: u64,
    /// Objects with one.
    pub expiring_bytes: u64,
}

/// This part of the store is kept for the system: its namespaces and cluster-scoped objects may use all of it, changes by
/// its components in other namespaces one half.
const RESERVE_PART: u64 = 8;
/// Objects without a namespace that users grow or make take at most this part of the store, with all others there.
const CLUSTER_PART: u64 = 2;
/// Changes by the system's components may exceed a namespace's share by this part of it.
const SPARE_PART: u64 = 2;

/// The bound that applies to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tier {
    /// A user's write in a namespace, or any create there.
    Share,
    /// A user's write of an object without a namespace.
    Cluster,
    /// A change by the system's components in a namespace.
    Spare,
    /// The system's own objects.
    Reserve,
}

impl Quota {
    fn tier(&self, namespace: &str, is_spare: bool, claim: Claim) -> Tier {
        let is_system = || self.system_namespaces.iter().any(|own| **own == *namespace);
        if namespace.is_empty() && claim == Claim::User {
            Tier::Cluster
        } else if namespace.is_empty() || is_system() {
            Tier::Reserve
        } else if is_spare {
            Tier::Spare
        } else {
            Tier::Share
        }
    }

    fn store_limit(&self, tier: Tier) -> u64 {
        let reserve = self.store_bytes / RESERVE_PART;
        match tier {
            _ if self.store_bytes == 0 => u64::MAX,
            Tier::Share | Tier::Cluster => self.store_bytes - reserve,
            Tier::Spare => self.store_bytes - reserve / 2,
            Tier::Reserve => self.store_bytes,
        }
    }

    /// The bound of a namespace, which may set its own share.
    fn namespace_limit(&self, tier: Tier, own_share: Option<u64>) -> u64 {
        let share = own_share.unwrap_or(self.namespace_bytes);
        match tier {
            Tier::Cluster if self.store_bytes > 0 => self.store_bytes / CLUSTER_PART,
            Tier::Reserve | Tier::Cluster => u64::MAX,
            _ if share == 0 => u64::MAX,
            Tier::Share => share,
            Tier::Spare => share.saturating_add(share / SPARE_PART),
        }
    }
}
