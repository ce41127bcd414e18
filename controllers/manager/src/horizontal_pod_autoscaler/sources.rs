//! Metrics of pods, objects and of the outside, from the metrics APIs (upstream's `metrics/client.go`).
//!
//! Resource metrics are the server's own. The other two groups are there if an extension serves them.

use super::calculator::{PodMetric, PodMetrics, ZERO_TIME};
use super::metrics::Fetched;
use super::object::{MetricIdentifier, MetricSpec, TargetRef, or_default};
use crate::served_kinds::ServedKinds;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use machinery_client::Client;
use machinery_client::client::decode;
use machinery_meta::Quantity;
use machinery_runtime::Runtime;
use machinery_semantics::selectors::from_api;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

const RESOURCE_PODS: &str = "/apis/metrics.k8s.io/v1beta1";
const CUSTOM: &str = "custom.metrics.k8s.io";
const EXTERNAL: &str = "external.metrics.k8s.io";
/// Window of custom metrics that name none.
const DEFAULT_WINDOW: SignedDuration = SignedDuration::from_mins(1);

/// See the module.
pub(super) struct Sources {
    client: Client,
    kinds: Arc<ServedKinds>,
}

fn failed_custom(error: String) -> String {
    format!("unable to fetch metrics from custom metrics API: {error}")
}

/// Pods that one look is about.
#[derive(Clone, Copy)]
pub(super) struct Selection<'a> {
    pub(super) namespace: &'a str,
    pub(super) selector: &'a str,
}

/// Resource metrics that one look has fetched already: its metrics share them.
type Shared = Option<Result<Vec<PodItem>, String>>;

impl Sources {
    pub(super) fn new(client: Client, kinds: Arc<ServedKinds>) -> Self {
        Self { client, kinds }
    }

    /// Fetches the values of each of these metrics, and returns how long each took.
    pub(super) async fn fetch(
        &self,
        of: Selection<'_>,
        metrics: &[MetricSpec],
        runtime: &Runtime,
    ) -> (Vec<Result<Fetched, String>>, Vec<Duration>) {
        let (mut out, mut took) = (Vec::with_capacity(metrics.len()), Vec::new());
        let mut shared: Shared = None;
        for metric in metrics {
            let begun = runtime.monotonic();
            out.push(self.one(of, metric, &mut shared).await);
            took.push(runtime.monotonic().saturating_sub(begun));
        }
        (out, took)
    }

    async fn one(
        &self,
        of: Selection<'_>,
        metric: &MetricSpec,
        shared: &mut Shared,
    ) -> Result<Fetched, String> {
        match (metric.kind.as_str(), metric) {
            (
                "Resource",
                MetricSpec {
                    resource: Some(own), ..
                },
            )
            | (
                "ContainerResource",
                MetricSpec {
                    container_resource: Some(own),
                    ..
                },
            ) => {
                if shared.is_none() {
                    *shared = Some(self.resource(of).await);
                }
                let items = shared
                    .as_ref()
                    .map_or(Ok(&[][..]), |shared| shared.as_deref().map_err(Clone::clone))?;
                Ok(Fetched::Pods(samples(items, &own.name, &own.container)))
            }
            ("Pods", MetricSpec { pods: Some(own), .. }) => self.pods(of, &own.metric).await,
            (
                "Object",
                MetricSpec {
                    object: Some(own), ..
                },
            ) => {
                self.object(of.namespace, &own.described_object, &own.metric)
                    .await
            }
            (
                "External",
                MetricSpec {
                    external: Some(own), ..
                },
            ) => self.external(of.namespace, &own.metric).await,
            _ => Ok(Fetched::External(Vec::new())),
        }
    }

    async fn get<T: DeserializeOwned>(
        &self,
        api: &str,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<T, String> {
        let body = self.client.get_path(path, query).await;
        let read = body.and_then(|body| decode("metrics", &body));
        read.map_err(|error| {
            format!(
                "unable to fetch metrics from {api} metrics API: {}",
                error.chain()
            )
        })
    }

    async fn resource(&self, of: Selection<'_>) -> Result<Vec<PodItem>, String> {
        let path = format!("{RESOURCE_PODS}/namespaces/{}/pods", of.namespace);
        let query = [("labelSelector", of.selector.to_owned())];
        let list: List<PodItem> = self.get("resource", &path, &query).await?;
        list.not_empty("resource")
    }

    /// The version in which a group is served.
    async fn version(&self, group: &str) -> Result<Option<String>, String> {
        let kinds = self.kinds.all().await.map_err(|error| error.chain())?;
        let found = kinds.iter().find(|own| own.resource.group == group);
        Ok(found.map(|own| own.resource.version.to_string()))
    }

    async fn custom_root(&self) -> Result<String, String> {
        let failed = failed_custom;
        let version = self.version(CUSTOM).await.map_err(failed)?;
        let version =
            version.ok_or_else(|| failed(format!("no custom metrics API ({CUSTOM}) registered")))?;
        Ok(format!("/apis/{CUSTOM}/{version}"))
    }

    async fn pods(&self, of: Selection<'_>, metric: &MetricIdentifier) -> Result<Fetched, String> {
        let root = self.custom_root().await?;
        let path = format!(
            "{root}/namespaces/{}/pods/*/{}",
            of.namespace,
            segment(&metric.name)
        );
        let query = [
            ("labelSelector", of.selector.to_owned()),
            ("metricLabelSelector", text(metric.selector.as_ref())),
        ];
        let list: List<CustomItem> = self.get("custom", &path, &query).await?;
        let items = list.not_empty("custom")?.into_iter();
        let samples = items.filter_map(|item| {
            let window = item.window_seconds.map(SignedDuration::from_secs);
            let metric = PodMetric {
                at: item.timestamp?,
                window: window.unwrap_or(DEFAULT_WINDOW),
                value: millis(&item.value)?,
            };
            Some((item.described_object.name, metric))
        });
        Ok(Fetched::Pods(samples.collect()))
    }

    async fn object(
        &self,
        namespace: &str,
        of: &TargetRef,
        metric: &MetricIdentifier,
    ) -> Result<Fetched, String> {
        let (root, name) = (self.custom_root().await?, segment(&metric.name));
        let group = of.api_version.split_once('/').map_or("", |(group, _)| group);
        let path = if of.kind == "Namespace" && group.is_empty() {
            format!("{root}/namespaces/{namespace}/metrics/{name}")
        } else {
            let resource = self.resource_of(group, &of.kind).await?;
            let object = segment(&of.name);
            format!("{root}/namespaces/{namespace}/{resource}/{object}/{name}")
        };
        let query = [("metricLabelSelector", text(metric.selector.as_ref()))];
        let list: List<CustomItem> = self.get("custom", &path, &query).await?;
        let items = list.not_empty("custom")?;
        let [item] = items.as_slice() else {
            let count = items.len();
            return Err(failed_custom(format!(
                "the custom metrics API server returned {count} results when we asked for exactly one"
            )));
        };
        millis(&item.value)
            .map(Fetched::Object)
            .ok_or_else(|| "the value is no quantity".to_owned())
    }

    /// `deployments.apps`.
    async fn resource_of(&self, group: &str, kind: &str) -> Result<String, String> {
        let failed = failed_custom;
        let kinds = self.kinds.all().await.map_err(|error| failed(error.chain()))?;
        let is_it = |own: &&machinery_client::discovery::DiscoveredResource| {
            own.resource.group == group && own.resource.kind == kind
        };
        let found = kinds
            .iter()
            .find(is_it)
            .map(|own| own.resource.group_resource().to_string());
        found.ok_or_else(|| failed(format!("no matches for kind {kind:?} in group {group:?}")))
    }

    async fn external(&self, namespace: &str, metric: &MetricIdentifier) -> Result<Fetched, String> {
        let failed = |error| format!("unable to fetch metrics from external metrics API: {error}");
        let name = &metric.name;
        let version = self.version(EXTERNAL).await.map_err(failed)?.ok_or_else(|| {
            failed(format!(
                "the server could not find the requested resource (get {name}.{EXTERNAL})"
            ))
        })?;
        let path = format!(
            "/apis/{EXTERNAL}/{version}/namespaces/{namespace}/{}",
            segment(name)
        );
        let query = [("labelSelector", text(metric.selector.as_ref()))];
        let list: List<ExternalItem> = self.get("external", &path, &query).await?;
        let items = list.not_empty("external")?;
        Ok(Fetched::External(
            items.iter().filter_map(|item| millis(&item.value)).collect(),
        ))
    }
}

#[derive(Debug, Deserialize)]
struct List<T> {
    items: Option<Vec<T>>,
}

impl<T> List<T> {
    fn not_empty(self, api: &str) -> Result<Vec<T>, String> {
        let items = self.items.filter(|items| !items.is_empty());
        items.ok_or_else(|| format!("no metrics returned from {api} metrics API"))
    }
}

/// PodMetrics.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct PodItem {
    metadata: Named,
    #[serde(default)]
    timestamp: Option<Timestamp>,
    #[serde(default)]
    window: String,
    #[serde(default, deserialize_with = "or_default")]
    containers: Vec<ContainerItem>,
}

#[derive(Debug, Clone, Deserialize)]
struct ContainerItem {
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    usage: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

/// MetricValue, in either of its versions.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CustomItem {
    #[serde(default)]
    described_object: Named,
    #[serde(default)]
    timestamp: Option<Timestamp>,
    #[serde(default, alias = "window")]
    window_seconds: Option<i64>,
    value: String,
}

#[derive(Debug, Deserialize)]
struct ExternalItem {
    value: String,
}

/// Samples of one resource: of the container that is named, or of all containers of a pod together.
pub(super) fn samples(items: &[PodItem], resource: &str, container: &str) -> PodMetrics {
    let amount = |own: &ContainerItem| millis(own.usage.get(resource)?);
    let value = |item: &PodItem| match container {
        "" if item.containers.is_empty() => None,
        "" => item
            .containers
            .iter()
            .try_fold(0_i64, |sum, own| Some(sum.saturating_add(amount(own)?))),
        name => amount(item.containers.iter().find(|own| own.name == name)?),
    };
    let sample = |item: &PodItem| {
        let metric = PodMetric {
            at: item.timestamp.unwrap_or(ZERO_TIME),
            window: duration(&item.window),
            value: value(item)?,
        };
        Some((item.metadata.name.clone(), metric))
    };
    items.iter().filter_map(sample).collect()
}

fn millis(quantity: &str) -> Option<i64> {
    quantity.parse().ok().map(Quantity::millis)
}

/// A duration as Go prints one (`1m15.5s`); what is none is zero.
fn duration(text: &str) -> SignedDuration {
    let (mut sum, mut rest) = (0.0, text);
    while let Some(end) = rest.find(|c: char| !c.is_ascii_digit() && c != '.') {
        let (number, after) = rest.split_at(end);
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let seconds = match &after[..unit] {
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return SignedDuration::ZERO,
        };
        let Ok(number) = number.parse::<f64>() else {
            return SignedDuration::ZERO;
        };
        sum += number * seconds;
        rest = &after[unit..];
    }
    SignedDuration::try_from_secs_f64(sum).unwrap_or_default()
}

/// A metric's own selector; none and the empty one are the empty text.
fn text(selector: Option<&LabelSelector>) -> String {
    let compiled = from_api(selector).ok().flatten();
    compiled.map(|own| own.to_string()).unwrap_or_default()
}

/// A name as a part of a path.
fn segment(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, millis) in [
            ("10s", 10_000),
            ("15.013s", 15_013),
            ("1m15.5s", 75_500),
            ("1h0m0s", 3_600_000),
            ("20ms", 20),
            ("", 0),
            ("odd", 0),
        ] {
            assert_eq!(duration(text), SignedDuration::from_millis(millis), "{text}");
        }
    }

    #[test]
    fn samples_are_of_pods_whose_containers_all_have_some() {
        let items = r#"[
            {"metadata": {"name": "a"}, "timestamp": "2026-01-01T00:00:00Z", "window": "10s", "containers": [
                {"name": "x", "usage": {"cpu": "100m", "memory": "1Ki"}}, {"name": "y", "usage": {"cpu": "1500000n"}}]},
            {"metadata": {"name": "none"}, "timestamp": "2026-01-01T00:00:00Z", "window": "10s", "containers": []}]"#;
        let items: Vec<PodItem> = serde_json::from_str(items).unwrap();
        for (resource, container, expected) in [
            ("cpu", "", Some(102)),
            ("cpu", "y", Some(2)),
            ("memory", "x", Some(1_024_000)),
            ("memory", "", None),
            ("cpu", "z", None),
        ] {
            let found = samples(&items, resource, container);
            let values: Vec<_> = found
                .iter()
                .map(|(name, own)| (name.as_str(), own.value))
                .collect();
            let expected: Vec<_> = expected.map(|value| ("a", value)).into_iter().collect();
            assert_eq!(values, expected, "{resource} {container}");
        }
    }

    #[test]
    fn segments_hold_nothing_that_ends_them() {
        assert_eq!(segment("queue_length-5.x"), "queue_length-5.x");
        assert_eq!(segment("a b?c#d"), "a%20b%3Fc%23d");
    }
}
