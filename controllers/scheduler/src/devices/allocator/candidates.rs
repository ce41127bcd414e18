//! Devices that a node may reach, and whether they are what a request selects.

use super::requests::Prepared;
use super::{Refusal, Surroundings};
use crate::devices::objects::{Device, Selector, Slice};
use crate::devices::pools::NearPool;
use machinery_cel::{DEVICE_SELECTOR_MAX_COST, DeviceValue};
use std::collections::HashMap;

/// A device in its slice and pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// Its position among the pools near the node.
    pub(super) pool: usize,
    pub(super) slice: &'a Slice,
    pub(super) device: &'a Device,
}

/// Devices of slices that the node may reach, pool by pool.
pub(super) fn places<'a>(around: &Surroundings<'a>, pools: &[NearPool<'a>]) -> Vec<Vec<Place<'a>>> {
    let near = |slice: &&Slice| slice.is_near(around.nodes, around.node);
    let of_pool = |(at, own): (usize, &NearPool<'a>)| {
        let slices = own.pool.slices.iter().map(|own| &**own).filter(near);
        let place = |slice: &'a Slice| {
            slice.devices.iter().map(move |device| Place {
                pool: at,
                slice,
                device,
            })
        };
        slices.flat_map(place).collect()
    };
    pools.iter().enumerate().map(of_pool).collect()
}

/// Answers of selectors, by number of the request and device.
#[derive(Debug, Default)]
pub(super) struct Matches(HashMap<(usize, *const Device), bool>);

impl Matches {
    /// Reports whether the request may have the device, as far as class, selectors and node say.
    pub(super) fn is_selectable(
        &mut self,
        around: &Surroundings<'_>,
        own: &Prepared<'_>,
        place: Place<'_>,
    ) -> Result<bool, Refusal> {
        let key = (own.number, std::ptr::from_ref(place.device));
        if let Some(known) = self.0.get(&key) {
            return Ok(*known);
        }
        let selectable = selects(around, own, place)?;
        self.0.insert(key, selectable);
        Ok(selectable)
    }
}

fn selects(around: &Surroundings<'_>, own: &Prepared<'_>, place: Place<'_>) -> Result<bool, Refusal> {
    let device = place.device;
    if place.slice.per_device && !device.nodes.reach(around.nodes, around.node) {
        return Ok(false);
    }
    let of_class = &own.class.spec.selectors;
    let of_request = &own.request.selectors;
    if of_class.is_empty() && of_request.is_empty() {
        return Ok(true);
    }
    let attributes = device.attributes.iter().map(|(name, value)| (&**name, value));
    let capacity = device.capacity.iter().map(|(name, own)| (&**name, own.value));
    let value = DeviceValue::new(&device.id.driver, device.allow_multiple, attributes, capacity);
    around
        .budget
        .spend(device.attributes.len() + device.capacity.len())?;
    let class = || format!("class {}", own.class_name);
    let claim = || format!("claim {}", own.claim_key);
    Ok(match_all(around, of_class, device, &value, &class)?
        && match_all(around, of_request, device, &value, &claim)?)
}

fn match_all(
    around: &Surroundings<'_>,
    selectors: &[Selector],
    device: &Device,
    value: &Result<DeviceValue, String>,
    owner: &dyn Fn() -> String,
) -> Result<bool, Refusal> {
    for (at, selector) in selectors.iter().enumerate() {
        let text = selector.cel.as_ref().map_or("", |cel| &*cel.expression);
        let (compiled, steps) = around.devices.selectors.compiled(text);
        around.budget.spend(steps)?;
        let compiled = compiled.as_ref().as_ref();
        let compiled = compiled.map_err(|why| {
            Refusal::Broken(format!("{}: selector #{at}: CEL compile error: {why}", owner()))
        })?;
        let failed = |why: &str| {
            let (owner, id) = (owner(), &device.id);
            Refusal::Broken(format!(
                "{owner}: selector #{at} on device {id}: CEL runtime error: {why}"
            ))
        };
        let value = value.as_ref().map_err(|why| failed(why))?;
        let found = compiled.matches(value);
        let steps = found.steps.min(4 * DEVICE_SELECTOR_MAX_COST);
        around
            .budget
            .spend(usize::try_from(steps).unwrap_or(usize::MAX))?;
        if !found.matches.map_err(|why| failed(&why))? {
            return Ok(false);
        }
    }
    Ok(true)
}
