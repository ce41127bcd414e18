//! JSON lines about requests, at upstream's level `Metadata`. Off unless a path is given; policies are to come.

use crate::exchange::{Exchange, Response};
use crate::handler_chain::{Filter, Next};
use crate::server::Core;
use futures::future::BoxFuture;
use machinery_runtime::Runtime;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Lines waiting to be written; beyond it requests wait for none and the line is dropped.
const QUEUE: usize = 4_096;

/// As upstream: who asked for what is nothing for others.
const FILE_MODE: u32 = 0o600;

/// Takes lines.
#[derive(Debug)]
pub(crate) struct AuditSink(mpsc::Sender<String>);

impl AuditSink {
    /// Appends to a file, in a task of the server.
    pub(crate) fn open(path: &Path, runtime: &Runtime) -> std::io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(FILE_MODE)
            .open(path)?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let blocking = runtime.clone();
        runtime
            .spawn("audit", write_lines(receiver, file, blocking))
            .detach();
        Ok(Self(sender))
    }
}

async fn write_lines(mut lines: mpsc::Receiver<String>, file: File, runtime: Runtime) {
    let file = Arc::new(file);
    let mut batch = Vec::new();
    while lines.recv_many(&mut batch, QUEUE).await > 0 {
        let (text, file) = (batch.concat(), Arc::clone(&file));
        batch.clear();
        let written = runtime
            .blocking(move || (&*file).write_all(text.as_bytes()))
            .await;
        if let Ok(Err(error)) = written {
            tracing::error!(%error, "writing the audit log");
        }
    }
}

pub(crate) struct Audit(Option<Arc<AuditSink>>);

impl Audit {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self(core.audit.clone())
    }
}

/// `audit.k8s.io/v1` `Event`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: &'a str,
    stage: &'static str,
    #[serde(rename = "requestURI")]
    request_uri: &'a str,
    verb: &'a str,
    user: User<'a>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    source_ips: Vec<String>,
    user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<ObjectRef<'a>>,
    response_status: ResponseStatus,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct User<'a> {
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    groups: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectRef<'a> {
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_group: &'a str,
    api_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
}

#[derive(Serialize)]
struct ResponseStatus {
    code: u16,
}

impl Filter for Audit {
    fn call(&self, exchange: Exchange, next: Next) -> BoxFuture<'static, Response> {
        let Some(sink) = self.0.clone() else {
            return next.run(exchange);
        };
        Box::pin(async move {
            let (context, info) = (exchange.context.clone(), Arc::clone(&exchange.info));
            let uri = exchange.request.uri().to_string();
            let address = exchange.peer.address;
            let received = context.runtime.now();
            let response = next.run(exchange).await;
            let object_ref = info.is_resource_request.then_some(ObjectRef {
                resource: &info.resource,
                namespace: &info.namespace,
                name: &info.name,
                api_group: &info.api_group,
                api_version: &info.api_version,
                subresource: &info.subresource,
            });
            let event = Event {
                kind: "Event",
                api_version: "audit.k8s.io/v1",
                level: "Metadata",
                audit_id: &context.audit_id,
                stage: "ResponseComplete",
                request_uri: &uri,
                verb: &info.verb,
                user: User {
                    username: &context.user.name,
                    uid: &context.user.uid,
                    groups: &context.user.groups,
                },
                source_ips: address
                    .map(|address| address.ip().to_string())
                    .into_iter()
                    .collect(),
                user_agent: &context.user_agent,
                object_ref,
                response_status: ResponseStatus {
                    code: response.status().as_u16(),
                },
                request_received_timestamp: received.to_string(),
                stage_timestamp: context.runtime.now().to_string(),
                annotations: context.audit.take().into_iter().collect(),
            };
            if let Ok(line) = serde_json::to_string(&event)
                && sink.0.try_send(line + "\n").is_err()
            {
                tracing::warn!("the audit log is behind; a line was dropped");
            }
            response
        })
    }
}
