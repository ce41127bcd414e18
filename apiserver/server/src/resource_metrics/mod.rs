//! Usage of nodes and pods, from the kubelets' `/metrics/resource` (metrics-server's scraper).
//!
//! While clients ask, each round reads all kubelets, [`AT_ONCE`] at a time, each within [`SCRAPE_TIMEOUT`] and
//! [`MAX_TEXT_BYTES`], those that were quick last beside the others, for which no round waits longer than [`PERIOD`] ([`lanes`]); [`text`] reads the answers as they arrive, [`samples`] makes usage of two of them. A cluster in
//! which no client has requested usage for [`KEPT_FOR`] pays nothing and keeps nothing; the first request then waits for two samples.
//!
//! A node's word counts for pods that run on it, and for no others.

mod lanes;
mod samples;
mod text;

use crate::kubelet::kubelet_of;
use apiserver_egress::{Dialer, EgressError};
use apiserver_endpoints::ResourceUsage;
use apiserver_registry::options::{ListOptions, RevisionMatch};
use apiserver_registry::{Entry, Registry, RegistryError, Scope};
use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, Stream};
use http_body_util::{BodyExt, Empty};
use lanes::{Lanes, Standings};
use machinery_meta::ObjectKey;
use machinery_meta::reader::ObjectReader;
use machinery_runtime::{Runtime, Watched};
use samples::Samples;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use text::{NodeSamples, Reader, TextError};
use tokio::sync::Notify;

/// Time between two rounds.
const PERIOD: Duration = Duration::from_secs(15);
/// Time between the first two, for which the first client waits.
const FIRST_PERIOD: Duration = Duration::from_secs(2);
/// The first client waits so long at most.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Rounds go on so long after the last request.
const KEPT_FOR: Duration = Duration::from_secs(300);
/// Kubelets that are read at a time.
const AT_ONCE: usize = 32;
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_TEXT_BYTES: usize = 4 * 1_024 * 1_024;
const PATH: &str = "/metrics/resource";

/// The node of each pod that runs.
type Placed = HashMap<ObjectKey, Box<str>>;

/// A kubelet was not read.
#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    #[error("finding the kubelet: {0}")]
    Unknown(RegistryError),
    #[error("requesting figures of the kubelet")]
    Request(#[from] EgressError),
    #[error("the kubelet answered {0}")]
    Refused(http::StatusCode),
    #[error("reading the kubelet's answer")]
    Body(#[from] hyper::Error),
    #[error("the answer is larger than {MAX_TEXT_BYTES} bytes")]
    TooLarge,
    #[error("reading the kubelet's metrics")]
    Text(#[from] TextError),
    #[error("the kubelet did not answer in time")]
    TimedOut,
}

/// See the module.
pub(crate) struct ResourceMetrics {
    registry: Registry,
    reader: Arc<dyn ObjectReader>,
    dialer: Dialer,
    runtime: Runtime,
    /// Time of the last request.
    requested: Watched<Option<Duration>>,
    wake: Notify,
    /// Two rounds are over.
    warm: Watched<bool>,
    current: ArcSwap<ResourceUsage>,
}

impl fmt::Debug for ResourceMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceMetrics").finish_non_exhaustive()
    }
}

impl ResourceMetrics {
    pub(crate) fn new(registry: Registry, reader: Arc<dyn ObjectReader>, dialer: Dialer) -> Self {
        Self {
            runtime: registry.runtime().clone(),
            registry,
            reader,
            dialer,
            requested: Watched::new(None),
            wake: Notify::new(),
            warm: Watched::new(false),
            current: ArcSwap::default(),
        }
    }

    /// The last usage. Without a request of late it is waited for.
    pub(crate) async fn usage(&self) -> Arc<ResourceUsage> {
        self.requested.replace(Some(self.runtime.monotonic()));
        self.wake.notify_one();
        let warm = self.warm.wait_for(|warm| *warm);
        // What there is by then is the answer.
        let _ = self.runtime.timeout(FIRST_ANSWER_WITHIN, warm).await;
        self.current.load_full()
    }

    fn is_wanted(&self) -> bool {
        let since = self.requested.get();
        since.is_some_and(|since| self.runtime.monotonic().saturating_sub(since) < KEPT_FOR)
    }

    /// Reads the kubelets as long as clients request usage; never ends.
    pub(crate) async fn run(&self) {
        loop {
            while !self.is_wanted() {
                self.wake.notified().await;
            }
            let (mut samples, mut rounds) = (Samples::default(), 0_u32);
            let mut standings = Standings::default();
            while self.is_wanted() {
                let begun = self.runtime.monotonic();
                samples.store(self.round(&mut standings, begun + PERIOD).await);
                self.current.store(Arc::new(samples.usage()));
                rounds = rounds.saturating_add(1);
                self.warm.replace(rounds > 1);
                let period = if rounds > 1 { PERIOD } else { FIRST_PERIOD };
                self.runtime.sleep_until(begun + period).await;
            }
            self.warm.replace(false);
            self.current.store(Arc::default());
        }
    }

    /// Reads every kubelet once; what does not answer is left out. Kubelets that were quick last are waited for, the others
    /// until `end` alone: however many do not answer, those that do are read in every round.
    async fn round(&self, standings: &mut Standings, end: Duration) -> Vec<(Box<str>, NodeSamples)> {
        let (nodes, pods) = tokio::join!(self.list("nodes"), self.list("pods"));
        let placed = placed(&pods);
        let headers = nodes.iter().map(|node| &*node.record.header);
        let Lanes { quick, others } = standings.lanes(headers);
        let end = Box::pin(self.runtime.sleep_until(end));
        let (mut scraped, others): (Vec<_>, Vec<_>) = tokio::join!(
            self.lane(quick, &placed).collect(),
            self.lane(others, &placed).take_until(end).collect()
        );
        scraped.extend(others);
        let mut found = Vec::new();
        for (node, took, samples) in scraped {
            standings.note(&node, samples.is_some().then_some(took));
            found.extend(samples.map(|samples| (node, samples)));
        }
        found
    }

    /// Reads these kubelets, [`AT_ONCE`] at a time: the time each took, and its samples if there are any.
    fn lane<'a>(
        &'a self,
        nodes: Vec<Box<str>>,
        placed: &'a Placed,
    ) -> impl Stream<Item = (Box<str>, Duration, Option<NodeSamples>)> + 'a {
        let scraping = nodes.into_iter().map(move |node| {
            Box::pin(async move {
                let begun = self.runtime.monotonic();
                let samples = self.scraped(&node, placed).await;
                (node, self.runtime.monotonic().saturating_sub(begun), samples)
            })
        });
        stream::iter(scraping).buffer_unordered(AT_ONCE)
    }

    /// Reads a kubelet in its time; why it failed is logged.
    fn scraped<'a>(&'a self, node: &'a str, placed: &'a Placed) -> BoxFuture<'a, Option<NodeSamples>> {
        Box::pin(async move {
            let limited = self
                .runtime
                .timeout(SCRAPE_TIMEOUT, self.scrape(node, placed))
                .await;
            match limited.unwrap_or(Err(ScrapeError::TimedOut)) {
                Ok(samples) => Some(samples),
                Err(error) => {
                    let source = std::error::Error::source(&error);
                    tracing::debug!(%node, %error, ?source, "reading resource metrics failed");
                    None
                }
            }
        })
    }

    async fn list(&self, plural: &str) -> Vec<Arc<Entry>> {
        let Some(store) = self.registry.store("", "v1", plural) else {
            return Vec::new();
        };
        let options = ListOptions {
            revision: RevisionMatch::Any,
            ..ListOptions::default()
        };
        match store.list(&Scope::Cluster, &options).await {
            Ok(page) => page.entries,
            Err(error) => {
                tracing::debug!(plural, %error, "listing for resource metrics failed");
                Vec::new()
            }
        }
    }

    async fn scrape(&self, node: &str, placed: &Placed) -> Result<NodeSamples, ScrapeError> {
        let to = kubelet_of(&*self.reader, node)
            .await
            .map_err(ScrapeError::Unknown)?;
        let empty = Empty::<Bytes>::new().map_err(|never| match never {});
        let mut request = http::Request::new(empty.boxed_unsync());
        *request.uri_mut() = http::Uri::from_static(PATH);
        let response = self.dialer.send(&to, request).await?;
        if response.status() != http::StatusCode::OK {
            return Err(ScrapeError::Refused(response.status()));
        }
        let runs_here = |key: &ObjectKey| placed.get(key).is_some_and(|on| **on == *node);
        let mut reader = Reader::new(self.runtime.now(), runs_here);
        let (mut body, mut taken) = (response.into_body(), 0);
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame?.into_data() else { continue };
            taken += piece.len();
            if taken > MAX_TEXT_BYTES {
                return Err(ScrapeError::TooLarge);
            }
            reader.take(&piece)?;
        }
        Ok(reader.end()?)
    }
}

fn placed(pods: &[Arc<Entry>]) -> Placed {
    let placed = pods.iter().filter_map(|pod| {
        let header = &pod.record.header;
        let runs = header.fields.get("status.phase") == Some("Running");
        let node = header.fields.get("spec.nodeName").filter(|_| runs)?;
        Some((header.key.clone(), node.into()))
    });
    placed.collect()
}
