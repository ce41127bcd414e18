//! The devices that were found, as claims' statuses have them.

use super::candidates::Place;
use super::requests::{Prepared, Requests};
use super::{Wanted, capacity};
use crate::devices::objects::{Amounts, ClaimConfig, MAX_ALTERNATIVES, Nodes};
use crate::object::{NodeSelector, Requirement};
use serde_json::{Value, json};

/// A device that was chosen.
#[derive(Debug)]
pub(super) struct Chosen<'a> {
    pub(super) place: Place<'a>,
    pub(super) request: usize,
    pub(super) alternative: usize,
    /// Capacity that a share of it takes; `None` where all of it is taken.
    pub(super) consumed: Option<Amounts>,
    /// It consumes counters.
    pub(super) counts: bool,
}

/// Devices for all claims of a pod on one node.
#[derive(Debug)]
pub(crate) struct Solution<'a> {
    pub(super) claims: Vec<Wanted<'a>>,
    pub(super) requests: Requests<'a>,
    pub(super) chosen: Vec<Vec<Chosen<'a>>>,
    pub(super) selected: Vec<Vec<usize>>,
}

impl Solution<'_> {
    /// Sum over the alternatives that were chosen, the first of a list the best (upstream's `computeScore`).
    pub(crate) fn score(&self) -> i64 {
        let mut score = 0;
        for (requests, selected) in self.requests.iter().zip(&self.selected) {
            let lists = requests.iter().zip(selected);
            let lists = lists.filter(|(alternatives, _)| alternatives.iter().any(|own| own.parent.is_some()));
            score += lists
                .map(|(_, at)| MAX_ALTERNATIVES.saturating_sub(*at))
                .sum::<usize>();
        }
        i64::try_from(score).unwrap_or(i64::MAX)
    }

    /// An AllocationResult for each claim, in their order. Shares have no id yet: `shareID` is empty.
    pub(crate) fn allocations(&self, node: &str) -> Vec<Value> {
        (0..self.claims.len())
            .map(|at| self.allocation(at, node))
            .collect()
    }

    fn allocation(&self, claim: usize, node: &str) -> Value {
        let results: Vec<Value> = self.chosen[claim]
            .iter()
            .map(|own| self.result(claim, own))
            .collect();
        let mut allocation = json!({"devices": {"results": results}});
        let config = self.config(claim);
        if !config.is_empty() {
            allocation["devices"]["config"] = config.into();
        }
        if let Some(selector) = node_selector(&self.chosen[claim], node) {
            allocation["nodeSelector"] = selector;
        }
        allocation
    }

    fn result(&self, claim: usize, own: &Chosen<'_>) -> Value {
        let request = &self.requests[claim][own.request][own.alternative];
        let id = &own.place.device.id;
        let mut result = json!({"request": request.full_name(), "driver": &*id.driver, "pool": &*id.pool, "device": &*id.device});
        if request.is_admin() {
            result["adminAccess"] = true.into();
        }
        if !request.request.tolerations.is_empty() {
            result["tolerations"] = json!(request.request.tolerations);
        }
        let device = own.place.device;
        for (name, conditions) in [
            ("bindingConditions", &device.binding_conditions),
            ("bindingFailureConditions", &device.binding_failure_conditions),
        ] {
            if !conditions.is_empty() {
                result[name] = json!(conditions);
            }
        }
        if let Some(consumed) = &own.consumed {
            result["shareID"] = "".into();
            let named = consumed.iter().map(|(name, amount)| {
                let name = capacity::name_of_result(name, own.place.device);
                (name.to_owned(), Value::from(amount.to_string()))
            });
            if !consumed.is_empty() {
                result["consumedCapacity"] = Value::Object(named.collect());
            }
        }
        result
    }

    /// Configurations of the classes, each class once, and of the claim, as far as they are about what was chosen.
    fn config(&self, claim: usize) -> Vec<Value> {
        let requests = &self.requests[claim];
        let chosen = requests.iter().zip(&self.selected[claim]);
        let chosen: Vec<&Prepared<'_>> = chosen.filter_map(|(all, at)| all.get(*at)).collect();
        let mut all: Vec<(&str, Vec<String>, &ClaimConfig)> = Vec::new();
        let mut classes: Vec<&str> = Vec::new();
        for own in &chosen {
            if classes.contains(&own.class_name) {
                continue;
            }
            classes.push(own.class_name);
            let of_class = chosen.iter().filter(|other| other.class_name == own.class_name);
            let names: Vec<String> = of_class.map(|other| other.full_name()).collect();
            let configs = own.class.spec.config.iter();
            all.extend(configs.map(|config| ("FromClass", names.clone(), config)));
        }
        for config in &self.claims[claim].spec.devices.config {
            let names: Vec<String> = config.requests.iter().map(|own| own.to_string()).collect();
            if names.is_empty() || chosen.iter().any(|own| own.is_among(&names)) {
                all.push(("FromClaim", names, config));
            }
        }
        let value = |(source, names, config): (&str, Vec<String>, &ClaimConfig)| {
            let mut value = json!({"source": source});
            // No names mean all requests.
            if !chosen.iter().all(|own| own.is_among(&names)) && !names.is_empty() {
                value["requests"] = json!(names);
            }
            if let Some(opaque) = &config.opaque {
                value["opaque"] = opaque.value();
            }
            value
        };
        all.into_iter().map(value).collect()
    }
}

/// Nodes that reach all of the devices; `None` where any does.
fn node_selector(chosen: &[Chosen<'_>], node: &str) -> Option<Value> {
    let is_in = |values: Value, key: &str| json!({"key": key, "operator": "In", "values": values});
    let only = |name: &str| {
        let field = is_in(json!([name]), "metadata.name");
        json!({"nodeSelectorTerms": [{"matchFields": [field]}]})
    };
    let (mut fields, mut expressions): (Vec<&Requirement>, Vec<&Requirement>) = Default::default();
    for own in chosen {
        let Place { slice, device, .. } = own.place;
        if device.binds_to_node {
            return Some(only(node));
        }
        match if slice.per_device {
            &device.nodes
        } else {
            &slice.nodes
        } {
            Nodes::Named(name) => return Some(only(name)),
            Nodes::Selected(NodeSelector { node_selector_terms }) => {
                for term in node_selector_terms {
                    add(&mut fields, &term.match_fields);
                    add(&mut expressions, &term.match_expressions);
                }
            }
            Nodes::All | Nodes::None => {}
        }
    }
    if fields.is_empty() && expressions.is_empty() {
        return None;
    }
    let mut term = json!({});
    for (name, own) in [("matchFields", fields), ("matchExpressions", expressions)] {
        if !own.is_empty() {
            term[name] = own.into_iter().map(written).collect();
        }
    }
    Some(json!({"nodeSelectorTerms": [term]}))
}

fn add<'a>(all: &mut Vec<&'a Requirement>, more: &'a [Requirement]) {
    for own in more {
        if !all.contains(&own) {
            all.push(own);
        }
    }
}

fn written(own: &Requirement) -> Value {
    let mut value = json!({"key": own.key, "operator": own.operator});
    if !own.values.is_empty() {
        value["values"] = json!(own.values);
    }
    value
}
