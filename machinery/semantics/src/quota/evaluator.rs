//! Evaluators: one for each resource, and counting for every other.

use super::measured::Measured;
use super::resource_claims::{self, DeviceClasses};
use super::{pods, services, volume_claims};
use crate::ResourceList;
use machinery_meta::Quantity;

/// Kinds that no quota counts: requests that store nothing, and events.
const IGNORED: [(&str, &str); 10] = [
    ("", "bindings"),
    ("", "componentstatuses"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("", "events"),
    ("events.k8s.io", "events"),
];

/// Resources that quotas also count under their bare names.
const ALIASES: [&str; 4] = [
    "configmaps",
    "resourcequotas",
    "replicationcontrollers",
    "secrets",
];

/// The evaluator of one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evaluator {
    Pods,
    Services,
    VolumeClaims,
    ResourceClaims,
    /// Counts objects, under these names.
    Count(Vec<String>),
}

/// Reports whether no quota counts a resource.
pub fn is_ignored(group: &str, resource: &str) -> bool {
    IGNORED.contains(&(group, resource))
}

/// The name under which quotas count a resource's objects.
pub fn count_name(group: &str, resource: &str) -> String {
    match group {
        "" => format!("count/{resource}"),
        group => format!("count/{resource}.{group}"),
    }
}

/// Group and resource that a name of a quota counts by number alone: `count/deployments.apps`, `secrets`.
pub fn counted_resource(name: &str) -> Option<(&str, &str)> {
    if ALIASES.contains(&name) {
        return Some(("", name));
    }
    let counted = name.strip_prefix("count/")?;
    let (resource, group) = counted.split_once('.').unwrap_or((counted, ""));
    Some((group, resource))
}

impl Evaluator {
    pub fn of(group: &str, resource: &str) -> Self {
        match (group, resource) {
            ("", "pods") => Self::Pods,
            ("", "services") => Self::Services,
            ("", "persistentvolumeclaims") => Self::VolumeClaims,
            ("resource.k8s.io", "resourceclaims") => Self::ResourceClaims,
            _ => {
                let alias = (group.is_empty() && ALIASES.contains(&resource)).then(|| resource.to_owned());
                let names = [count_name(group, resource)].into_iter().chain(alias);
                Self::Count(names.collect())
            }
        }
    }

    /// The measure of an object that is only counted.
    pub fn count(&self) -> Measured {
        match self {
            Self::Count(names) => Measured::one_of_each(names.iter().map(String::as_str)),
            _ => Measured::default(),
        }
    }

    /// The usage of so many objects that are only counted.
    pub fn count_of(&self, objects: i64) -> ResourceList {
        let names = match self {
            Self::Count(names) => names.as_slice(),
            _ => &[],
        };
        let amount = Quantity::from_units(objects);
        ResourceList(names.iter().map(|name| (name.clone(), amount)).collect())
    }

    /// Reports whether a quota's resource is one of this evaluator's.
    pub fn matches_resource(&self, name: &str, classes: &DeviceClasses) -> bool {
        match self {
            Self::Pods => pods::matches_resource(name),
            Self::Services => services::RESOURCES.contains(&name),
            Self::VolumeClaims => volume_claims::matches_resource(name),
            Self::ResourceClaims => resource_claims::matches_resource(name, classes),
            Self::Count(names) => names.iter().any(|own| own == name),
        }
    }

    /// Reports whether an evaluator has scopes that must be covered where they are limited by default.
    pub(super) fn has_scopes(&self) -> bool {
        matches!(self, Self::Pods | Self::VolumeClaims)
    }

    /// Reports whether a create of a resource or subresource may change usage.
    pub fn handles_create(&self, subresource: &str) -> bool {
        subresource.is_empty()
    }

    /// Reports whether an update may, whatever it changes.
    pub fn may_handle_update(&self, subresource: &str) -> bool {
        match self {
            Self::Pods => matches!(subresource, "" | "resize"),
            Self::Services | Self::ResourceClaims => subresource.is_empty(),
            Self::VolumeClaims => matches!(subresource, "" | "status"),
            Self::Count(_) => false,
        }
    }

    /// Reports whether this update does.
    pub fn handles_update(&self, subresource: &str, old: &Measured, new: &Measured) -> bool {
        match (self, subresource) {
            (Self::Pods, "") => old.is_terminating() != new.is_terminating(),
            (Self::VolumeClaims, "status") => old != new,
            _ => self.may_handle_update(subresource),
        }
    }
}
