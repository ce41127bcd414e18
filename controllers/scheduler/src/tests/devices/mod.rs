//! Devices: upstream's table of the allocator as data, and stories on the scheduler.
//!
//! The table is that of 1.37.2 (`allocatortesting/allocator_testing.go`). Left out are cases of gates that are off by
//! default, of gates turned off, of conditions that devices bind by (which have tests of their own), and one of an amount beyond 2^63.

mod allocator;
mod conditions;
mod extended;
mod hints;
mod stories;
mod writes;

use super::*;
use crate::devices::views::{DeviceClaimView, DeviceClassView, SliceView, TaintRuleView};
use crate::devices::{DeviceClaim, DeviceClass, Slice, TaintRule};
use machinery_client::Projection;
use machinery_meta::ObjectHeader;

fn view<P: Projection>(object: &Value) -> P {
    P::project(&ObjectHeader::default(), object.to_string().as_bytes()).unwrap()
}

fn claim_of(object: &Value) -> Arc<DeviceClaim> {
    view::<DeviceClaimView>(object).0
}

fn class_of(object: &Value) -> Arc<DeviceClass> {
    view::<DeviceClassView>(object).0
}

fn slice_of(object: &Value) -> Arc<Slice> {
    view::<SliceView>(object).0
}

fn rule_of(object: &Value) -> TaintRule {
    view::<TaintRuleView>(object).0
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
