//! Things that an administrator installed and a tenant turns against the cluster: a definition whose rules cost much, a webhook
//! that never answers, and an extension whose answers trickle. This process serves the latter two.

use super::devices;
use super::fixture::{ATTACKER, until};
use crate::bench::connection::Connection;
use anyhow::{Context, Result};
use bytes::Bytes;
use http::Method;
use machinery_runtime::{Runtime, Scope};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Custom objects whose rules compare each of their items with every other.
pub(super) const DEAR: &str = "/apis/dear.example/v1/namespaces/mallory/dears";
/// The most items that one of them may have.
pub(super) const DEAR_ITEMS: usize = 400;
/// Objects that the extension answers for.
pub(super) const TRICKLING: &str = "/apis/trickle.example/v1/namespaces/mallory/things";
/// The webhook's address: attackers have others of this network.
const WEBHOOK: Ipv4Addr = Ipv4Addr::new(127, 66, 6, 3);
/// Time between two bytes of an answer.
const TRICKLE: Duration = Duration::from_secs(1);

/// The servers behind the webhook and the extension; dropping them ends both.
#[derive(Debug)]
pub(super) struct Traps {
    _serving: Scope,
    /// The server passes requests on to the extension: this machine has an address that it may call.
    pub(super) has_extension: bool,
}

impl Traps {
    pub(super) async fn install(runtime: &Runtime, client: &mut Connection) -> Result<Self> {
        let serving = runtime.child_scope();
        grant(client).await?;
        define(runtime, client).await?;
        hook(serving.runtime(), client).await?;
        devices::install(client).await?;
        let own = own_address();
        if let Some(own) = own {
            extend(serving.runtime(), client, own).await?;
        }
        Ok(Self {
            _serving: serving,
            has_extension: own.is_some(),
        })
    }
}

pub(super) async fn made(client: &mut Connection, path: &str, object: &Value) -> Result<()> {
    client
        .send_json(Method::POST, path, object.to_string())
        .await
        .map(drop)
}

/// Rights beyond an editor's: in the attacker's namespace, and that of users who request certificates.
async fn grant(client: &mut Connection) -> Result<()> {
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["*"]});
    let role = json!({"metadata": {"name": "traps"}, "rules": [rule("dear.example", &["dears"]), rule("trickle.example", &["things"]),
        rule("authorization.k8s.io", &["localsubjectaccessreviews"]), rule("", &["resourcequotas", "resourcequotas/status"])]});
    let subject = json!({"kind": "ServiceAccount", "name": ATTACKER, "namespace": ATTACKER});
    let binding = |kind: &str| {
        json!({"metadata": {"name": "traps"}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "traps"}})
    };
    let all = "/apis/rbac.authorization.k8s.io/v1";
    let rbac = format!("{all}/namespaces/{ATTACKER}");
    made(client, &format!("{rbac}/roles"), &role).await?;
    made(client, &format!("{rbac}/rolebindings"), &binding("Role")).await?;
    let role = json!({"metadata": {"name": "traps"}, "rules": [{"apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests"], "verbs": ["create", "get", "list", "watch", "delete"]}]});
    made(client, &format!("{all}/clusterroles"), &role).await?;
    made(
        client,
        &format!("{all}/clusterrolebindings"),
        &binding("ClusterRole"),
    )
    .await
}

/// As costly as a definition may be: its estimate stays below what the server accepts.
async fn define(runtime: &Runtime, client: &mut Connection) -> Result<()> {
    let items =
        json!({"type": "array", "maxItems": DEAR_ITEMS, "items": {"type": "string", "maxLength": 16}});
    let rule = json!({"rule": "self.items.all(one, self.items.filter(other, other == one).size() > 0)", "message": "never"});
    let spec = json!({"type": "object", "properties": {"items": items}, "x-kubernetes-validations": [rule]});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    let definition = json!({"metadata": {"name": "dears.dear.example"}, "spec": {"group": "dear.example", "scope": "Namespaced",
        "names": {"plural": "dears", "singular": "dear", "kind": "Dear", "listKind": "DearList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    made(
        client,
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &definition,
    )
    .await?;
    until(runtime, "the dear kind to be served", async || {
        client.call(Method::GET, DEAR, &[], Bytes::new()).await.is_ok()
    })
    .await
}

/// A webhook that is called for the attacker's Secrets, and whose server takes connections and says nothing on them.
async fn hook(runtime: &Runtime, client: &mut Connection) -> Result<()> {
    let listener = TcpListener::bind((WEBHOOK, 0))
        .await
        .context("the webhook's address")?;
    let url = format!("https://{}/never", listener.local_addr()?);
    let within = runtime.clone();
    let accepting = async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let silent = async move {
                let mut buffer = [0; 1_024];
                while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
            };
            within.spawn("silent webhook", silent).detach();
        }
    };
    runtime.spawn("silent webhook", accepting).detach();
    let rule =
        json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]});
    let configuration = json!({"metadata": {"name": "silent"}, "webhooks": [{"name": "silent.example.com",
        "clientConfig": {"url": url}, "rules": [rule], "failurePolicy": "Ignore", "timeoutSeconds": 10, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ATTACKER}}}]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    made(client, path, &configuration).await
}

/// An address of this machine that is not the loopback's: requests are not passed on to that.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then_some(address)
}

async fn extend(runtime: &Runtime, client: &mut Connection, own: IpAddr) -> Result<()> {
    let listener = TcpListener::bind((own, 0))
        .await
        .context("the extension's address")?;
    let port = listener.local_addr()?.port();
    serve(runtime, listener)?;
    let services = format!("/api/v1/namespaces/{ATTACKER}/services");
    let service = json!({"metadata": {"name": "trickle"}, "spec": {"ports": [{"name": "api", "port": 443}]}});
    made(client, &services, &service).await?;
    let slice = json!({"metadata": {"name": "trickle", "labels": {"kubernetes.io/service-name": "trickle"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": [own.to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "api", "port": port, "protocol": "TCP"}]});
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{ATTACKER}/endpointslices");
    made(client, &slices, &slice).await?;
    let registered = json!({"metadata": {"name": "v1.trickle.example"}, "spec": {"group": "trickle.example", "version": "v1",
        "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
        "service": {"namespace": ATTACKER, "name": "trickle", "port": 443}}});
    made(client, "/apis/apiregistration.k8s.io/v1/apiservices", &registered).await
}

/// Answers every request a byte at a time, without an end.
fn serve(runtime: &Runtime, listener: TcpListener) -> Result<()> {
    let own = rcgen::generate_simple_self_signed(["trickle.mallory.svc".to_owned()])?;
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let within = runtime.clone();
    let accepting = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let trickling = trickle(acceptor.clone(), stream, within.clone());
            within
                .spawn("trickling extension", async move { drop(trickling.await) })
                .detach();
        }
    };
    runtime.spawn("trickling extension", accepting).detach();
    Ok(())
}

async fn trickle(acceptor: TlsAcceptor, stream: TcpStream, runtime: Runtime) -> Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut request = [0; 4_096];
    anyhow::ensure!(stream.read(&mut request).await? > 0, "the server has left");
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n";
    stream.write_all(head).await?;
    loop {
        stream.write_all(b" ").await?;
        stream.flush().await?;
        runtime.sleep(TRICKLE).await;
    }
}
