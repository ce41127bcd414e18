//! Static pods of a URL: one pod or a list of them, read again every so often, as upstream's `pkg/kubelet/config/http.go`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use machinery_runtime::Runtime;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::fetching::{Target, fetch};
use super::folder::Decode;
use super::manifest::{Origin, pod_of};
use crate::pods::full_name;

/// Pods of a list beyond it are refused with it; a node has room for fewer.
const PODS_MAX: usize = 512;
/// Failures that are logged as they come; later ones go to the debug log until a look succeeds.
const FAILURES_LOGGED: u32 = 4;
/// Period of looks, upstream's default.
pub(crate) const DEFAULT_PERIOD: Duration = Duration::from_secs(20);

/// URL of static pods.
#[derive(Clone)]
pub struct StaticPodUrl {
    /// Its text, as given.
    pub url: String,
    /// Headers of the requests, in the order in which they are sent.
    pub headers: Vec<(String, String)>,
    /// Pause between two looks.
    pub period: Duration,
    /// Reader of the format.
    pub decode: Decode,
}

// Headers and the user of the URL may be secret.
impl std::fmt::Debug for StaticPodUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StaticPodUrl")
            .field("url", &self.shown())
            .field("period", &self.period)
            .finish_non_exhaustive()
    }
}

impl StaticPodUrl {
    /// The URL without user and password.
    pub fn shown(&self) -> String {
        let Some((scheme, rest)) = self.url.split_once("://") else {
            return self.url.clone();
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        format!("{scheme}://{host}{path}")
    }

    /// Everything wrong with it, each with the flag it came from.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Err(why) = Target::parse(&self.url) {
            problems.push(format!("--manifest-url: {:?}: {why}", self.shown()));
        }
        for (name, value) in &self.headers {
            let is_name = http::HeaderName::try_from(name.as_str()).is_ok();
            if !is_name || http::HeaderValue::try_from(value.as_str()).is_err() {
                problems.push(format!("--manifest-url-header: {name:?}: no valid header"));
            }
        }
        if self.period < Duration::from_secs(1) {
            problems.push("--http-check-frequency: must be at least 1s".to_owned());
        }
        problems
    }
}

/// Result of a look that says which pods there are.
#[derive(Debug, PartialEq)]
pub(super) enum Look {
    /// These and no others.
    Pods(Vec<Arc<Pod>>),
    /// Those of the last look.
    Unchanged,
}

/// The URL as it was read last.
#[derive(Debug)]
pub(super) struct UrlPods {
    source: StaticPodUrl,
    target: Target,
    node_name: String,
    /// Digest of the last answer, and why it had no pods.
    last: Option<([u8; 32], Option<String>)>,
    failures: u32,
}

impl UrlPods {
    /// A URL that is not read yet; `None` where it is none, which [`StaticPodUrl::problems`] names.
    pub(super) fn new(source: StaticPodUrl, node_name: String) -> Option<Self> {
        let target = Target::parse(&source.url).ok()?;
        Some(Self {
            source,
            target,
            node_name,
            last: None,
            failures: 0,
        })
    }

    pub(super) fn period(&self) -> Duration {
        self.source.period
    }

    /// Reads it, and returns the pods where it says which there are: an empty answer has none, though it is an error.
    pub(super) async fn look(&mut self, runtime: &Runtime) -> Option<Look> {
        let fetched = fetch(runtime, &self.target, &self.source.headers).await;
        match fetched {
            Ok(body) if body.is_empty() => {
                self.last = None;
                self.failed(&format!("zero-length data received from {}", self.source.shown()));
                Some(Look::Pods(Vec::new()))
            }
            Ok(body) => match self.read(&body) {
                Ok(look) => {
                    self.succeeded();
                    Some(look)
                }
                Err(problem) => {
                    self.failed(&problem);
                    None
                }
            },
            Err(problem) => {
                self.failed(&problem);
                None
            }
        }
    }

    /// Reads an answer, unless it is the last one.
    pub(super) fn read(&mut self, body: &[u8]) -> Result<Look, String> {
        let digest: [u8; 32] = Sha256::digest(body).into();
        if let Some((last, problem)) = &self.last
            && *last == digest
        {
            return problem.clone().map_or(Ok(Look::Unchanged), Err);
        }
        let outcome = self.pods(body);
        self.last = Some((digest, outcome.as_ref().err().cloned()));
        outcome.map(Look::Pods)
    }

    fn pods(&self, body: &[u8]) -> Result<Vec<Arc<Pod>>, String> {
        let url = self.source.shown();
        let value = (self.source.decode)(body).map_err(|error| format!("{url}: {error}"))?;
        let values = items(value).map_err(|error| format!("{url}: {error}"))?;
        let origin = Origin::Url(&self.source.url);
        let mut names = BTreeSet::new();
        let mut pods = Vec::new();
        for value in values {
            let pod = pod_of(value, origin, &self.node_name)?;
            if !names.insert(full_name(&pod)) {
                return Err(format!("{url}: it has two pods of the name {}", full_name(&pod)));
            }
            pods.push(Arc::new(pod));
        }
        Ok(pods)
    }

    fn failed(&mut self, problem: &str) {
        self.failures = self.failures.saturating_add(1);
        match self.failures {
            FAILURES_LOGGED => tracing::warn!(
                problem,
                "failed to read pods from URL; until it succeeds, this goes to the debug log"
            ),
            many if many > FAILURES_LOGGED => tracing::debug!(problem, "failed to read pods from URL"),
            _ => tracing::warn!(problem, "failed to read pods from URL"),
        }
    }

    fn succeeded(&mut self) {
        if std::mem::take(&mut self.failures) > 0 {
            tracing::info!("successfully read pods from URL");
        }
    }
}

/// The pods of an answer: it is one, or a list.
fn items(value: Value) -> Result<Vec<Value>, String> {
    let (version, kind) = (value["apiVersion"].as_str(), value["kind"].as_str());
    if (version, kind) != (Some("v1"), Some("PodList")) {
        return Ok(vec![value]);
    }
    let Value::Object(mut list) = value else {
        return Ok(Vec::new());
    };
    let mut items = match list.remove("items") {
        Some(Value::Array(items)) => items,
        None | Some(Value::Null) => Vec::new(),
        Some(_) => return Err("invalid pods list: its items are no list".to_owned()),
    };
    if items.len() > PODS_MAX {
        return Err(format!("invalid pods list: it has more than {PODS_MAX} pods"));
    }
    // Items of a list need not repeat what they are.
    for item in &mut items {
        if let Value::Object(item) = item {
            item.entry("apiVersion").or_insert_with(|| "v1".into());
            item.entry("kind").or_insert_with(|| "Pod".into());
        }
    }
    Ok(items)
}
