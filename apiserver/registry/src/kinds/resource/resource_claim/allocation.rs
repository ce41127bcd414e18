//! Validation of a changed status of a ResourceClaim: devices are allocated once, and reported on while they are
//! allocated.

use crate::kinds::core::pod::validation::scheduling::node_selector;
use crate::kinds::resource::Problems;
use crate::kinds::resource::devices::{
    MAX_REFERENCES, RequestNames, declared_driver_name, declared_pool_name, driver_name, json_object, opaque,
    pool_name, reference, references, request_names, share_id, tolerations,
};
use crate::shared::validation::{Errors, Path, conditions, dns_label, interface_address, present, qualified};
use machinery_meta::FieldError;
use machinery_meta::field::Shown;
use machinery_schema::{Mut, Ref, Tree};
use std::collections::{BTreeSet, HashSet};

const MAX_CONSUMERS: usize = 256;
const MAX_BINDING_CONDITIONS: usize = 4;
const MAX_DEVICE_CONDITIONS: usize = 8;
const MAX_DATA_BYTES: usize = 10 * 1024;
const MAX_INTERFACE_BYTES: usize = 256;
const MAX_HARDWARE_BYTES: usize = 128;
const MAX_ADDRESSES: usize = 16;
const CONFIG_SOURCES: [&str; 2] = ["FromClaim", "FromClass"];

/// Identity of a device and of the share of it.
type DeviceId<'a> = [&'a str; 4];

/// Every problem of a changed status.
pub fn validate_status(new: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut problems = Problems::default();
    let Some(status) = new.get("status") else {
        return Vec::new();
    };
    let path = Path::of("status");
    let before = old.get("status");
    let (held, was_held) = (given(status), before.and_then(given));
    // Upstream declares that each consumer and each device is named once, and looks at consumers last.
    let mut later = Problems::default();
    consumers(&mut problems.seen, &mut later.declared, &path, status);
    reports(
        &mut problems.seen,
        &mut later.declared,
        &path,
        status,
        &devices_of(held),
    );
    reserved(&mut problems.seen, &path, new, status, before, held.is_some());
    let at = path.child("allocation");
    match (held, was_held) {
        (Some(held), Some(was)) if held != was => {
            let detail = "field cannot be modified once set";
            problems.declared.invalid(&at, Shown("null".into()), detail);
        }
        (Some(held), None) => {
            let names = request_names(new.at(&["spec", "devices"]));
            result(&mut problems, &at, held, &names);
        }
        _ => {}
    }
    let mut all = problems.into_list();
    all.extend(later.into_list());
    all
}

/// Removes the reports on devices that are no longer allocated.
pub(crate) fn drop_released(new: &mut Tree, old: &Tree) {
    let status = |tree: &Tree| -> HashSet<[String; 4]> {
        let held = tree.get("status").and_then(given);
        devices_of(held).iter().map(|id| id.map(str::to_owned)).collect()
    };
    let (held, was_held) = (status(new), status(old));
    let is_released = |device: Ref<'_>| {
        let id = device_id(device).map(str::to_owned);
        was_held.contains(&id) && !held.contains(&id)
    };
    if new.at(&["status", "devices"]).is_none() {
        return;
    }
    new.with(&["status"], |mut status: Mut<'_>| {
        status.entry("devices").retain(|device| !is_released(device));
        status.prune_empty("devices");
    });
}

fn given(status: Ref<'_>) -> Option<Ref<'_>> {
    present(status, "allocation")
}

fn device_id(device: Ref<'_>) -> DeviceId<'_> {
    ["driver", "pool", "device", "shareID"].map(|name| device.str(name))
}

fn devices_of(held: Option<Ref<'_>>) -> HashSet<DeviceId<'_>> {
    let results = held.and_then(|held| held.at(&["devices", "results"]));
    results.into_iter().flat_map(Ref::items).map(device_id).collect()
}

fn consumers(errors: &mut Errors, declared: &mut Errors, path: &Path<'_>, status: Ref<'_>) {
    let at = path.child("reservedFor");
    let list: Vec<Ref<'_>> = status.list("reservedFor").collect();
    if list.len() > MAX_CONSUMERS {
        return declared.too_many(&at, list.len(), MAX_CONSUMERS);
    }
    for (index, consumer) in list.iter().enumerate() {
        for name in ["resource", "name", "uid"] {
            if consumer.str(name).is_empty() {
                errors.required(&at.index(index).child(name), "");
            }
        }
        let uid = consumer.str("uid");
        if list[..index].iter().any(|other| other.str("uid") == uid) {
            declared.duplicate(&at.index(index), Shown(consumer.to_json()));
        }
    }
}

/// Validates the consumers: only an allocated claim has some, and a claim in deletion gets no new ones.
fn reserved(
    errors: &mut Errors,
    path: &Path<'_>,
    claim: Ref<'_>,
    status: Ref<'_>,
    before: Option<Ref<'_>>,
    is_given: bool,
) {
    let at = path.child("reservedFor");
    if status.list("reservedFor").len() == 0 {
        return;
    }
    if !is_given {
        return errors.forbidden(&at, "may not be specified when `allocated` is not set");
    }
    let was = |consumer: Ref<'_>| {
        let mut old = before.into_iter().flat_map(|before| before.list("reservedFor"));
        old.any(|other| other == consumer)
    };
    let is_going = claim
        .at(&["metadata", "deletionTimestamp"])
        .is_some_and(|time| !time.is_null());
    if is_going && !status.list("reservedFor").all(was) {
        let detail =
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        errors.forbidden(&at, detail);
    }
}

/// Validates the drivers' reports on the devices of the claim.
fn reports(
    errors: &mut Errors,
    declared: &mut Errors,
    path: &Path<'_>,
    status: Ref<'_>,
    held: &HashSet<DeviceId<'_>>,
) {
    let at = path.child("devices");
    let mut seen = BTreeSet::new();
    for (index, device) in status.list("devices").enumerate() {
        if !seen.insert(device_id(device)) {
            declared.duplicate(&at.index(index), Shown(device.to_json()));
        }
    }
    for (index, device) in status.list("devices").enumerate() {
        report(errors, declared, &at.index(index), device, held);
    }
}

fn report(
    errors: &mut Errors,
    declared: &mut Errors,
    path: &Path<'_>,
    device: Ref<'_>,
    held: &HashSet<DeviceId<'_>>,
) {
    driver_name(errors, &path.child("driver"), device.str("driver"));
    pool_name(errors, &path.child("pool"), device.str("pool"));
    dns_label(errors, &path.child("device"), device.str("device"));
    if let Some(share) = present(device, "shareID").and_then(Ref::as_str) {
        share_id(declared, &path.child("shareID"), share);
    }
    let id = device_id(device);
    if !held.contains(&id) {
        let [driver, pool, name, share] = id.map(|text| format!("{text:?}"));
        let shown = format!(r#"{{"Driver":{driver},"Pool":{pool},"Device":{name},"ShareID":{share}}}"#);
        errors.invalid(path, Shown(shown), "must be an allocated device in the claim");
    }
    let at = path.child("conditions");
    let count = device.list("conditions").len();
    if count > MAX_DEVICE_CONDITIONS {
        errors.too_many(&at, count, MAX_DEVICE_CONDITIONS);
    }
    conditions(errors, &at, device);
    if let Some(data) = device.get("data").filter(|data| !data.is_null()) {
        json_object(errors, &path.child("data"), Some(data), MAX_DATA_BYTES);
    }
    if let Some(network) = present(device, "networkData") {
        network_data(errors, declared, &path.child("networkData"), network);
    }
}

fn network_data(errors: &mut Errors, declared: &mut Errors, path: &Path<'_>, network: Ref<'_>) {
    if network.str("interfaceName").len() > MAX_INTERFACE_BYTES {
        declared.too_long(&path.child("interfaceName"), MAX_INTERFACE_BYTES);
    }
    let at = path.child("ips");
    let list: Vec<&str> = network.list("ips").filter_map(Ref::as_str).collect();
    if list.len() > MAX_ADDRESSES {
        declared.too_many(&at, list.len(), MAX_ADDRESSES);
    } else {
        for (index, address) in list.iter().enumerate() {
            interface_address(errors, &at.index(index), address);
            if list[..index].contains(address) {
                declared.duplicate(&at.index(index), *address);
            }
        }
    }
    if network.str("hardwareAddress").len() > MAX_HARDWARE_BYTES {
        declared.too_long(&path.child("hardwareAddress"), MAX_HARDWARE_BYTES);
    }
}

/// Validates a new allocation.
fn result(problems: &mut Problems, path: &Path<'_>, held: Ref<'_>, names: &RequestNames) {
    let devices = path.child("devices");
    let own = held.get("devices");
    let list = |name: &str| -> Vec<Ref<'_>> { own.into_iter().flat_map(|own| own.list(name)).collect() };
    for (name, most) in [("results", MAX_REFERENCES), ("config", 2 * MAX_REFERENCES)] {
        let at = devices.child(name);
        let items = list(name);
        if items.len() > most {
            problems.declared.too_many(&at, items.len(), most);
            continue;
        }
        for (index, item) in items.into_iter().enumerate() {
            match name {
                "results" => one_result(problems, &at.index(index), item, names),
                _ => one_config(problems, &at.index(index), item, names),
            }
        }
    }
    if let Some(selector) = present(held, "nodeSelector") {
        node_selector(&mut problems.seen, &path.child("nodeSelector"), selector);
    }
}

fn one_result(problems: &mut Problems, path: &Path<'_>, own: Ref<'_>, names: &RequestNames) {
    reference(
        &mut problems.seen,
        &path.child("request"),
        own.str("request"),
        names,
    );
    declared_driver_name(&mut problems.declared, &path.child("driver"), own.str("driver"));
    declared_pool_name(&mut problems.declared, &path.child("pool"), own.str("pool"));
    dns_label(&mut problems.seen, &path.child("device"), own.str("device"));
    binding(problems, path, own);
    tolerations(problems, path, own);
    if let Some(share) = present(own, "shareID").and_then(Ref::as_str) {
        share_id(&mut problems.declared, &path.child("shareID"), share);
    }
}

fn one_config(problems: &mut Problems, path: &Path<'_>, own: Ref<'_>, names: &RequestNames) {
    let at = path.child("source");
    match own.str("source") {
        "" => problems.declared.required(&at, ""),
        source if !CONFIG_SOURCES.contains(&source) => {
            problems.declared.not_supported(&at, source, &CONFIG_SOURCES);
        }
        _ => {}
    }
    references(problems, &path.child("requests"), own, names);
    opaque(problems, path, own);
}

/// The conditions of a device that a pod waits for before it is bound, and those that end the wait.
fn binding(problems: &mut Problems, path: &Path<'_>, own: Ref<'_>) {
    const READY: &str = "bindingConditions";
    const BROKEN: &str = "bindingFailureConditions";
    let list = |name: &str| -> Vec<&str> { own.list(name).filter_map(Ref::as_str).collect() };
    let (ready, broken) = (list(READY), list(BROKEN));
    for (name, items) in [(READY, &ready), (BROKEN, &broken)] {
        let at = path.child(name);
        if items.len() > MAX_BINDING_CONDITIONS {
            problems
                .declared
                .too_many(&at, items.len(), MAX_BINDING_CONDITIONS);
            continue;
        }
        for (index, item) in items.iter().enumerate() {
            qualified(&mut problems.seen, &at.index(index), item);
        }
    }
    let errors = &mut problems.seen;
    let known: HashSet<&&str> = ready.iter().collect();
    for (name, items) in [(READY, &ready), (BROKEN, &broken)] {
        let at = path.child(name);
        let mut seen = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            if !seen.insert(item) {
                errors.duplicate(&at.index(index), *item);
            }
            if name == BROKEN && known.contains(item) {
                let detail = "bindingFailureConditions must not overlap with bindingConditions";
                errors.invalid(&at.index(index), *item, detail);
            }
        }
    }
    for (missing, is_missing, other) in [
        (READY, ready.is_empty() && !broken.is_empty(), BROKEN),
        (BROKEN, broken.is_empty() && !ready.is_empty(), READY),
    ] {
        if is_missing {
            let detail = format!("{missing} are required to use {other}");
            errors.invalid(&path.child(missing), Shown("null".into()), detail);
        }
    }
}
