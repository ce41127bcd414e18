//! The `kube-dns` service: its address is where pods resolve names. The nodes answer there themselves, so the service
//! has no selector and no endpoints, and says that it is not the proxy's: a proxy would refuse what has no endpoints.

use super::{ObjectAddress, Startup};
use apiserver_registry::RegistryError;
use futures::future::BoxFuture;

const SERVICE: ObjectAddress<'_> = ObjectAddress {
    group: "",
    plural: "services",
    namespace: "kube-system",
    name: "kube-dns",
};

pub(super) fn reconcile(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        let Some(address) = facts.core.config.cluster_dns_ip() else {
            return Ok(());
        };
        let labels = r#"{"k8s-app":"kube-dns","kubernetes.io/cluster-service":"true","kubernetes.io/name":"CoreDNS","service.kubernetes.io/service-proxy-name":"knarr-dns"}"#;
        let ports = r#"[{"name":"dns","protocol":"UDP","port":53,"targetPort":53},{"name":"dns-tcp","protocol":"TCP","port":53,"targetPort":53}]"#;
        let json = format!(
            r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"kube-dns","namespace":"kube-system","labels":{labels}}},"spec":{{"ports":{ports},"clusterIP":"{address}","clusterIPs":["{address}"],"sessionAffinity":"None","type":"ClusterIP"}}}}"#
        );
        match facts.create(SERVICE, &json).await {
            // Another service has the address: names are answered all the same, and the server starts.
            Err(RegistryError::Invalid { .. }) => {
                tracing::warn!(%address, "the kube-dns service was not made: its address is taken");
                Ok(())
            }
            other => other.map(drop),
        }
    })
}
