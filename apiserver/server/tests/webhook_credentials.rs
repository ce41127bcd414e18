//! Credentials that the server shows admission webhooks (`kubeConfigFile` of their plugins' configuration).

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;
mod tls_server;

use apiserver_server::{Server, ServerConfig};
use apiserver_storage::LogStorage;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use common::{config, start_with};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use machinery_runtime::Runtime;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tls_server::TlsServer;
use tokio::net::TcpListener;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

type Seen = Arc<Mutex<Vec<Vec<(String, String)>>>>;

/// Allows everything, and notes the headers of credentials.
async fn answer(request: Request<Incoming>, seen: Seen) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let is_credential = |name: &str| name == "authorization" || name.starts_with("impersonate-");
    let headers = request.headers().iter();
    let headers = headers
        .filter(|(name, _)| is_credential(name.as_str()))
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    seen.lock().unwrap().push(headers.collect());
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let response = json!({"uid": review["request"]["uid"], "allowed": true});
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Ok(Response::new(Full::new(review.to_string().into())))
}

fn configured(folder: &Path, plugin: &str, configuration: &Value) -> ServerConfig {
    let path = folder.join("admission.yaml");
    let plugins = json!([{"name": plugin, "configuration": configuration}]);
    let file = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins});
    std::fs::write(&path, file.to_string()).unwrap();
    ServerConfig {
        admission_control_config_file: Some(path),
        ..config()
    }
}

fn admission(fields: &Value) -> Value {
    let mut own =
        json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration"});
    own.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    own
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_is_shown_the_credentials_for_its_address() {
    let runtime = Runtime::real();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(Vec::new()).unwrap();
    let own = own.signed_by(&key, &authority).unwrap();
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let serve = move |request| answer(request, Arc::clone(&noted));
    let hook = TlsServer::start_at(&runtime, (listener, &["127.0.0.1"]), Some(authority.der()), serve);
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let user = json!({
        "client-certificate-data": STANDARD.encode(own.pem()),
        "client-key-data": STANDARD.encode(key.serialize_pem()),
        "token": "of-the-server",
        "as": "anna",
    });
    let users = json!([{"name": hook.address.to_string(), "user": user}, {"name": "*", "user": {"token": "of-others"}}]);
    std::fs::write(&kubeconfig, json!({"users": users}).to_string()).unwrap();
    let configuration = admission(&json!({"kubeConfigFile": kubeconfig}));
    let config = configured(folder.path(), "ValidatingAdmissionWebhook", &configuration);
    let cluster = start_with(config).await;
    let webhook = json!({
        "name": "own.hooks.example",
        "clientConfig": {"url": format!("https://{}/", hook.address), "caBundle": STANDARD.encode(&hook.authority)},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let object = json!({"metadata": {"name": "own"}, "webhooks": [webhook]});
    cluster.admin().post(path, object.to_string()).await.is(201);
    let mut number = 0;
    while seen.lock().unwrap().is_empty() {
        let object = json!({"metadata": {"name": format!("m{number}")}});
        cluster
            .admin()
            .post(CONFIG_MAPS, object.to_string())
            .await
            .is(201);
        number += 1;
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
    let expected = [
        ("authorization", "Bearer of-the-server"),
        ("impersonate-user", "anna"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(seen.lock().unwrap()[0], expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_of_admission_are_refused_by_name() {
    for plugin in [
        "MutatingAdmissionWebhook",
        "ValidatingAdmissionWebhook",
        "MutatingAdmissionPolicy",
        "ValidatingAdmissionPolicy",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let configuration = admission(&json!({"staticManifestsDir": folder.path()}));
        let runtime = Runtime::real();
        let storage = Arc::new(LogStorage::memory(&runtime).await.unwrap());
        let config = configured(folder.path(), plugin, &configuration);
        let started = Server::builder(storage).config(config).start(&runtime).await;
        let error: Box<dyn std::error::Error> = Box::new(started.err().unwrap());
        let why = error.source().unwrap().to_string();
        let expected = format!(
            "couldn't init admission plugin {plugin:?}: staticManifestsDir: Forbidden: manifests of admission are not read by this server"
        );
        assert_eq!(why, expected);
    }
}
