//! The ConfigMap from which aggregated servers learn whose client certificates and front proxies to trust.

use super::{Place, Startup};
use apiserver_registry::{Part, RegistryError};
use futures::future::BoxFuture;
use serde_json::json;

const PLACE: Place<'_> = Place {
    group: "",
    plural: "configmaps",
    namespace: "kube-system",
    name: "extension-apiserver-authentication",
};

pub(super) fn reconcile(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        let data = json!({
            "client-ca-file": facts.pki.cluster.certificate_pem(),
            "requestheader-allowed-names": "[\"front-proxy-client\"]",
            "requestheader-client-ca-file": facts.pki.front_proxy.certificate_pem(),
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
        });
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": PLACE.name, "namespace": PLACE.namespace },
            "data": data,
        });
        if !facts.create(PLACE, &object.to_string()).await? {
            facts
                .patch(PLACE, Part::Main, &json!({ "data": data }).to_string())
                .await?;
        }
        Ok(())
    })
}
