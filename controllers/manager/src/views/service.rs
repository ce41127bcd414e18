//! Fields of a Service that controllers read.

use k8s_openapi::api::core::v1::ServicePort;
use machinery_client::{Index, LongList, Projection};
use machinery_meta::{ObjectHeader, TextMap};
use serde::Deserialize;

/// The projection of a Service.
#[derive(Debug, Clone, Default)]
pub struct ServiceView {
    /// `spec.selector`.
    pub selector: TextMap,
    /// `spec.ports`.
    pub ports: LongList<ServicePort>,
    /// `spec.clusterIP` is `None`.
    pub headless: bool,
    /// `spec.ipFamilies`.
    pub ip_families: Vec<String>,
    /// `spec.publishNotReadyAddresses`.
    pub publish_not_ready: bool,
    /// `spec.type` is `ExternalName`.
    pub external_name: bool,
}

impl ServiceView {
    /// Reports whether it selects pods of these labels; without a selector it selects none.
    pub fn selects(&self, pod: &ObjectHeader) -> bool {
        !self.selector.is_empty()
            && self
                .selector
                .iter()
                .all(|(key, value)| pod.label(key) == Some(value))
    }

    /// Comparisons that one pod may take: its labels with the selector, its ports with the service's.
    pub fn steps(&self) -> usize {
        1 + self.selector.len() + self.ports.most_items()
    }
}

impl Projection for ServiceView {
    const INDEXES: &'static [Index<Self>] = &[Index::NAMESPACE];

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let spec = machinery_client::json::from_slice::<Service>(json)?.spec;
        Ok(Self {
            selector: spec.selector,
            ports: spec.ports,
            headless: spec.cluster_ip == "None",
            ip_families: spec.ip_families,
            publish_not_ready: spec.publish_not_ready_addresses,
            external_name: spec.kind == "ExternalName",
        })
    }
}

#[derive(Deserialize)]
struct Service {
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    selector: TextMap,
    ports: LongList<ServicePort>,
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    ip_families: Vec<String>,
    publish_not_ready_addresses: bool,
    #[serde(rename = "type")]
    kind: String,
}
