//! A request as admission plugins see it (apiserver's `admission.Attributes`), without the objects.

use crate::Remarks;
use crate::host::Host;
use crate::reinvocation::Reinvocation;
use machinery_meta::{GroupResource, Operation, UserInfo};

/// Reviews that no webhook and no policy sees.
const UNSEEN_REVIEWS: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// See the module.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub user: &'a UserInfo,
    pub operation: Operation,
    pub group: &'a str,
    pub kind: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    /// Empty while a name is still to be generated.
    pub name: &'a str,
    pub dry_run: bool,
    pub remarks: &'a dyn Remarks,
    /// The rest of the request, for webhooks and policies.
    pub host: Option<&'a dyn Host>,
    /// State of the passes over mutating plugins; the chain sets it.
    pub reinvocation: Option<&'a Reinvocation>,
}

impl Request<'_> {
    /// Reports whether the request addresses the resource itself, in this group, and no subresource.
    pub fn is(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_empty() && self.group == group && self.resource == resource
    }

    /// Reports whether the request is for something in a namespace, which is no namespace itself.
    pub(crate) fn is_in_namespace(&self) -> bool {
        !self.namespace.is_empty() && (self.group, self.resource) != ("", "namespaces")
    }

    /// Reports whether webhooks and policies may see the request at all: if they refused reviews of access, no request could pass.
    pub(crate) fn may_be_seen(&self) -> bool {
        self.host.is_some() && !UNSEEN_REVIEWS.contains(&(self.group, self.resource))
    }

    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(self.group, self.resource)
    }
}
