//! One call of an extender: a POST of JSON, bounded in time and in the bytes of its answer.

use crate::config::{ExtenderConfig, ExtenderTls};
use crate::pod::PodInfo;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use machinery_meta::dial::{dial_error, system_error_text};
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Bytes of an answer beside twice those of its question.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// An extender and its connections.
#[derive(Clone)]
pub(super) struct Extender {
    pub(super) config: Arc<ExtenderConfig>,
    /// The reason where its URL or its certificates are none.
    http: Result<Arc<kube::Client>, Arc<str>>,
    runtime: Runtime,
}

impl fmt::Debug for Extender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extender")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Extender {
    pub(super) async fn new(config: &ExtenderConfig, runtime: &Runtime) -> Self {
        let http = connections(config).await;
        if let Err(why) = &http {
            tracing::error!(extender = %config.url_prefix, %why, "extender cannot be called");
        }
        Self {
            config: Arc::new(config.clone()),
            http: http.map(Arc::new).map_err(Into::into),
            runtime: runtime.clone(),
        }
    }

    pub(super) fn is_interested(&self, pod: &PodInfo) -> bool {
        let managed: &BTreeSet<Box<str>> = &self.config.managed_resources;
        super::concerns(managed, pod)
    }

    /// Posts to one of its verbs, and returns the body of the answer.
    pub(super) async fn post(&self, verb: &str, body: Vec<u8>) -> Result<Vec<u8>, String> {
        let url = format!("{}/{verb}", self.config.url_prefix.trim_end_matches('/'));
        let exchange = self.exchange(verb, &url, body);
        let answered = self.runtime.timeout(self.config.timeout, exchange).await;
        answered.unwrap_or_else(|_| {
            Err(format!(
                "Post {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            ))
        })
    }

    async fn exchange(&self, verb: &str, url: &str, body: Vec<u8>) -> Result<Vec<u8>, String> {
        let failed = |why: &str| format!("Post {url:?}: {why}");
        let http = self.http.as_ref().map_err(|why| failed(why))?;
        let uri: Uri = url
            .parse()
            .map_err(|error: http::uri::InvalidUri| failed(&error.to_string()))?;
        let limit = body.len().saturating_mul(2).saturating_add(MAX_ANSWER_BYTES);
        let path = uri.path_and_query().map_or("/", |own| own.as_str());
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))
            .map_err(|error| failed(&error.to_string()))?;
        let answer = http
            .send(request)
            .await
            .map_err(|error| failed(&words(&uri, &error)))?;
        if answer.status() != StatusCode::OK {
            let code = answer.status().as_u16();
            return Err(format!("failed {verb} with extender at URL {url}, code {code}"));
        }
        match Limited::new(answer.into_body(), limit).collect().await {
            Ok(body) => Ok(body.to_bytes().into()),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                Err(failed(&format!("the answer is longer than {limit} bytes")))
            }
            Err(error) => Err(failed(&words(&uri, &*error))),
        }
    }
}

/// The failure of a connection, as Go's client words it.
fn words(uri: &Uri, error: &(dyn Error + 'static)) -> String {
    let mut source = Some(error);
    let mut last = error.to_string();
    let mut connecting = false;
    while let Some(own) = source {
        last = own.to_string();
        connecting |= last.contains("connect");
        if let Some(system) = own
            .downcast_ref::<io::Error>()
            .filter(|own| own.get_ref().is_none())
        {
            let port = uri.port_u16().unwrap_or(match uri.scheme_str() {
                Some("https") => 443,
                _ => 80,
            });
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            return match connecting {
                true => dial_error(host, port, system),
                false => system_error_text(system),
            };
        }
        source = own.source();
    }
    match last.contains("closed before message completed") {
        true => "EOF".to_owned(),
        false => last,
    }
}

/// Connections with the certificates of the configuration: a client of the same kind as those of the API server.
async fn connections(config: &ExtenderConfig) -> Result<kube::Client, String> {
    let uri: Uri = config
        .url_prefix
        .parse()
        .map_err(|error: http::uri::InvalidUri| error.to_string())?;
    let scheme = uri.scheme_str().unwrap_or_default();
    let authority = uri.authority().filter(|_| matches!(scheme, "http" | "https"));
    let Some(authority) = authority else {
        return Err(format!("unsupported protocol scheme {scheme:?}"));
    };
    let kubeconfig = kubeconfig(config, &format!("{scheme}://{authority}"))?;
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).map_err(|error| error.to_string())?;
    let options = KubeConfigOptions::default();
    let loaded = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut loaded = loaded.map_err(|error| error.to_string())?;
    // A call is made once, and its time is ours.
    loaded.default_retry = false;
    loaded.read_timeout = None;
    loaded.write_timeout = None;
    loaded.disable_compression = true;
    kube::Client::try_from(loaded).map_err(|error| error.to_string())
}

fn kubeconfig(config: &ExtenderConfig, server: &str) -> Result<Value, String> {
    let tls = config.tls.clone().unwrap_or_default();
    let has_authority = !tls.ca_file.is_empty() || !tls.ca_data.is_empty();
    let insecure = tls.insecure || (config.enable_https && !has_authority);
    if insecure && has_authority {
        return Err("specifying a root certificates file with the insecure flag is not allowed".to_owned());
    }
    let mut cluster = json!({"server": server, "insecure-skip-tls-verify": insecure});
    let mut user = json!({});
    let ExtenderTls {
        server_name,
        ca_file,
        ca_data,
        cert_file,
        cert_data,
        key_file,
        key_data,
        ..
    } = &tls;
    for (name, value) in [
        ("tls-server-name", server_name),
        ("certificate-authority", ca_file),
        ("certificate-authority-data", ca_data),
    ] {
        set(&mut cluster, name, value);
    }
    for (name, value) in [
        ("client-certificate", cert_file),
        ("client-certificate-data", cert_data),
        ("client-key", key_file),
        ("client-key-data", key_data),
    ] {
        set(&mut user, name, value);
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "e",
        "clusters": [{"name": "e", "cluster": cluster}], "users": [{"name": "e", "user": user}],
        "contexts": [{"name": "e", "context": {"cluster": "e", "user": "e"}}]
    }))
}

fn set(object: &mut Value, name: &str, value: &str) {
    if !value.is_empty() {
        object[name] = value.into();
    }
}
