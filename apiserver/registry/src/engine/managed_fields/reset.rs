//! Fields that a kind's strategy puts back whatever a write says: they get no owner through that address.
//!
//! Upstream: the `GetResetFields` of each strategy.

use crate::engine::row::ResourceRow;
use crate::engine::strategy::ObjectPart;
use machinery_schema::apply::FieldSet;

/// Paths that are put back, with all below them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reset(&'static [&'static [&'static str]]);

const STATUS: Reset = Reset(&[&["status"]]);
const SPEC: Reset = Reset(&[&["spec"]]);
const SPEC_AND_METADATA: Reset = Reset(&[&["spec"], &["metadata"]]);

impl Reset {
    pub(super) const NONE: Self = Self(&[]);

    /// Members of the root that are put back as a whole, but for metadata, which is no member to leave out.
    pub(super) fn members(self) -> impl Iterator<Item = &'static str> {
        let whole = self.0.iter().filter_map(|path| match path {
            [member] => Some(*member),
            _ => None,
        });
        whole.filter(|member| *member != "metadata")
    }

    /// Reports whether the reset consists of whole members of the root.
    pub(super) fn is_of_members(self) -> bool {
        self.members().count() == self.0.len()
    }

    /// The fields of a set that are not put back.
    pub(super) fn kept(self, mut fields: FieldSet) -> FieldSet {
        for path in self.0 {
            fields.forget(path);
        }
        fields
    }
}

/// Fields that are reset when a part of a kind is written.
pub(super) fn of(row: &ResourceRow, part: ObjectPart) -> Reset {
    match part {
        ObjectPart::Status if row.custom => SPEC_AND_METADATA,
        ObjectPart::Status => of_status(&row.gvk.group, &row.plural),
        ObjectPart::Main if row.plural == "certificatesigningrequests" && !row.custom => {
            Reset(&[&["spec"], &["status"]])
        }
        ObjectPart::Main if row.has_status() => STATUS,
        ObjectPart::Other("approval") => Reset(&[&["spec"], &["status", "certificate"]]),
        ObjectPart::Other("finalize") => STATUS,
        _ => Reset::NONE,
    }
}

fn of_status(group: &str, plural: &str) -> Reset {
    match (group, plural) {
        ("", "pods") => Reset(&[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ]),
        ("apps", "deployments") => Reset(&[&["spec"], &["metadata", "labels"]]),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            Reset(&[&["spec"], &["status", "conditions"]])
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
