//! Facts of the cluster that its nodes need: a ConfigMap, written by the server and read by nodes at their start.

use anyhow::Context;
use apiserver_server::pki::write_private;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipnet::Ipv4Net;
use machinery_client::{ApiResource, Client, ClientError, Patch};
use machinery_meta::ObjectKey;
use serde_json::{Value, json};
use std::path::Path;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "knarr-node-config";
const DOMAIN: &str = "cluster-domain";
const PODS: &str = "cluster-cidr";
const SERVICES: &str = "service-cluster-ip-range";
/// Copy in the agent's folder, for starts while the server is away.
const COPY: &str = "cluster-facts.json";

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterFacts {
    /// The cluster's DNS domain.
    pub(crate) cluster_domain: String,
    /// Addresses of all pods.
    pub(crate) cluster_cidr: Ipv4Net,
    /// Addresses of all services.
    pub(crate) service_cluster_ip_range: Ipv4Net,
}

impl ClusterFacts {
    fn to_data(&self) -> Value {
        json!({
            DOMAIN: self.cluster_domain,
            PODS: self.cluster_cidr.to_string(),
            SERVICES: self.service_cluster_ip_range.to_string(),
        })
    }

    fn of_data(data: &Value) -> anyhow::Result<Self> {
        let text = |key: &str| {
            let found = data[key].as_str();
            found.with_context(|| format!("{NAMESPACE}/{NAME} has no {key}"))
        };
        Ok(Self {
            cluster_domain: text(DOMAIN)?.to_owned(),
            cluster_cidr: text(PODS)?.parse().context(PODS)?,
            service_cluster_ip_range: text(SERVICES)?.parse().context(SERVICES)?,
        })
    }
}

fn maps() -> ApiResource {
    ApiResource {
        group: "".into(),
        version: "v1".into(),
        plural: "configmaps".into(),
        kind: "ConfigMap".into(),
        namespaced: true,
    }
}

/// Writes the facts for nodes, and `cluster-info` for bearers of a token.
pub(crate) async fn publish(
    client: &Client,
    facts: Option<&ClusterFacts>,
    server: &str,
    authority: &str,
) -> Result<(), ClientError> {
    let cluster = json!({"server": server, "certificate-authority-data": STANDARD.encode(authority)});
    let info = json!({"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "", "cluster": cluster}],
        "contexts": [], "users": [], "preferences": {}, "current-context": ""});
    apply(
        client,
        "kube-public",
        "cluster-info",
        &json!({"kubeconfig": info.to_string()}),
    )
    .await?;
    match facts {
        Some(facts) => apply(client, NAMESPACE, NAME, &facts.to_data()).await,
        None => Ok(()),
    }
}

async fn apply(client: &Client, namespace: &str, name: &str, data: &Value) -> Result<(), ClientError> {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": name, "namespace": namespace}});
    let patch = Patch::Apply {
        manager: "knarr".to_owned(),
        force: true,
    };
    let key = ObjectKey::new(namespace, name);
    client.patch(&maps(), &key, "", &patch, &map).await.map(drop)
}

/// Reads the facts as the node, or those of the last start while the server is away.
pub(super) async fn read(client: &Client, folder: &Path) -> anyhow::Result<ClusterFacts> {
    let copy = folder.join(COPY);
    let found = client
        .get_as::<Value>(&maps(), &ObjectKey::new(NAMESPACE, NAME))
        .await;
    match found {
        Ok(map) => {
            let facts = ClusterFacts::of_data(&map["data"])?;
            write_private(&copy, &map["data"].to_string())?;
            Ok(facts)
        }
        Err(error) => {
            let Ok(text) = std::fs::read_to_string(&copy) else {
                return Err(anyhow::Error::new(error).context("reading the cluster's ranges and domain"));
            };
            tracing::warn!(%error, "the cluster's ranges and domain are those of the last start");
            ClusterFacts::of_data(&serde_json::from_str(&text)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_a_cluster_are_read_as_they_were_written() {
        let facts = ClusterFacts {
            cluster_domain: "cluster.test".to_owned(),
            cluster_cidr: "10.1.0.0/16".parse().unwrap(),
            service_cluster_ip_range: "10.2.0.0/16".parse().unwrap(),
        };
        assert_eq!(ClusterFacts::of_data(&facts.to_data()).unwrap(), facts);
        let mut lacking = facts.to_data();
        lacking.as_object_mut().unwrap().remove(PODS);
        assert!(ClusterFacts::of_data(&lacking).is_err());
    }
}
