//! Sending as one user, and the kept part of an answer.

use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use machinery_runtime::Runtime;
use serde_json::Value;

/// The longest answer that is waited for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of requests under way at a time.
const AT_A_TIME: usize = 8;
/// The annotation of the bookmark behind a watch's initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// One request of any user.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// Names the request in the records: method, address and, after a space, which body.
    pub id: String,
    pub method: &'static str,
    pub path: String,
    /// Content type and body.
    pub body: Option<(&'static str, Value)>,
    /// Headers of a WebSocket handshake are sent.
    pub upgrade: bool,
    /// Forms that the client takes.
    pub accept: Option<String>,
}

impl Ask {
    /// A request without a body.
    #[must_use]
    pub fn plain(method: &'static str, path: &str) -> Self {
        Self {
            id: format!("{method} {path}"),
            method,
            path: path.to_owned(),
            body: None,
            upgrade: false,
            accept: None,
        }
    }

    /// A request with a body.
    #[must_use]
    pub fn with_body(method: &'static str, path: &str, content_type: &'static str, body: &Value) -> Self {
        Self {
            body: Some((content_type, body.clone())),
            ..Self::plain(method, path)
        }
    }

    /// The same with a word in its id that distinguishes it from others of the same address.
    #[must_use]
    pub fn called(mut self, word: &str) -> Self {
        self.id = format!("{} {word}", self.id);
        self
    }

    /// The same, in these forms.
    #[must_use]
    pub fn accepting(mut self, accept: String) -> Self {
        self.id = format!("{} {accept}", self.id);
        self.accept = Some(accept);
        self
    }

    pub(super) fn is_watch(&self) -> bool {
        self.path.contains("watch=true")
    }
}

/// An administrator's way to one server.
#[derive(Clone)]
pub struct Sender {
    pub client: kube::Client,
    pub runtime: Runtime,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// An answer, read to its end; of a watch, to the end of its initial events.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub content_type: String,
    pub body: Bytes,
}

impl Sender {
    /// Sends as a user of a group, or as the administrator.
    pub async fn send(&self, user: Option<(&str, Option<&str>)>, ask: &Ask) -> Result<Answer> {
        self.runtime
            .timeout(ANSWER_TIMEOUT, self.exchange(user, ask))
            .await
            .with_context(|| format!("{}: no answer in time", ask.id))?
            .with_context(|| ask.id.clone())
    }

    async fn exchange(&self, user: Option<(&str, Option<&str>)>, ask: &Ask) -> Result<Answer> {
        let mut request = Request::builder().method(ask.method).uri(&ask.path);
        if let Some((user, group)) = user {
            request = request.header("impersonate-user", user);
            request = group.iter().fold(request, |request, group| {
                request.header("impersonate-group", *group)
            });
        }
        if let Some(accept) = &ask.accept {
            request = request.header("accept", accept);
        }
        if ask.upgrade {
            request = request
                .header("connection", "Upgrade")
                .header("upgrade", "websocket")
                .header("sec-websocket-version", "13")
                .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
                .header("sec-websocket-protocol", "v5.channel.k8s.io");
        }
        let body = match &ask.body {
            None => Vec::new(),
            Some((content_type, body)) => {
                request = request.header("content-type", *content_type);
                serde_json::to_vec(body)?
            }
        };
        let response = self.client.send(request.body(Body::from(body))?).await?;
        let (head, body) = response.into_parts();
        let mut stream = body.into_data_stream();
        let mut read = Vec::new();
        while let Some(chunk) = stream.next().await {
            read.extend_from_slice(&chunk?);
            if ask.is_watch() && ends_initial_events(&read) {
                break;
            }
        }
        let form = head.headers.get(http::header::CONTENT_TYPE);
        Ok(Answer {
            content_type: form
                .and_then(|form| form.to_str().ok())
                .unwrap_or_default()
                .to_owned(),
            status: head.status,
            body: read.into(),
        })
    }

    /// Sends all as one user; the answers in the order of the requests.
    pub async fn all(&self, user: (&str, Option<&str>), asks: &[Ask]) -> Result<Vec<(String, String)>> {
        self.each(Some(user), asks, summary).await
    }

    /// Sends all as one user or the administrator; of each answer `keep` is kept.
    pub async fn each(
        &self,
        user: Option<(&str, Option<&str>)>,
        asks: &[Ask],
        keep: fn(&Ask, &Answer) -> String,
    ) -> Result<Vec<(String, String)>> {
        let mut answers = futures::stream::iter(asks)
            .map(async |ask| {
                let answer = self.send(user, ask).await?;
                anyhow::Ok((ask.id.clone(), keep(ask, &answer)))
            })
            .buffered(AT_A_TIME);
        let mut kept = Vec::with_capacity(asks.len());
        while let Some(answer) = answers.next().await {
            kept.push(answer?);
        }
        Ok(kept)
    }
}

fn ends_initial_events(read: &[u8]) -> bool {
    String::from_utf8_lossy(read).contains(INITIAL_EVENTS_END)
}

/// Summary of an answer: code; reason of a failure; objects of the fixture that were shown.
#[must_use]
pub fn summary(ask: &Ask, answer: &Answer) -> String {
    let code = answer.status.as_u16();
    if !answer.status.is_success() {
        let status: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let reason = status["reason"].as_str().unwrap_or_default();
        return format!("{code} {reason}").trim_end().to_owned();
    }
    let mut shown = match ask.is_watch() {
        true => answer
            .body
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
            .filter(|event| event["type"] != "BOOKMARK")
            .filter_map(|event| shown_name(&event["object"]))
            .collect(),
        false => names(&serde_json::from_slice(&answer.body).unwrap_or_default()),
    };
    shown.sort();
    shown.dedup();
    format!("{code} {}", shown.join(" ")).trim_end().to_owned()
}

fn names(body: &Value) -> Vec<String> {
    match body["items"].as_array() {
        Some(items) => items.iter().filter_map(shown_name).collect(),
        None => shown_name(body).into_iter().collect(),
    }
}

/// `namespace/name` of an object that the fixture made; what servers make for themselves differs and is left out.
fn shown_name(object: &Value) -> Option<String> {
    let meta = &object["metadata"];
    let name = meta["name"].as_str()?;
    if meta["labels"]["tenants"] != "yes" {
        return None;
    }
    Some(match meta["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    })
}
