//! Projection of a ResourceClaim.

use machinery_client::{Index, Projection};
use machinery_meta::ObjectHeader;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// The annotation by which a claim says for which of a pod's claims it was made.
pub(crate) const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// The annotation of claims that the scheduler made for extended resources.
const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";

/// A ResourceClaim.
#[derive(Debug)]
pub(crate) struct DeviceClaimView {
    /// The pod's own name of the claim, where it was made for one.
    pub(crate) pod_claim: Option<Box<str>>,
    pub(crate) is_extended: bool,
    pub(crate) is_allocated: bool,
    pub(crate) has_admin_access: bool,
    /// `status.reservedFor`.
    pub(crate) reserved_for: Vec<Consumer>,
}

/// A consumer that a claim is reserved for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Consumer {
    pub(crate) api_group: Box<str>,
    pub(crate) resource: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
}

impl Consumer {
    pub(crate) fn is_pod(&self) -> bool {
        self.api_group.is_empty() && &*self.resource == "pods"
    }
}

/// A ResourceClaimTemplate, read from its bytes where a claim is made of it.
#[derive(Debug)]
pub(crate) struct TemplateView;

impl Projection for TemplateView {
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, _: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(Self)
    }
}

impl Projection for DeviceClaimView {
    const INDEXES: &'static [Index<Self>] = &[Index::NAMESPACE, Index::CONTROLLER];
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let claim: Claim = machinery_client::json::from_slice(json)?;
        let mut annotations = claim.metadata.annotations.unwrap_or_default();
        let requests = claim.spec.devices.requests.iter();
        let mut exactly = requests.filter_map(|own| own.exactly.as_ref());
        Ok(Self {
            is_extended: annotations.get(EXTENDED).is_some_and(|own| &**own == "true"),
            pod_claim: annotations.remove(POD_CLAIM),
            is_allocated: claim.status.allocation.is_some(),
            has_admin_access: exactly.any(|own| own.admin_access == Some(true)),
            reserved_for: claim.status.reserved_for,
        })
    }
}

#[derive(Deserialize)]
struct Claim {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default)]
    annotations: Option<BTreeMap<Box<str>, Box<str>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    devices: Devices,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Devices {
    requests: Vec<Request>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Request {
    exactly: Option<Exactly>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Exactly {
    admin_access: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    allocation: Option<IgnoredAny>,
    reserved_for: Vec<Consumer>,
}
