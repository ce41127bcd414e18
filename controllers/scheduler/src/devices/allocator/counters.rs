//! Counters that devices of a pool share: partitions of one device are not to be given out twice.

use super::{Refusal, Surroundings};
use crate::devices::objects::{Amounts, CounterConsumption};
use crate::devices::pools::{NearPool, PoolId};
use machinery_meta::Quantity;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

type Sets = BTreeMap<Box<str>, Amounts>;

/// A pool with its generation, and the node whose slices stand by themselves: nodes may have different ones.
type Place = (PoolId, (i64, Option<Box<str>>));

/// Findings that are the same for all nodes of an attempt.
#[derive(Debug, Default)]
pub(crate) struct Available {
    /// Counters that allocated devices leave, by pool.
    counters: RefCell<HashMap<Place, Arc<Sets>>>,
    /// The answer for nodes that reach no pool.
    nowhere: OnceCell<Refusal>,
}

impl Available {
    pub(super) fn nowhere(&self) -> Option<Refusal> {
        self.nowhere.get().cloned()
    }

    /// Keeps the answer, unless it is the budget's.
    pub(super) fn set_nowhere(&self, why: &Refusal) {
        if *why != Refusal::TimedOut {
            let _ = self.nowhere.set(why.clone());
        }
    }

    fn of(&self, around: &Surroundings<'_>, near: NearPool<'_>) -> Result<Arc<Sets>, Refusal> {
        let place = (near.id.clone(), near.place());
        if let Some(known) = self.counters.borrow().get(&place) {
            return Ok(Arc::clone(known));
        }
        let mut sets = near.pool.counters.clone();
        for device in near.pool.slices.iter().flat_map(|slice| &slice.devices) {
            around.budget.spend(1)?;
            if !device.consumes.is_empty() && around.devices.allocated.is_used(&device.id) {
                device.consumes.iter().for_each(|own| reduce(&mut sets, own));
            }
        }
        let sets = Arc::new(sets);
        self.counters.borrow_mut().insert(place, Arc::clone(&sets));
        Ok(sets)
    }
}

/// Takes a device off the counters. They may become negative, which is as good as nothing.
fn reduce(sets: &mut Sets, consumption: &CounterConsumption) {
    let Some(set) = sets.get_mut(&consumption.counter_set) else {
        return;
    };
    for (name, amount) in &consumption.counters {
        if let Some(own) = set.get_mut(name) {
            *own = *own - *amount;
        }
    }
}

/// Counters of the devices that are chosen so far, by pool, set and name.
#[derive(Debug, Default)]
pub(super) struct Consuming<'a>(HashMap<(usize, &'a str, &'a str), Quantity>);

impl<'a> Consuming<'a> {
    /// Reports whether the pool has what the device consumes, beside what the others do.
    pub(super) fn has_room(
        &self,
        around: &Surroundings<'_>,
        pool: (usize, NearPool<'_>),
        consumes: &[CounterConsumption],
    ) -> Result<bool, Refusal> {
        let (at, pool) = pool;
        let available = around.available.of(around, pool)?;
        let fits = |own: &CounterConsumption| {
            let set = available.get(&own.counter_set);
            own.counters.iter().all(|(name, amount)| {
                let taken = self.0.get(&(at, &*own.counter_set, &**name));
                let taken = taken.copied().unwrap_or_default();
                let left = set.and_then(|set| set.get(name));
                left.is_some_and(|left| taken + *amount <= *left)
            })
        };
        Ok(consumes.iter().all(fits))
    }

    /// Counts a device that is chosen, or one that is not any more.
    pub(super) fn count(&mut self, pool: usize, consumes: &'a [CounterConsumption], comes: bool) {
        for own in consumes {
            for (name, amount) in &own.counters {
                let taken = self.0.entry((pool, &*own.counter_set, &**name)).or_default();
                *taken = if comes { *taken + *amount } else { *taken - *amount };
            }
        }
    }
}
