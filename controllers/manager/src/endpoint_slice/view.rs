//! A slice as we read and write it: the parts this controller owns.

use machinery_client::{Index, IndexName, Projection};
use machinery_meta::ObjectHeader;
use serde::{Deserialize, Serialize};

/// The projection of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SliceView {
    pub(super) address_type: String,
    pub(super) ports: Vec<Port>,
    pub(super) endpoints: Vec<Endpoint>,
}

/// A port of all endpoints of a slice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Port {
    #[serde(default)]
    pub(super) name: Box<str>,
    #[serde(default)]
    pub(super) protocol: Protocol,
    #[serde(default)]
    pub(super) port: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) app_protocol: Option<Box<str>>,
}

/// A port's protocol, without an allocation: a tenant's Service may dictate very many ports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Protocol {
    Sctp,
    Udp,
    /// Validation lets no other pass.
    #[default]
    #[serde(other)]
    Tcp,
}

impl Protocol {
    pub(super) fn of(text: &str) -> Self {
        match text {
            "SCTP" => Self::Sctp,
            "UDP" => Self::Udp,
            _ => Self::Tcp,
        }
    }
}

/// An endpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Endpoint {
    pub(super) addresses: Vec<String>,
    #[serde(default)]
    pub(super) conditions: Conditions,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hostname: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) target_ref: Option<TargetRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) zone: Option<String>,
}

/// Identity of an endpoint within its slices: addresses, hostname, and the namespace and name of its target (upstream's
/// `endpointHashObj`). Pods of a node's network share an address.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    addresses: Vec<String>,
    hostname: String,
    namespace: String,
    name: String,
}

impl Endpoint {
    /// Returns what the endpoint keeps when its conditions or its node change.
    pub(super) fn identity(&self) -> Identity {
        let target = self.target_ref.as_ref();
        let of_target = |field: fn(&TargetRef) -> &String| target.map(field).cloned().unwrap_or_default();
        let mut addresses = self.addresses.clone();
        addresses.sort();
        Identity {
            addresses,
            hostname: self.hostname.clone().unwrap_or_default(),
            namespace: of_target(|target| &target.namespace),
            name: of_target(|target| &target.name),
        }
    }
}

/// `conditions` of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Conditions {
    #[serde(default)]
    pub(super) ready: bool,
    #[serde(default)]
    pub(super) serving: bool,
    #[serde(default)]
    pub(super) terminating: bool,
}

/// The pod behind an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct TargetRef {
    pub(super) kind: String,
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) uid: String,
}

impl SliceView {
    /// Slices of a service, by `namespace/name`.
    pub(super) const SERVICE: IndexName = IndexName("service");
}

impl Projection for SliceView {
    const INDEXES: &'static [Index<Self>] = &[Index {
        name: Self::SERVICE,
        values: |slice, each| {
            if let Some(service) = slice.header.label(super::SERVICE_NAME) {
                each(&format!("{}/{service}", slice.namespace()));
            }
        },
    }];
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Slice {
            address_type: String,
            #[serde(default)]
            ports: Option<Vec<Port>>,
            #[serde(default)]
            endpoints: Option<Vec<Endpoint>>,
        }
        let slice: Slice = machinery_client::json::from_slice(json)?;
        let mut ports = slice.ports.unwrap_or_default();
        ports.shrink_to_fit();
        Ok(Self {
            address_type: slice.address_type,
            ports,
            endpoints: slice.endpoints.unwrap_or_default(),
        })
    }
}
