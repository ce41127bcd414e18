//! Requests exactly as a case says, answers as they came.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use machinery_runtime::Runtime;
use serde_json::Value;

/// Longest time that an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time of a watch's silence after which the events so far count as all.
const WATCH_SILENCE: Duration = Duration::from_secs(3);
/// The largest answer that is read.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// A way to one server, as a cluster admin or anonymous.
#[derive(Clone)]
pub struct Client {
    admin: kube::Client,
    anonymous: kube::Client,
    runtime: Runtime,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// An answer of the server.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A watch whose headers have come.
pub struct Watch {
    response: Response<Body>,
    runtime: Runtime,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("status", &self.response.status())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client of a kubeconfig's current context.
    pub async fn new(kubeconfig: &Path, runtime: &Runtime) -> Result<Self> {
        let kubeconfig =
            Kubeconfig::read_from(kubeconfig).with_context(|| kubeconfig.display().to_string())?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let mut anonymous = config.clone();
        anonymous.auth_info = AuthInfo::default();
        Ok(Self {
            admin: kube::Client::try_from(config)?,
            anonymous: kube::Client::try_from(anonymous)?,
            runtime: runtime.clone(),
        })
    }

    async fn begin(&self, request: Request<Vec<u8>>, anonymous: bool) -> Result<Response<Body>> {
        let client = match anonymous {
            true => &self.anonymous,
            false => &self.admin,
        };
        let request = request.map(Body::from);
        let response = self
            .runtime
            .timeout(ANSWER_TIMEOUT, client.send(request))
            .await
            .context("no answer in time")??;
        Ok(response)
    }

    /// Sends and reads to the end.
    pub async fn send(&self, request: Request<Vec<u8>>, anonymous: bool) -> Result<Answer> {
        let (head, body) = self.begin(request, anonymous).await?.into_parts();
        let body = http_body_util::Limited::new(body, MAX_ANSWER_BYTES);
        let body = self
            .runtime
            .timeout(ANSWER_TIMEOUT, body.collect())
            .await
            .context("the answer does not end")?
            .map_err(|problem| anyhow::anyhow!("reading the answer: {problem}"))?
            .to_bytes();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
        })
    }

    /// Sends and waits for the headers only.
    pub async fn watch(&self, request: Request<Vec<u8>>, anonymous: bool) -> Result<Watch> {
        Ok(Watch {
            response: self.begin(request, anonymous).await?,
            runtime: self.runtime.clone(),
        })
    }
}

impl Watch {
    /// Reads `count` events, fewer if the watch ends or falls silent. The body of the answer is a JSON list of them,
    /// or whatever came instead of a stream.
    pub async fn collect(self, count: usize) -> Result<Answer> {
        let (head, body) = self.response.into_parts();
        let mut stream = body.into_data_stream();
        let mut buffer = Vec::new();
        let mut events: Vec<Value> = Vec::new();
        while events.len() < count {
            let next = self.runtime.timeout(WATCH_SILENCE, stream.next()).await;
            let Ok(Some(chunk)) = next else { break };
            buffer.extend_from_slice(&chunk?);
            // What one chunk brings beyond the count is left out: it may as well have come in the next.
            while events.len() < count
                && let Some(end) = buffer.iter().position(|byte| *byte == b'\n')
            {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                events.push(
                    serde_json::from_slice(&line)
                        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&line).into_owned())),
                );
            }
        }
        if head.status.is_success() {
            buffer = serde_json::to_vec(&events)?;
        } else if let [only] = events.as_slice() {
            buffer = serde_json::to_vec(only)?;
        }
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body: buffer.into(),
        })
    }
}
