//! Capacity of devices: what a request consumes of one, and whether that is left (upstream's `consumable_capacity.go`).

use crate::devices::allocated::{Shared, full_name};
use crate::devices::objects::{Amounts, Capacity, CapacityRequirements, Device, RequestPolicy, ValidRange};
use machinery_meta::Quantity;
use std::collections::BTreeMap;

/// Steps that one capacity takes: it is named, rounded and compared.
const STEPS_OF_A_CAPACITY: usize = 4;

/// Steps that [`consumed`] takes.
pub(crate) fn steps(device: &Device) -> usize {
    device.capacity.len() * STEPS_OF_A_CAPACITY
}

/// Capacity that a request consumes of the device, by full name, where there is so much left beside what claims have
/// (`used`) and what is chosen already (`chosen`). `None` where there is not, and where the device does not have what the
/// request names.
///
/// # Errors
/// An amount that is negative, or cannot be calculated with, is one that no device has.
pub(crate) fn consumed(
    wanted: Option<&CapacityRequirements>,
    device: &Device,
    used: Option<&Shared>,
    chosen: Option<&Shared>,
) -> Result<Option<Amounts>, String> {
    if device.capacity.is_empty() && wanted.is_none_or(|own| own.requests.is_empty()) {
        return Ok(Some(Amounts::new()));
    }
    let capacity = by_full_name(device);
    let Some(requests) = requested(wanted, &capacity, &device.id.driver)? else {
        return Ok(None);
    };
    // All amounts are known to be numbers before any is too large: the order of names decides nothing.
    let mut consumed = Amounts::new();
    for (name, own) in &capacity {
        let amount = amount_of(requests.get(name).copied(), own);
        let amount = amount.map_err(|why| format!("capacity {name:?}: {why}"))?;
        consumed.insert(name.clone(), amount);
    }
    let all_fit = consumed.iter().all(|(name, amount)| {
        let own = capacity[name];
        let taken = |shared: Option<&Shared>| {
            let amount = shared.and_then(|own| own.consumed.get(name));
            amount.copied().unwrap_or_default()
        };
        let is_allowed = own
            .request_policy
            .as_ref()
            .is_none_or(|policy| allows(policy, *amount));
        is_allowed && taken(used) + taken(chosen) + *amount <= own.value
    });
    Ok(all_fit.then_some(consumed))
}

/// Requested amounts by full name; `None` where the device does not have one.
fn requested(
    wanted: Option<&CapacityRequirements>,
    capacity: &BTreeMap<Box<str>, &Capacity>,
    driver: &str,
) -> Result<Option<Amounts>, String> {
    let mut requests = Amounts::new();
    for (name, amount) in wanted.into_iter().flat_map(|own| &own.requests) {
        let full = full_name(name, driver);
        if !capacity.contains_key(&full) {
            return Ok(None);
        }
        if requests.insert(full, *amount).is_some() {
            return Err(format!("capacity {name:?} is requested twice"));
        }
    }
    Ok(Some(requests))
}

/// A capacity that has the driver's domain counts more than one without.
fn by_full_name(device: &Device) -> BTreeMap<Box<str>, &Capacity> {
    let mut all = BTreeMap::new();
    for (name, own) in &device.capacity {
        let full = full_name(name, &device.id.driver);
        if name.contains('/') || !all.contains_key(&full) {
            all.insert(full, own);
        }
    }
    all
}

/// Name of a capacity as the slice has it: results name it so.
pub(crate) fn name_of_result<'n>(full: &'n str, device: &Device) -> &'n str {
    let prefix = (*device.id.driver).len() + 1;
    let is_drivers = full.starts_with(&*device.id.driver) && full.as_bytes().get(prefix - 1) == Some(&b'/');
    match is_drivers && !device.capacity.contains_key(full) {
        true => &full[prefix..],
        false => full,
    }
}

/// The amount that a request gets: rounded up to what the policy has, and without a request its default, or all.
fn amount_of(wanted: Option<Quantity>, own: &Capacity) -> Result<Quantity, String> {
    let policy = own.request_policy.as_ref();
    let amount = match (wanted, policy) {
        (None, _) => policy.and_then(|own| own.default).unwrap_or(own.value),
        (Some(wanted), None) => wanted,
        (Some(wanted), Some(policy)) => match &policy.valid_range {
            Some(range) if range.min.is_some() => round_up(wanted, range)?,
            _ => {
                let at_least = policy.valid_values.iter().find(|own| **own >= wanted);
                at_least.copied().unwrap_or(wanted)
            }
        },
    };
    match amount.is_negative() {
        true => Err("capacity value is negative".to_owned()),
        false => Ok(amount),
    }
}

fn round_up(wanted: Quantity, range: &ValidRange) -> Result<Quantity, String> {
    let min = range.min.unwrap_or_default();
    if wanted < min {
        return Ok(min);
    }
    let Some(step) = range.step else {
        return Ok(wanted);
    };
    let unknown = |what: &str| {
        let problem = "capacity request cannot be represented in the device's range arithmetic";
        format!("{problem}: {what}")
    };
    let (from, unit) = (i128::from(min.units()), i128::from(step.units()));
    if unit <= 0 {
        return Err(unknown("the step is not positive"));
    }
    let steps = (i128::from(wanted.units()) - from + unit - 1) / unit;
    // The greatest amount is what larger ones are read as.
    match i64::try_from(from + steps * unit) {
        Ok(rounded) if rounded < i64::MAX => Ok(Quantity::from_units(rounded).with_format(step.format())),
        _ => {
            let what = format!("rounding request {wanted} up to the next step passes MaxInt64");
            Err(unknown(&what))
        }
    }
}

fn allows(policy: &RequestPolicy, amount: Quantity) -> bool {
    if policy.default == Some(amount) {
        return true;
    }
    if let Some(range) = &policy.valid_range {
        let is_step = range.step.is_none_or(|step| {
            let from = range.min.unwrap_or_default().units();
            amount
                .units()
                .checked_sub(from)
                .and_then(|own| own.checked_rem(step.units()))
                == Some(0)
        });
        return range.max.is_none_or(|max| amount <= max) && is_step;
    }
    policy.valid_values.is_empty() || policy.valid_values.contains(&amount)
}
