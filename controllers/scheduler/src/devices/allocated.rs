//! Devices that claims have: those that are taken, and what is consumed of those that are shared.

use super::objects::{Allocation, Amounts, DeviceId};
use std::collections::HashMap;

/// Devices that are taken, and shares of devices.
#[derive(Debug, Default)]
pub(crate) struct Allocated {
    /// Numbers of claims, more than one where a mistake was made.
    taken: HashMap<DeviceId, usize>,
    shared: HashMap<DeviceId, Shared>,
}

/// Shares of one device.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    shares: usize,
    /// By full name of the capacity.
    pub(crate) consumed: Amounts,
}

impl Shared {
    pub(crate) fn is_empty(&self) -> bool {
        self.shares == 0
    }

    /// Counts a share that comes, or one that goes.
    pub(crate) fn count(&mut self, consumed: &Amounts, comes: bool) {
        self.shares = match comes {
            true => self.shares + 1,
            false => self.shares.saturating_sub(1),
        };
        for (name, amount) in consumed {
            let own = self.consumed.entry(name.clone()).or_default();
            *own = if comes { *own + *amount } else { *own - *amount };
        }
    }
}

/// The full name of a capacity: without a domain it is of the driver's.
pub(crate) fn full_name(name: &str, driver: &str) -> Box<str> {
    if name.contains('/') {
        return name.into();
    }
    format!("{driver}/{name}").into()
}

impl Allocated {
    /// Counts what a claim gets, or gives back. Devices that an administrator looks at are not taken.
    pub(crate) fn count(&mut self, allocation: &Allocation, comes: bool) {
        let results = allocation.devices.results.iter();
        for own in results.filter(|own| !own.admin_access) {
            let id = DeviceId {
                driver: (&*own.driver).into(),
                pool: (&*own.pool).into(),
                device: (&*own.device).into(),
            };
            if own.share_id.is_some() {
                let consumed = own.consumed_capacity.iter();
                let consumed = consumed.map(|(name, amount)| (full_name(name, &own.driver), *amount));
                self.share(id, &consumed.collect(), comes);
            } else {
                self.take(id, comes);
            }
        }
    }

    fn take(&mut self, id: DeviceId, comes: bool) {
        if comes {
            *self.taken.entry(id).or_default() += 1;
        } else if let Some(claims) = self.taken.get_mut(&id) {
            *claims -= 1;
            if *claims == 0 {
                self.taken.remove(&id);
            }
        }
    }

    fn share(&mut self, id: DeviceId, consumed: &Amounts, comes: bool) {
        let own = self.shared.entry(id.clone()).or_default();
        own.count(consumed, comes);
        if own.is_empty() {
            self.shared.remove(&id);
        }
    }

    /// Reports whether a claim has all of the device.
    pub(crate) fn is_taken(&self, id: &DeviceId) -> bool {
        self.taken.contains_key(id)
    }

    /// Reports whether claims have the device, or shares of it.
    pub(crate) fn is_used(&self, id: &DeviceId) -> bool {
        self.is_taken(id) || self.shared.contains_key(id)
    }

    /// Shares of a device that is shared.
    pub(crate) fn shared(&self, id: &DeviceId) -> Option<&Shared> {
        self.shared.get(id)
    }
}
