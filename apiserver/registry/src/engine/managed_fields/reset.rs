//! Fields that a kind's strategy puts back whatever a write says: they get no owner through that address.
//!
//! Upstream: the `GetResetFields` and `GetResetFieldsFilter` of each strategy.

use crate::engine::row::ResourceRow;
use crate::engine::strategy::ObjectPart;
use machinery_schema::apply::{ANY_ELEMENT, FieldSet};

/// Fields that are put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reset {
    /// These paths, with all below them.
    Paths(&'static [&'static [&'static str]]),
    /// All but these paths, with all below them.
    AllBut(&'static [&'static [&'static str]]),
}

const STATUS: Reset = Reset::Paths(&[&["status"]]);
const SPEC: Reset = Reset::Paths(&[&["spec"]]);
const SPEC_AND_METADATA: Reset = Reset::Paths(&[&["spec"], &["metadata"]]);
const ALL_BUT_EPHEMERAL_CONTAINERS: Reset = Reset::AllBut(&[&["spec", "ephemeralContainers"]]);
/// Upstream names `resizePolicy` too, but joins its matcher with that of `resources` so that only the first one counts
/// (structured-merge-diff's `SetMatcher.Merge` finds no second wildcard).
const ALL_BUT_RESOURCES: Reset = Reset::AllBut(&[
    &["spec", "containers", ANY_ELEMENT, "resources"],
    &["spec", "initContainers", ANY_ELEMENT, "resources"],
]);

impl Reset {
    pub(super) const NONE: Self = Self::Paths(&[]);

    /// Members of the root that are put back as a whole, but for metadata, which is no member to leave out.
    pub(super) fn members(self) -> impl Iterator<Item = &'static str> {
        let paths = match self {
            Self::Paths(paths) => paths,
            Self::AllBut(_) => &[],
        };
        let whole = paths.iter().filter_map(|path| match path {
            [member] => Some(*member),
            _ => None,
        });
        whole.filter(|member| *member != "metadata")
    }

    /// Reports whether the reset consists of whole members of the root.
    pub(super) fn is_of_members(self) -> bool {
        matches!(self, Self::Paths(paths) if paths.len() == self.members().count())
    }

    /// The fields of a set that are not put back.
    pub(super) fn kept(self, mut fields: FieldSet) -> FieldSet {
        match self {
            Self::AllBut(paths) => fields.only(paths),
            Self::Paths(paths) => {
                for path in paths {
                    fields.forget(path);
                }
                fields
            }
        }
    }
}

/// Fields that are reset when a part of a kind is written.
pub(super) fn of(row: &ResourceRow, part: ObjectPart) -> Reset {
    match part {
        ObjectPart::Status if row.custom => SPEC_AND_METADATA,
        ObjectPart::Status => of_status(&row.gvk.group, &row.plural),
        ObjectPart::Main if row.plural == "certificatesigningrequests" && !row.custom => {
            Reset::Paths(&[&["spec"], &["status"]])
        }
        ObjectPart::Main if row.has_status() => STATUS,
        ObjectPart::Other("approval") => Reset::Paths(&[&["spec"], &["status", "certificate"]]),
        ObjectPart::Other("finalize") => STATUS,
        ObjectPart::Other("ephemeralcontainers") => ALL_BUT_EPHEMERAL_CONTAINERS,
        ObjectPart::Other("resize") => ALL_BUT_RESOURCES,
        _ => Reset::NONE,
    }
}

fn of_status(group: &str, plural: &str) -> Reset {
    match (group, plural) {
        ("", "pods") => Reset::Paths(&[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ]),
        ("apps", "deployments") => Reset::Paths(&[&["spec"], &["metadata", "labels"]]),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            Reset::Paths(&[&["spec"], &["status", "conditions"]])
        }
        ("certificates.k8s.io", "podcertificaterequests")
        | ("networking.k8s.io", "servicecidrs")
        | ("storagemigration.k8s.io", "storageversionmigrations")
        | ("resource.k8s.io", "resourceclaims" | "devicetaintrules")
        | ("storage.k8s.io", "volumeattachments" | "csinodes")
        | ("flowcontrol.apiserver.k8s.io", "flowschemas" | "prioritylevelconfigurations")
        | ("admissionregistration.k8s.io", "validatingadmissionpolicies")
        | ("apiregistration.k8s.io", "apiservices") => SPEC_AND_METADATA,
        _ => SPEC,
    }
}

#[cfg(test)]
mod tests {
    use super::{FieldSet, ObjectPart, of};

    fn item(name: &str) -> String {
        format!(
            r#""k:{{\"name\":\"{name}\"}}":{{".":{{}},"f:image":{{}},"f:name":{{}},"f:resizePolicy":{{}},"f:resources":{{"f:limits":{{"f:cpu":{{}}}}}}}}"#
        )
    }

    /// Expected sets are those of structured-merge-diff 6.4.2 for the filters of pkg/registry/core/pod/strategy.go.
    #[track_caller]
    fn check(part: &'static str, expected: &str) {
        let rows = crate::kinds::built_in_rows();
        let pods = rows.into_iter().find(|row| row.plural == "pods").unwrap();
        let [a, i, e] = ["a", "i", "e"].map(item);
        let b = r#""k:{\"name\":\"b\"}":{".":{},"f:image":{}},"k:{\"name\":\"c\"}":{"f:image":{}}"#;
        let written = format!(
            r#"{{"f:metadata":{{"f:labels":{{"f:a":{{}}}}}},"f:spec":{{".":{{}},"f:containers":{{".":{{}},{a},{b}}},"f:ephemeralContainers":{{{e}}},"f:initContainers":{{{i}}},"f:resources":{{}},"f:restartPolicy":{{}}}}}}"#
        );
        let written = FieldSet::from_json(&written).unwrap();
        let kept = of(&pods, ObjectPart::Other(part)).kept(written);
        assert_eq!(kept.to_json(), expected);
    }

    #[test]
    fn owners_of_a_resize_are_those_of_resources() {
        check(
            "resize",
            r#"{"f:spec":{".":{},"f:containers":{".":{},"k:{\"name\":\"a\"}":{".":{},"f:resources":{"f:limits":{"f:cpu":{}}}},"k:{\"name\":\"b\"}":{}},"f:initContainers":{"k:{\"name\":\"i\"}":{".":{},"f:resources":{"f:limits":{"f:cpu":{}}}}}}}"#,
        );
    }

    #[test]
    fn owners_of_ephemeral_containers_are_those_of_their_list() {
        check(
            "ephemeralcontainers",
            r#"{"f:spec":{".":{},"f:ephemeralContainers":{"k:{\"name\":\"e\"}":{".":{},"f:image":{},"f:name":{},"f:resizePolicy":{},"f:resources":{"f:limits":{"f:cpu":{}}}}}}}"#,
        );
    }
}
