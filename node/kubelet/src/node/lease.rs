//! The node's lease: renewed every ten seconds, it says that we live.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::{Api, PostParams};
use machinery_runtime::Runtime;

const NAMESPACE: &str = "kube-node-lease";
pub(crate) const DURATION_SECONDS: i32 = 40;
const RENEW_AFTER: Duration = Duration::from_secs(10);
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Renews for ever.
pub(crate) async fn renew(runtime: Runtime, client: Client, node: Node) {
    let api: Api<Lease> = Api::namespaced(client, NAMESPACE);
    let mut last: Option<Lease> = None;
    loop {
        let outcome = once(&api, &node, last.take(), runtime.now()).await;
        let pause = match outcome {
            Ok(lease) => {
                last = Some(lease);
                RENEW_AFTER
            }
            Err(error) => {
                tracing::debug!(error = %error, "lease not renewed");
                RETRY_AFTER
            }
        };
        runtime.sleep(pause).await;
    }
}

async fn once(
    api: &Api<Lease>,
    node: &Node,
    last: Option<Lease>,
    now: Timestamp,
) -> Result<Lease, kube::Error> {
    let name = node.metadata.name.clone().unwrap_or_default();
    let known = match last {
        Some(lease) => Some(lease),
        None => api.get_opt(&name).await?,
    };
    let spec = LeaseSpec {
        holder_identity: Some(name.clone()),
        lease_duration_seconds: Some(DURATION_SECONDS),
        renew_time: Some(MicroTime(now)),
        ..LeaseSpec::default()
    };
    match known {
        Some(mut lease) => {
            lease.spec = Some(spec);
            api.replace(&name, &PostParams::default(), &lease).await
        }
        None => {
            let owner = OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: name.clone(),
                uid: node.metadata.uid.clone().unwrap_or_default(),
                ..OwnerReference::default()
            };
            let metadata = ObjectMeta {
                name: Some(name),
                namespace: Some(NAMESPACE.into()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            };
            api.create(
                &PostParams::default(),
                &Lease {
                    metadata,
                    spec: Some(spec),
                },
            )
            .await
        }
    }
}
