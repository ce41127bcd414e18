//! Arguments of plugins: read, completed and checked as upstream's `validation_pluginargs.go` does.

use super::affinity;
use super::args::{
    DefaultPreemptionArgs, DynamicResourcesArgs, InterPodAffinityArgs, NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs, NodeResourcesFitArgs, PluginArgs, PodTopologySpreadArgs,
    ResourceWeight, ScoringStrategy, ShapePoint, VolumeBindingArgs, default_resources,
};
use super::document::{Document, NOTHING, Object};
use crate::object::{NodeSelectorTerm, Requirement, TopologySpreadConstraint};
use machinery_meta::syntax::qualified_name;
use machinery_meta::{FieldError, FieldPath};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// The best score of a point of a function as it is written; scores are ten times that.
const MAX_CUSTOM_SCORE: i64 = 10;
const SCORES_A_POINT: i64 = 10;
/// Seconds that claims may take to be bound: a day.
const MAX_BIND_TIMEOUT_SECONDS: i64 = 86_400;
/// The same of conditions of devices.
const MAX_BINDING_TIMEOUT: Duration = Duration::from_hours(24);

/// Reads the list of a profile.
pub(super) fn read(document: &mut Document, path: &FieldPath, items: &[Value]) -> PluginArgs {
    let mut all = PluginArgs::default();
    let mut known = BTreeSet::new();
    for (at, item) in items.iter().enumerate() {
        let path = path.index(at);
        let mut object = document.object(&path, item);
        let name = object.string(document, "name");
        let args = object.take("args").unwrap_or(&NOTHING);
        let args = document.object(&path.child("args"), args);
        object.end(document);
        if !known.insert(name.clone()) {
            document.problems.push(FieldError::duplicate(&path, &*name));
        }
        read_one(document, &mut all, &name, args, &path);
    }
    all
}

fn read_one(
    document: &mut Document,
    all: &mut PluginArgs,
    name: &str,
    mut args: Object<'_>,
    path: &FieldPath,
) {
    args.take("apiVersion");
    let kind = args.string(document, "kind");
    let wanted = format!("{name}Args");
    if !kind.is_empty() && *kind != *wanted {
        document.invalid_text(&path.child("args"), &kind, "has to match plugin args");
        return;
    }
    match name {
        "NodeResourcesFit" => all.node_resources_fit = fit(document, &mut args),
        "NodeResourcesBalancedAllocation" => {
            all.node_resources_balanced_allocation = balanced(document, &mut args);
        }
        "PodTopologySpread" => all.pod_topology_spread = spread(document, &mut args),
        "InterPodAffinity" => all.inter_pod_affinity = inter_pod_affinity(document, &mut args),
        "NodeAffinity" => all.node_affinity = node_affinity(document, &mut args),
        "DefaultPreemption" => all.default_preemption = preemption(document, &mut args),
        "VolumeBinding" => all.volume_binding = volume_binding(document, &mut args),
        "DynamicResources" => all.dynamic_resources = dynamic_resources(document, &mut args),
        _ => {
            // Of a plugin without arguments, or of none that is known: they are not read.
            document.without_effect.push(path.as_str().to_owned());
            return;
        }
    }
    args.end(document);
}

fn fit(document: &mut Document, args: &mut Object<'_>) -> NodeResourcesFitArgs {
    let names = |document: &mut Document, args: &mut Object<'_>, field: &'static str| {
        let path = args.path(field);
        let names = args.strings(document, field);
        for (at, name) in names.iter().enumerate() {
            let path = path.index(at);
            if field == "ignoredResourceGroups" && name.contains('/') {
                document.invalid_text(&path, name, "resource group name can't contain '/'");
            }
            check_name(document, &path, name);
        }
        names.into_iter().collect()
    };
    let ignored_resources = names(document, args, "ignoredResources");
    let ignored_resource_groups = names(document, args, "ignoredResourceGroups");
    let mut own = args.object(document, "scoringStrategy");
    let (strategy, resources) = strategy(document, &mut own);
    own.end(document);
    NodeResourcesFitArgs {
        ignored_resources,
        ignored_resource_groups,
        strategy,
        resources,
    }
}

fn strategy(document: &mut Document, own: &mut Object<'_>) -> (ScoringStrategy, Vec<ResourceWeight>) {
    let is_given = !own.is_empty();
    let kind = own.string(document, "type");
    let resources = resources(document, own);
    let path = own.path("resources");
    for (at, one) in resources.iter().enumerate() {
        if !(1..=100).contains(&one.weight) {
            let path = path.index(at).child("weight");
            let detail = format!("resource weight of {} not in valid range (0, 100]", one.name);
            document.invalid(&path, one.weight, &detail);
        }
    }
    let path = own.path("requestedToCapacityRatio");
    let mut ratio = own.object(document, "requestedToCapacityRatio");
    let has_ratio = own.take("requestedToCapacityRatio").is_some();
    let strategy = match &*kind {
        "LeastAllocated" => ScoringStrategy::LeastAllocated,
        "" if !is_given => ScoringStrategy::LeastAllocated,
        "MostAllocated" => ScoringStrategy::MostAllocated,
        "RequestedToCapacityRatio" => {
            if !has_ratio {
                document.required(&path, "must be specified when type is RequestedToCapacityRatio");
                return (ScoringStrategy::LeastAllocated, resources);
            }
            let shape = shape(document, &mut ratio);
            check_shape(document, &ratio.path("shape"), &shape);
            ratio.end(document);
            return (
                ScoringStrategy::RequestedToCapacityRatio(scored(shape)),
                resources,
            );
        }
        other => {
            let known = ["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];
            let problem = FieldError::not_supported(&own.path("type"), other, &known);
            document.problems.push(problem);
            ScoringStrategy::LeastAllocated
        }
    };
    if has_ratio {
        document.forbidden(&path, "must be nil when type is not RequestedToCapacityRatio");
    }
    (strategy, resources)
}

/// Resources with their weights; CPU and memory where there are none, weight 1 where none is given.
fn resources(document: &mut Document, own: &mut Object<'_>) -> Vec<ResourceWeight> {
    let path = own.path("resources");
    let items = own.list(document, "resources");
    if items.is_empty() {
        return default_resources();
    }
    let mut all = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let mut object = document.object(&path.index(at), item);
        let name = object.string(document, "name");
        let weight = object.integer(document, "weight", 0);
        object.end(document);
        let weight = if weight == 0 { 1 } else { weight };
        all.push(ResourceWeight { name, weight });
    }
    all
}

fn shape(document: &mut Document, own: &mut Object<'_>) -> Vec<ShapePoint> {
    let path = own.path("shape");
    let mut all = Vec::new();
    for (at, item) in own.list(document, "shape").iter().enumerate() {
        let mut object = document.object(&path.index(at), item);
        all.push(ShapePoint {
            utilization: object.integer(document, "utilization", 0),
            score: object.integer(document, "score", 0),
        });
        object.end(document);
    }
    all
}

fn check_shape(document: &mut Document, path: &FieldPath, shape: &[ShapePoint]) {
    if shape.is_empty() {
        document.required(path, "at least one point must be specified");
    }
    let unsorted = shape
        .windows(2)
        .position(|pair| pair[0].utilization >= pair[1].utilization);
    if let Some(at) = unsorted {
        let path = path.index(at + 1).child("utilization");
        let detail = "values must be sorted in increasing order";
        document.invalid(&path, shape[at + 1].utilization, detail);
    }
    for (at, point) in shape.iter().enumerate() {
        let fields = [
            ("utilization", point.utilization, 100),
            ("score", point.score, MAX_CUSTOM_SCORE),
        ];
        for (name, value, most) in fields {
            if !(0..=most).contains(&value) {
                let detail = format!("not in valid range [0, {most}]");
                document.invalid(&path.index(at).child(name), value, &detail);
            }
        }
    }
}

fn scored(shape: Vec<ShapePoint>) -> Vec<ShapePoint> {
    let scored = |point: ShapePoint| ShapePoint {
        score: point.score.saturating_mul(SCORES_A_POINT),
        ..point
    };
    shape.into_iter().map(scored).collect()
}

fn balanced(document: &mut Document, args: &mut Object<'_>) -> NodeResourcesBalancedAllocationArgs {
    let path = args.path("resources");
    let resources = resources(document, args);
    let mut known = BTreeSet::new();
    for (at, one) in resources.iter().enumerate() {
        let path = path.index(at);
        if !known.insert(&one.name) {
            let problem = FieldError::duplicate(&path.child("name"), &*one.name);
            document.problems.push(problem);
        }
        if one.weight != 1 {
            document.invalid(&path.child("weight"), one.weight, "must be 1");
        }
    }
    NodeResourcesBalancedAllocationArgs { resources }
}

fn spread(document: &mut Document, args: &mut Object<'_>) -> PodTopologySpreadArgs {
    let path = args.path("defaultingType");
    let kind = args.string(document, "defaultingType");
    let list_path = args.path("defaultConstraints");
    let items = args.list(document, "defaultConstraints");
    let mut constraints: Vec<TopologySpreadConstraint> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let constraint = constraint(document, &list_path.index(at), item);
        let again = |own: &&TopologySpreadConstraint| {
            own.topology_key == constraint.topology_key
                && own.when_unsatisfiable == constraint.when_unsatisfiable
        };
        if constraints.iter().any(|own| again(&own)) {
            let shown = format!(
                "{{{}, {}}}",
                constraint.topology_key, constraint.when_unsatisfiable
            );
            let problem = FieldError::duplicate(&list_path.index(at), shown);
            document.problems.push(problem);
        }
        constraints.push(constraint);
    }
    match &*kind {
        "" | "System" if items.is_empty() => PodTopologySpreadArgs::default(),
        "" | "System" => {
            let detail = "when .defaultConstraints are not empty";
            document.invalid_text(&path, "System", detail);
            PodTopologySpreadArgs::default()
        }
        other => {
            if other != "List" {
                let problem = FieldError::not_supported(&path, other, &["System", "List"]);
                document.problems.push(problem);
            }
            PodTopologySpreadArgs {
                is_system: false,
                default_constraints: constraints,
            }
        }
    }
}

fn constraint(document: &mut Document, path: &FieldPath, item: &Value) -> TopologySpreadConstraint {
    let mut object = document.object(path, item);
    let max_skew = object.integer(document, "maxSkew", 0);
    if max_skew <= 0 || max_skew > i64::from(i32::MAX) {
        document.invalid(&path.child("maxSkew"), max_skew, "not in valid range (0, inf)");
    }
    let topology_key = object.string(document, "topologyKey");
    if topology_key.is_empty() {
        document.required(&path.child("topologyKey"), "can not be empty");
    } else {
        check_name(document, &path.child("topologyKey"), &topology_key);
    }
    let when_unsatisfiable = object.string(document, "whenUnsatisfiable");
    let when_path = path.child("whenUnsatisfiable");
    match &*when_unsatisfiable {
        "DoNotSchedule" | "ScheduleAnyway" => {}
        "" => document.required(&when_path, "can not be empty"),
        other => {
            let known = ["DoNotSchedule", "ScheduleAnyway"];
            let problem = FieldError::not_supported(&when_path, other, &known);
            document.problems.push(problem);
        }
    }
    if object.take("labelSelector").is_some() {
        let detail = "constraint must not define a selector, as they deduced for each pod";
        document.forbidden(&path.child("labelSelector"), detail);
    }
    let min_domains = object.integer(document, "minDomains", 0);
    let policy = |own: Box<str>| (!own.is_empty()).then_some(own);
    let constraint = TopologySpreadConstraint {
        max_skew: i32::try_from(max_skew).unwrap_or(1),
        topology_key,
        when_unsatisfiable,
        min_domains: i32::try_from(min_domains).ok().filter(|least| *least > 0),
        node_affinity_policy: policy(object.string(document, "nodeAffinityPolicy")),
        node_taints_policy: policy(object.string(document, "nodeTaintsPolicy")),
        match_label_keys: object.strings(document, "matchLabelKeys"),
        ..TopologySpreadConstraint::default()
    };
    object.end(document);
    constraint
}

fn inter_pod_affinity(document: &mut Document, args: &mut Object<'_>) -> InterPodAffinityArgs {
    let name = "hardPodAffinityWeight";
    let weight = args.integer(document, name, 1);
    if !(0..=100).contains(&weight) {
        document.invalid(&args.path(name), weight, "not in valid range [0, 100]");
    }
    InterPodAffinityArgs {
        hard_pod_affinity_weight: weight,
        ignore_preferred_terms_of_existing_pods: args.boolean(document, "ignorePreferredTermsOfExistingPods"),
    }
}

fn node_affinity(document: &mut Document, args: &mut Object<'_>) -> NodeAffinityArgs {
    let path = args.path("addedAffinity");
    let added_affinity = args.object(document, "addedAffinity");
    let added_affinity = affinity::read(document, added_affinity);
    let required = path.child("requiredDuringSchedulingIgnoredDuringExecution");
    let terms = added_affinity
        .required
        .iter()
        .flat_map(|own| &own.node_selector_terms);
    for (at, term) in terms.enumerate() {
        check_term(document, &required.child("nodeSelectorTerms").index(at), term);
    }
    let preferred = path.child("preferredDuringSchedulingIgnoredDuringExecution");
    for (at, one) in added_affinity.preferred.iter().enumerate() {
        check_term(
            document,
            &preferred.index(at).child("preference"),
            &one.preference,
        );
        if !(1..=100).contains(&one.weight) {
            let path = preferred.index(at).child("weight");
            document.invalid(&path, one.weight.into(), "must be in the range 1-100");
        }
    }
    NodeAffinityArgs { added_affinity }
}

fn check_term(document: &mut Document, path: &FieldPath, term: &NodeSelectorTerm) {
    for (at, one) in term.match_expressions.iter().enumerate() {
        let path = path.child("matchExpressions").index(at);
        check_name(document, &path.child("key"), &one.key);
        check_requirement(document, &path, one);
    }
    for (at, one) in term.match_fields.iter().enumerate() {
        let path = path.child("matchFields").index(at);
        if &*one.key != "metadata.name" {
            let detail = "not a valid field selector key";
            document.invalid_text(&path.child("key"), &one.key, detail);
        }
        check_requirement(document, &path, one);
    }
}

fn check_requirement(document: &mut Document, path: &FieldPath, one: &Requirement) {
    let values = path.child("values");
    match &*one.operator {
        "In" | "NotIn" if one.values.is_empty() => {
            document.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !one.values.is_empty() => {
            document.forbidden(
                &values,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            );
        }
        "Gt" | "Lt" if one.values.len() != 1 => {
            document.required(
                &values,
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            );
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => document.invalid_text(&path.child("operator"), other, "not a valid selector operator"),
    }
}

fn preemption(document: &mut Document, args: &mut Object<'_>) -> DefaultPreemptionArgs {
    let (share, number) = ("minCandidateNodesPercentage", "minCandidateNodesAbsolute");
    let percentage = args.integer(document, share, 10);
    let absolute = args.integer(document, number, 100);
    if !(0..=100).contains(&percentage) {
        document.invalid(&args.path(share), percentage, "not in valid range [0, 100]");
    }
    if absolute < 0 {
        document.invalid(&args.path(number), absolute, "not in valid range [0, inf)");
    }
    if percentage == 0 && absolute == 0 {
        for (name, other) in [(share, number), (number, share)] {
            let detail = format!("cannot be zero at the same time as {other}");
            document.invalid(&args.path(name), 0, &detail);
        }
    }
    DefaultPreemptionArgs {
        min_candidate_nodes_percentage: usize::try_from(percentage).unwrap_or(0),
        min_candidate_nodes_absolute: usize::try_from(absolute).unwrap_or(0),
    }
}

fn volume_binding(document: &mut Document, args: &mut Object<'_>) -> VolumeBindingArgs {
    let name = "bindTimeoutSeconds";
    let seconds = args.integer(document, name, 600);
    if seconds < 0 {
        let detail = "invalid BindTimeoutSeconds, should not be a negative value";
        document.invalid(&args.path(name), seconds, detail);
    }
    if seconds > MAX_BIND_TIMEOUT_SECONDS {
        let detail = format!("must be less than or equal to {MAX_BIND_TIMEOUT_SECONDS}");
        document.invalid(&args.path(name), seconds, &detail);
    }
    let given = shape(document, args);
    let default = VolumeBindingArgs::default();
    let shape = if given.is_empty() {
        default.shape
    } else {
        check_shape(document, &args.path("shape"), &given);
        scored(given)
    };
    VolumeBindingArgs {
        bind_timeout: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
        shape,
    }
}

fn dynamic_resources(document: &mut Document, args: &mut Object<'_>) -> DynamicResourcesArgs {
    let (filter, binding) = ("filterTimeout", "bindingTimeout");
    let least = "must be at least 1 second";
    let filter_timeout = args.duration(document, filter, "must be zero or positive");
    let binding_timeout = args.duration(document, binding, least);
    let default = DynamicResourcesArgs::default().binding_timeout;
    let (path, text) = (args.path(binding), args.string(document, binding));
    let is_negative = text.starts_with('-');
    if !is_negative && binding_timeout.is_some_and(|own| own < Duration::from_secs(1)) {
        document.invalid_shown(&path, &text, least);
    }
    if !is_negative && binding_timeout.is_some_and(|own| own > MAX_BINDING_TIMEOUT) {
        let detail = format!("must be less than or equal to {}s", MAX_BINDING_TIMEOUT.as_secs());
        document.invalid_shown(&path, &text, &detail);
    }
    DynamicResourcesArgs {
        filter_timeout,
        binding_timeout: binding_timeout.unwrap_or(default),
    }
}

/// A qualified name: one of a label, or of a resource.
fn check_name(document: &mut Document, path: &FieldPath, name: &str) {
    for problem in qualified_name(name) {
        document.invalid_text(path, name, &problem);
    }
}
