//! Requests and limits.

use super::volumes::Known;
use crate::kinds::core::pod::level::{self, Together};
use crate::shared::validation::{
    Errors, Path, container_resource_name, may_overcommit, present, quantity, resource_amount, resource_name,
};
use machinery_meta::{FieldError, Quantity};
use machinery_schema::Ref;
use machinery_semantics::resources::is_pod_level_resource;
use std::collections::BTreeSet;

/// Validates the name of a resource.
type NameRule = fn(&mut Errors, &Path<'_>, &str);

/// A container's requests and limits.
pub fn validate_container(
    errors: &mut Errors,
    path: &Path<'_>,
    requirements: Ref<'_>,
    spec: Ref<'_>,
    known: &Known<'_>,
) {
    validate(errors, path, requirements, (spec, known), container_resource_name);
}

/// Checks the resources of a pod as a whole, and that its containers' fit in.
pub fn validate_pod(
    errors: &mut Errors,
    path: &Path<'_>,
    requirements: Ref<'_>,
    spec: Ref<'_>,
    known: &Known<'_>,
) {
    if spec.str_at(&["os", "name"]) == "windows" {
        return errors.forbidden(path, "may not be set for a windows pod");
    }
    if present(requirements, "claims").is_some() {
        let detail = "claims may not be set for Resources at pod-level";
        errors.forbidden(&path.child("claims"), detail);
    }
    validate(errors, path, requirements, (spec, known), pod_resource_name);
    if let Some(together) = Together::of(spec) {
        cover_containers(errors, path, spec, &together);
    }
    let limits = level::amounts(spec, "limits");
    let containers = path.child("containers");
    for (index, container) in spec.list("containers").enumerate() {
        let at = containers.index(index);
        for (name, own) in level::amounts(container, "limits") {
            if let Some(limit) = limits.get(&name).filter(|limit| own > **limit) {
                let detail = format!("must be less than or equal to pod limits of {limit}");
                errors.invalid(&at.key(&name).child("limits"), own.to_string(), detail);
            }
        }
    }
}

/// Validates that the pod's requests, and its limits of huge pages, are at least those of its containers together.
fn cover_containers(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, together: &Together) {
    let lists = [("requests", &together.requests), ("limits", &together.limits)];
    for (list, needed) in lists {
        let (own, at) = (level::amounts(spec, list), path.child(list));
        let counted = needed
            .iter()
            .filter(|(name, _)| list == "requests" || level::is_huge_page(name));
        for (name, needed) in counted {
            if let Some(own) = own.get(name).filter(|own| needed > **own) {
                let detail =
                    format!("must be greater than or equal to aggregate container {list} of {needed}");
                errors.invalid(&at.key(name), own.to_string(), detail);
            }
        }
    }
}

fn validate(
    errors: &mut Errors,
    path: &Path<'_>,
    requirements: Ref<'_>,
    pod: (Ref<'_>, &Known<'_>),
    name_rule: NameRule,
) {
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    let limits = requirements.get("limits");
    for (name, value) in limits.into_iter().flat_map(Ref::entries) {
        amount(errors, &limits_path.key(name), name, value, name_rule);
    }
    for (name, value) in requirements.get("requests").into_iter().flat_map(Ref::entries) {
        amount(errors, &requests_path.key(name), name, value, name_rule);
        match limits.and_then(|limits| limits.get(name)).and_then(quantity) {
            Some(limit) => within_limit(errors, &requests_path, name, value, limit),
            None if !may_overcommit(name) => {
                errors.required(&limits_path, "Limit must be set for non overcommitable resources");
            }
            None => {}
        }
    }
    claims(errors, &path.child("claims"), requirements, pod);
    let named = |wanted: &dyn Fn(&str) -> bool| {
        ["limits", "requests"]
            .iter()
            .filter_map(|list| requirements.get(list))
            .flat_map(Ref::entries)
            .any(|(name, _)| wanted(name))
    };
    if named(&|name| name.starts_with("hugepages-")) && !named(&|name| name == "cpu" || name == "memory") {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}

/// Validates a pod's overhead; upstream validates it as if it were limits.
pub fn overhead(errors: &mut Errors, path: &Path<'_>, overhead: Ref<'_>) {
    let path = path.child("limits");
    for (name, value) in overhead.entries() {
        amount(errors, &path.key(name), name, value, container_resource_name);
    }
}

fn within_limit(errors: &mut Errors, path: &Path<'_>, name: &str, value: Ref<'_>, limit: Quantity) {
    let Some(request) = quantity(value) else { return };
    if request != limit && !may_overcommit(name) {
        errors.invalid(
            path,
            request.to_string(),
            format!("must be equal to {name} limit of {limit}"),
        );
    } else if request > limit {
        let detail = format!("must be less than or equal to {name} limit of {limit}");
        errors.invalid(path, request.to_string(), detail);
    }
}

fn amount(errors: &mut Errors, path: &Path<'_>, name: &str, value: Ref<'_>, name_rule: NameRule) {
    name_rule(errors, path, name);
    resource_amount(errors, path, name, value);
}

/// Few resources are had by a pod as a whole.
fn pod_resource_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    if resource_name(errors, path, name) && !is_pod_level_resource(name) {
        errors.not_supported(path, name, &["cpu", "hugepages-", "memory"]);
    }
}

fn claims(errors: &mut Errors, path: &Path<'_>, requirements: Ref<'_>, (spec, known): (Ref<'_>, &Known<'_>)) {
    let mut seen = BTreeSet::new();
    for (index, claim) in requirements.list("claims").enumerate() {
        let at = path.index(index);
        let name = claim.str("name");
        if name.is_empty() {
            errors.required(&at, "");
            continue;
        }
        let key = (name, claim.str("request"));
        if seen.contains(&key) {
            errors.duplicate(&at, name);
        }
        seen.insert(key);
        if !known.has_resource_claim(name) && !errors.is_full() {
            let names: Vec<&str> = spec.list("resourceClaims").map(|own| own.str("name")).collect();
            let rest = match names.is_empty() {
                true => " which is empty".to_owned(),
                false => format!(": {}", names.join(", ")),
            };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{rest}");
            let problem = FieldError::not_found(&at.to_path(), name);
            errors.push(FieldError { detail, ..problem });
        }
    }
}

/// Validates the restart policies for a resize in place.
pub fn resize_policy(errors: &mut Errors, path: &Path<'_>, container: Ref<'_>, spec: Ref<'_>) {
    let mut seen = BTreeSet::new();
    for (index, policy) in container.list("resizePolicy").enumerate() {
        let (resource, restart) = (policy.str("resourceName"), policy.str("restartPolicy"));
        if seen.contains(&resource) {
            errors.duplicate(&path.index(index), resource);
        }
        seen.insert(resource);
        match resource {
            "cpu" | "memory" => {}
            "" => errors.required(path, ""),
            other => errors.not_supported(path, other, &["cpu", "memory"]),
        }
        match restart {
            "NotRequired" | "RestartContainer" => {}
            "" => errors.required(path, ""),
            other => errors.not_supported(path, other, &["NotRequired", "RestartContainer"]),
        }
        if spec.str("restartPolicy") == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(path, restart, detail);
        }
    }
}
