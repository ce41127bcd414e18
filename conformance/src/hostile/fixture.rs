//! Namespaces, identities and rights: the tenants' and the attacker's.

use super::tokens::TokenWebhook;
use super::traps::Traps;
use crate::bench::connection::{Connection, Target};
use anyhow::{Context, Result};
use bytes::Bytes;
use http::Method;
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The attacker, with the rights of an editor in a namespace.
pub(super) const ATTACKER: &str = "mallory";
pub(super) const TENANTS: [&str; 2] = ["anna", WEBHOOK_USER];
/// The tenant whose token a webhook knows; the other one has a service account.
pub(super) const WEBHOOK_USER: &str = "bert";
/// The network of the attackers' addresses, where the server is on this machine.
const LOOPBACK: [u8; 3] = [127, 66, 6];
const PATIENCE: Duration = Duration::from_secs(60);
/// A program of the machine's that pods of the attacker's run: the image has but one that says hello.
pub(super) const PROGRAM: &str = "/bin/busybox";

/// A tenant's way to the server.
#[derive(Debug, Clone)]
pub(super) struct Access {
    pub(super) namespace: &'static str,
    pub(super) target: Target,
}

/// Objects made for the hour.
#[derive(Debug)]
pub(super) struct Fixture {
    tenants: BTreeMap<&'static str, Access>,
    attacker_token: String,
    /// The address of a pod of the attacker's that runs, where there is a node.
    pub(super) pod: Option<String>,
    traps: Traps,
}

impl Fixture {
    pub(super) async fn prepare(
        runtime: &Runtime,
        admin: &Target,
        webhook: &TokenWebhook,
        node: bool,
    ) -> Result<Self> {
        let mut client = admin.connect().await?;
        let mut tenants = BTreeMap::new();
        for name in TENANTS {
            let own = identity(runtime, &mut client, name).await?;
            let token = match name {
                WEBHOOK_USER => webhook.token.clone(),
                _ => own,
            };
            let target = admin.for_client(Some(token), None)?;
            tenants.insert(
                name,
                Access {
                    namespace: name,
                    target,
                },
            );
        }
        let attacker_token = identity(runtime, &mut client, ATTACKER).await?;
        let traps = Traps::install(runtime, &mut client).await?;
        let pod = match node {
            true => Some(pod(runtime, &mut client).await?),
            false => None,
        };
        Ok(Self {
            tenants,
            attacker_token,
            pod,
            traps,
        })
    }

    pub(super) fn tenant(&self, name: &str) -> Access {
        self.tenants[name].clone()
    }

    pub(super) fn has_extension(&self) -> bool {
        self.traps.has_extension
    }

    pub(super) fn attacker_token(&self) -> String {
        self.attacker_token.clone()
    }
}

/// The attacker's way to a server, and that of clients without an identity: each from an address of its own.
pub(super) fn attackers(server: &Target, token: String) -> Result<(Access, Target)> {
    let target = server.for_client(Some(token), Some(loopback(1)))?;
    let access = Access {
        namespace: ATTACKER,
        target,
    };
    Ok((access, server.for_client(None, Some(loopback(2)))?))
}

fn loopback(host: u8) -> IpAddr {
    let [a, b, c] = LOOPBACK;
    Ipv4Addr::new(a, b, c, host).into()
}

/// A namespace, a service account and a user of its name that may edit it, and the account's token.
async fn identity(runtime: &Runtime, client: &mut Connection, name: &'static str) -> Result<String> {
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    post(client, "/api/v1/namespaces", &made).await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
    post(client, &accounts, &account).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": name}, {"kind": "User", "name": name}],
    });
    let bindings = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings");
    post(client, &bindings, &binding).await?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86_400}});
    let answer = post(client, &format!("{accounts}/{name}/token"), &request).await?;
    let token = answer["status"]["token"].as_str().context("no token")?.to_owned();
    until(runtime, "the namespace to be usable", async || {
        let path = format!("/api/v1/namespaces/{name}/configmaps/kube-root-ca.crt");
        client.call(Method::GET, &path, &[], Bytes::new()).await.is_ok()
    })
    .await?;
    Ok(token)
}

async fn post(client: &mut Connection, path: &str, object: &Value) -> Result<Value> {
    let answer = client.send_json(Method::POST, path, object.to_string()).await?;
    Ok(serde_json::from_slice(&answer)?)
}

/// A pod of the attacker's that runs; its address in the API.
async fn pod(runtime: &Runtime, client: &mut Connection) -> Result<String> {
    let pods = format!("/api/v1/namespaces/{ATTACKER}/pods");
    let container = json!({"name": "hello", "image": "knarr.local/hello:1", "imagePullPolicy": "IfNotPresent",
            "volumeMounts": [{"name": "program", "mountPath": PROGRAM}]});
    let program = json!({"name": "program", "hostPath": {"path": PROGRAM, "type": "File"}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "held", "labels": {"app": "v1"}},
        "spec": {"containers": [container], "volumes": [program]}});
    post(client, &pods, &pod).await?;
    let path = format!("{pods}/held");
    until(runtime, "a pod to run", async || {
        let Ok(answer) = client.call(Method::GET, &path, &[], Bytes::new()).await else {
            return false;
        };
        let pod: Value = serde_json::from_slice(&answer).unwrap_or_default();
        pod["status"]["phase"] == "Running"
    })
    .await?;
    Ok(path)
}

/// Waits until the tenants' pods run, whatever was done to their node.
pub(super) async fn waited_for_pods(runtime: &Runtime, admin: &Target) -> Result<()> {
    for tenant in TENANTS {
        let path = format!("/apis/apps/v1/namespaces/{tenant}/deployments/web");
        until(runtime, "the tenants' pods to be available", async || {
            let Ok(mut client) = admin.connect().await else {
                return false;
            };
            let Ok(answer) = client.call(Method::GET, &path, &[], Bytes::new()).await else {
                return false;
            };
            let found: Value = serde_json::from_slice(&answer).unwrap_or_default();
            found["status"]["availableReplicas"] == found["spec"]["replicas"]
        })
        .await?;
    }
    Ok(())
}

pub(super) async fn until(runtime: &Runtime, what: &str, mut look: impl AsyncFnMut() -> bool) -> Result<()> {
    let waiting = async {
        while !look().await {
            runtime.sleep(Duration::from_millis(50)).await;
        }
    };
    let ended = runtime.timeout(PATIENCE, waiting).await;
    ended.with_context(|| format!("waited {PATIENCE:?} for {what}"))
}
