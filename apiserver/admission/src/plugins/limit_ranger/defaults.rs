//! Default requests and limits of containers.

use super::present;
use k8s_openapi::api::core::v1::LimitRangeItem;
use machinery_schema::{Mut, Tree};
use std::collections::BTreeMap;

/// The annotation that lists the amounts that were set.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Amounts by resource name.
type Amounts<'a> = BTreeMap<&'a str, &'a str>;

/// Defaults of one range: of several items for containers the last one's amount counts.
#[derive(Default)]
struct Defaults<'a> {
    requests: Amounts<'a>,
    limits: Amounts<'a>,
}

impl<'a> Defaults<'a> {
    fn of(limits: &'a [LimitRangeItem]) -> Self {
        let mut all = Self::default();
        for item in limits.iter().filter(|item| item.type_ == "Container") {
            let amounts =
                |own: &'a Option<BTreeMap<_, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>| {
                    let own = own.iter().flatten();
                    own.map(|(name, amount): (&'a String, _)| (name.as_str(), amount.0.as_str()))
                };
            all.requests.extend(amounts(&item.default_request));
            all.limits.extend(amounts(&item.default));
        }
        all
    }
}

/// Completes every container of the pod, and notes on the pod what was missing.
pub(super) fn apply(pod: &mut Tree, limits: &[LimitRangeItem]) {
    let defaults = Defaults::of(limits);
    if defaults.requests.is_empty() && defaults.limits.is_empty() {
        return;
    }
    let mut notes = Vec::new();
    for (list, noun) in [("containers", "container"), ("initContainers", "init container")] {
        let done = pod.with(&["spec"], |mut spec| {
            spec.each(list, |container| complete(container, &defaults, noun, &mut notes));
        });
        if done.is_none() {
            return;
        }
    }
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        pod.set_str(&["metadata", "annotations", ANNOTATION], &note);
    }
}

fn complete(mut container: Mut<'_>, defaults: &Defaults<'_>, noun: &str, notes: &mut Vec<String>) {
    let name = container.as_ref().str("name").to_owned();
    for (side, amounts) in [("requests", &defaults.requests), ("limits", &defaults.limits)] {
        let missing: Vec<(&str, &str)> = {
            let own = container.as_ref();
            let has = |resource: &str| present(own.at(&["resources", side, resource]));
            let all = amounts.iter().map(|(name, amount)| (*name, *amount));
            all.filter(|(resource, _)| !has(resource)).collect()
        };
        if missing.is_empty() {
            continue;
        }
        let mut resources = container.entry("resources");
        let mut amounts = resources.entry(side);
        for (resource, amount) in &missing {
            amounts.set(resource, *amount);
        }
        let names: Vec<&str> = missing.iter().map(|(resource, _)| *resource).collect();
        let what = side.trim_end_matches('s');
        notes.push(format!("{} {what} for {noun} {name}", names.join(", ")));
    }
}
