//! Defaults of requests for devices.

use crate::engine::context::RequestContext;
use crate::engine::metadata;
use machinery_schema::{Mut, Ref, Tree};

/// Requests for an exact number request one.
pub(super) fn device_counts(object: &mut Tree, path: &[&str]) {
    let count = |request: &mut Mut<'_>| {
        let exact = request.as_ref().str("allocationMode") == "ExactCount";
        let unset = request.as_ref().get("count").and_then(Ref::as_i64).unwrap_or(0) == 0;
        if exact && unset {
            request.set("count", 1);
        }
    };
    object.with(path, |mut devices| {
        devices.each("requests", |mut request| {
            if let Some(mut exactly) = request.field("exactly") {
                count(&mut exactly);
            }
            request.each("firstAvailable", |mut one| count(&mut one));
        });
    });
}

/// Taints say since when they are; those of a rule.
pub(super) fn time_of_rule(ctx: &RequestContext, object: &mut Tree) {
    let now = metadata::format_time(ctx.runtime.now());
    object.with(&["spec"], |mut spec| {
        if let Some(mut taint) = spec.field("taint") {
            taint.default("timeAdded", now.as_str());
        }
    });
}

/// Another effect is of now, unless another time comes with it (`devicetaintrule/strategy.go`).
pub(super) fn time_of_effect(object: &mut Tree, old: &Tree) {
    let differs = |name: &str| object.at(&["spec", "taint", name]) != old.at(&["spec", "taint", name]);
    if differs("effect") && !differs("timeAdded") {
        object.remove(&["spec", "taint", "timeAdded"]);
    }
}

/// The same of the devices of a slice.
pub(super) fn times_of_slice(ctx: &RequestContext, object: &mut Tree) {
    let now = metadata::format_time(ctx.runtime.now());
    object.with(&["spec"], |mut spec| {
        spec.each("devices", |mut device| {
            device.each("taints", |mut taint| {
                taint.default("timeAdded", now.as_str());
            });
        });
    });
}
