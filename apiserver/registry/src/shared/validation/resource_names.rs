//! Names of resources (`cpu`, `requests.memory`, `example.com/gpu`), as upstream's `pkg/apis/core/helper` sorts them.

use super::{Errors, Path, quantity};
use machinery_meta::syntax;
use machinery_schema::Ref;

/// Resources that a container may name without a domain, huge pages aside.
const OF_CONTAINERS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Compute resources, which quotas also bound by requests and by limits.
const COMPUTE: [&str; 3] = OF_CONTAINERS;

/// Resources that are counted in whole numbers.
const INTEGERS: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// A name that means something somewhere in Kubernetes, or has a domain. Returns whether it is well formed.
pub fn resource_name(errors: &mut Errors, path: &Path<'_>, name: &str) -> bool {
    let problems = syntax::qualified_name(name);
    if !problems.is_empty() {
        errors.all_invalid(path, name, problems);
        return false;
    }
    let known = name.contains('/') || is_standard(name);
    if !known {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
    }
    known
}

/// A name that a container may request.
pub fn container_resource_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    resource_name(errors, path, name);
    if !name.contains('/') {
        if !OF_CONTAINERS.contains(&name) && !is_huge_page(name) {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native_resource(name) && !is_extended_resource(name) {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

/// A name that a quota may bound.
pub fn quota_resource_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    resource_name(errors, path, name);
    if !name.contains('/') && !is_quota_resource(name) {
        errors.invalid(path, name, "must be a standard resource for quota");
    }
}

/// An amount of a resource: not negative, and whole where the resource is counted.
pub fn resource_amount(errors: &mut Errors, path: &Path<'_>, name: &str, value: Ref<'_>) {
    let Some(amount) = quantity(value) else { return };
    if amount.is_negative() {
        errors.invalid(path, amount.to_string(), "must be greater than or equal to 0");
    }
    let integer = INTEGERS.contains(&name) || is_extended_resource(name);
    if integer && !amount.is_integer() {
        errors.invalid(path, amount.to_string(), "must be an integer");
    }
}

/// Reports whether quotas know a name without a domain.
pub fn is_quota_resource(name: &str) -> bool {
    name != "storage" && is_standard(name)
}

/// Reports whether limits of a resource may exceed what there is: native ones other than huge pages.
pub fn may_overcommit(name: &str) -> bool {
    is_native_resource(name) && !is_huge_page(name)
}

fn is_standard(name: &str) -> bool {
    let compute = |name: &str| COMPUTE.contains(&name);
    let part = |prefix: &str| name.strip_prefix(prefix);
    compute(name)
        || part("requests.").is_some_and(|own| compute(own) || own == "storage" || is_huge_page(own))
        || part("limits.").is_some_and(compute)
        || name == "storage"
        || is_huge_page(name)
        || INTEGERS.contains(&name)
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Reports whether a name is of Kubernetes itself.
pub fn is_native_resource(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended_resource(name: &str) -> bool {
    !is_native_resource(name)
        && !name.starts_with("requests.")
        && syntax::qualified_name(&format!("requests.{name}")).is_empty()
}
