//! Approval of definitions in Kubernetes' own groups (upstream's `apihelpers.GetAPIApprovalState`).

use machinery_schema::Ref;

/// The annotation that names the approval: a URL, or a reason that begins with `unapproved`.
pub(super) const APPROVED: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// The approval that a definition's annotation states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Approval<'a> {
    Missing,
    Bypassed(&'a str),
    Approved(&'a str),
    Invalid(&'a str),
}

impl<'a> Approval<'a> {
    pub(super) fn of(object: Ref<'a>) -> Self {
        let text = object.str_at(&["metadata", "annotations", APPROVED]);
        let is_url = text
            .split_once("://")
            .is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/'));
        match text {
            "" => Self::Missing,
            text if text.starts_with("unapproved") => Self::Bypassed(text),
            _ if is_url => Self::Approved(text),
            _ => Self::Invalid(text),
        }
    }

    /// Upstream's explanation of the approval.
    pub(super) fn message(self) -> String {
        let rule = format!("protected groups must have approval annotation {APPROVED:?}");
        match self {
            Self::Missing => format!("{rule}, {SEE}"),
            Self::Bypassed(text) => format!("not approved: {text:?}"),
            Self::Approved(url) => format!("approved in {url}"),
            Self::Invalid(_) => {
                format!("{rule} with either a URL or a reason starting with \"unapproved\", {SEE}")
            }
        }
    }
}

/// Reports whether definitions in the group need an approval.
pub(super) fn is_protected(group: &str) -> bool {
    let within = |own: &str| {
        group
            .strip_suffix(own)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    within("k8s.io") || within("kubernetes.io")
}

/// The condition `KubernetesAPIApprovalPolicyConformant` of a definition.
#[derive(Debug)]
pub(crate) struct Conformance {
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The condition that upstream sets on definitions in protected groups; `None` for others.
pub(crate) fn conformance(definition: Ref<'_>) -> Option<Conformance> {
    let group = definition.get("spec")?.str("group");
    if !is_protected(group) {
        return None;
    }
    let approval = Approval::of(definition);
    let (status, reason) = match approval {
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Bypassed(_) => ("False", "UnapprovedAnnotation"),
        Approval::Approved(_) => ("True", "ApprovedAnnotation"),
        Approval::Invalid(_) => ("False", "InvalidAnnotation"),
    };
    Some(Conformance {
        status,
        reason,
        message: approval.message(),
    })
}
