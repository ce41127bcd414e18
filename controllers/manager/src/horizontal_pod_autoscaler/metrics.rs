//! Proposals of single metrics, with upstream's names, statuses and errors (`computeStatusFor…`). Pure.

use super::calculator::{Calculator, PodMetrics, Usage};
use super::object::{
    MetricIdentifier, MetricSpec, MetricStatus, MetricValue, ObjectSource, PodsSource, ResourceSource,
    ResourceValue, Value, shown,
};
use machinery_meta::Quantity;
use machinery_meta::quantity::Format;

/// Values that were fetched for a metric.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fetched {
    /// Samples of pods.
    Pods(PodMetrics),
    /// The value of one object, in thousandths.
    Object(i64),
    /// Values of an external metric, in thousandths.
    External(Vec<i64>),
}

/// Replicas that one metric requests.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Proposal {
    pub(super) replicas: i32,
    /// The metric as the event of a change names it.
    pub(super) name: String,
    pub(super) status: MetricStatus,
}

/// A metric that says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// Of event and condition.
    pub(super) reason: &'static str,
    /// Message of the event.
    pub(super) cause: String,
    /// The same in the words of the whole look.
    pub(super) error: String,
}

/// The sizes that a calculation begins with: `spec.replicas` and `status.replicas` of the target's scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replicas {
    pub(super) spec: i32,
    pub(super) status: i32,
}

/// Calculates what one metric requests.
pub(super) fn propose(
    calculator: &Calculator<'_>,
    namespace: &str,
    replicas: Replicas,
    metric: &MetricSpec,
    fetched: Result<Fetched, String>,
) -> Result<Proposal, Failure> {
    let proposing = Proposing {
        calculator,
        namespace,
        replicas,
    };
    match (metric.kind.as_str(), metric) {
        (
            "Resource",
            MetricSpec {
                resource: Some(own), ..
            },
        ) => proposing.resource(own, fetched),
        (
            "ContainerResource",
            MetricSpec {
                container_resource: Some(own),
                ..
            },
        ) => proposing.container(own, fetched),
        ("Pods", MetricSpec { pods: Some(own), .. }) => proposing.pods(own, fetched),
        (
            "Object",
            MetricSpec {
                object: Some(own), ..
            },
        ) => proposing.object(own, fetched),
        (
            "External",
            MetricSpec {
                external: Some(own), ..
            },
        ) => proposing.external(own, fetched),
        (kind, _) => {
            let cause = format!("unknown metric source type {kind:?}");
            Err(Failure {
                reason: "InvalidMetricSourceType",
                error: cause.clone(),
                cause,
            })
        }
    }
}

struct Proposing<'a> {
    calculator: &'a Calculator<'a>,
    namespace: &'a str,
    replicas: Replicas,
}

/// A resource's number of replicas, its value, and its name.
type OfResource = (i32, Value, String);

impl Proposing<'_> {
    fn resource(&self, own: &ResourceSource, fetched: Result<Fetched, String>) -> Result<Proposal, Failure> {
        let (name, kind) = (&own.name, "resource");
        let (replicas, current, shown) = self.of_resource(own, kind, fetched).map_err(|cause| Failure {
            reason: "FailedGetResourceMetric",
            error: format!("failed to get {name} resource metric value: {cause}"),
            cause,
        })?;
        let status = MetricStatus {
            kind: "Resource".to_owned(),
            resource: Some(ResourceValue {
                name: name.clone(),
                current,
                container: String::new(),
            }),
            ..MetricStatus::default()
        };
        Ok(Proposal {
            replicas,
            name: shown,
            status,
        })
    }

    fn container(&self, own: &ResourceSource, fetched: Result<Fetched, String>) -> Result<Proposal, Failure> {
        let (container, kind) = (&own.container, "container resource");
        let (replicas, current, shown) = self.of_resource(own, kind, fetched).map_err(|cause| Failure {
            reason: "FailedGetContainerResourceMetric",
            error: format!("failed to get {container} container metric value: {cause}"),
            cause,
        })?;
        let status = MetricStatus {
            kind: "ContainerResource".to_owned(),
            container_resource: Some(ResourceValue {
                name: own.name.clone(),
                current,
                container: container.clone(),
            }),
            ..MetricStatus::default()
        };
        Ok(Proposal {
            replicas,
            name: shown,
            status,
        })
    }

    fn of_resource(
        &self,
        own: &ResourceSource,
        kind: &str,
        fetched: Result<Fetched, String>,
    ) -> Result<OfResource, String> {
        let (name, replicas) = (own.name.as_str(), self.replicas.spec);
        let samples = |fetched: Result<Fetched, String>| {
            let fetched =
                fetched.map_err(|error| format!("unable to get metrics for resource {name}: {error}"));
            fetched.map(of_pods)
        };
        if let Some(target) = own.target.average_value {
            let usage = samples(fetched)
                .and_then(|metrics| self.calculator.average(replicas, target.millis(), name, metrics))
                .map_err(|error| format!("failed to get {name} usage: {error}"))?;
            let value = Value {
                average_value: Some(amount(name, usage.value)),
                ..Value::default()
            };
            return Ok((usage.replicas, value, format!("{name} resource")));
        }
        let Some(target) = own.target.average_utilization else {
            return Err("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set".to_owned());
        };
        let of = (name, own.container.as_str());
        let found = samples(fetched)
            .and_then(|metrics| self.calculator.utilization(replicas, target, of, metrics))
            .map_err(|error| format!("failed to get {name} utilization: {error}"))?;
        let value = Value {
            average_value: Some(amount(name, found.average)),
            average_utilization: Some(found.percent),
            ..Value::default()
        };
        let shown = format!("{name} {kind} utilization (percentage of request)");
        Ok((found.replicas, value, shown))
    }

    fn pods(&self, own: &PodsSource, fetched: Result<Fetched, String>) -> Result<Proposal, Failure> {
        let name = &own.metric.name;
        let target = own.target.average_value.unwrap_or_default().millis();
        let usage = fetched
            .map_err(|error| format!("unable to get metric {name}: {error}"))
            .and_then(|fetched| {
                self.calculator
                    .average(self.replicas.spec, target, "", of_pods(fetched))
            })
            .map_err(|cause| Failure {
                reason: "FailedGetPodsMetric",
                error: format!("failed to get pods metric value: {cause}"),
                cause,
            })?;
        let value = metric_value(&own.metric, Value::average(usage.value));
        Ok(Proposal {
            replicas: usage.replicas,
            name: format!("pods metric {name}"),
            status: MetricStatus {
                kind: "Pods".to_owned(),
                pods: Some(value),
                ..MetricStatus::default()
            },
        })
    }

    fn object(&self, own: &ObjectSource, fetched: Result<Fetched, String>) -> Result<Proposal, Failure> {
        let (name, target) = (&own.metric.name, &own.target);
        let (of, replicas) = (&own.described_object, self.replicas);
        let (kind, object, namespace) = (&of.kind, &of.name, self.namespace);
        let failed = |within: String| {
            move |cause: String| Failure {
                reason: "FailedGetObjectMetric",
                error: format!("failed to get object metric value: {within}{cause}"),
                cause,
            }
        };
        let value = fetched
            .map(sum)
            .map_err(|error| format!("unable to get metric {name} on {kind} {namespace}/{object}: {error}"));
        let (usage, current, shown) = match (target.kind.as_str(), target.value, target.average_value) {
            ("Value", Some(target), _) => {
                let usage =
                    value.and_then(|value| self.calculator.total(replicas.spec, target.millis(), value));
                let usage = usage.map_err(failed(String::new()))?;
                (usage, Value::total(usage.value), format!("{kind} metric {name}"))
            }
            ("AverageValue", _, Some(target)) => {
                let value = value.map_err(failed(format!("failed to get {name} object metric: ")))?;
                let usage = self
                    .calculator
                    .total_per_pod(replicas.status, target.millis(), value);
                (usage, Value::average(usage.value), external_name(&own.metric))
            }
            _ => {
                let cause = "invalid object metric source: neither a value target nor an average value target was set";
                return Err(failed(String::new())(cause.to_owned()));
            }
        };
        let value = MetricValue {
            described_object: Some(of.clone()),
            ..metric_value(&own.metric, current)
        };
        Ok(Proposal {
            replicas: usage.replicas,
            name: shown,
            status: MetricStatus {
                kind: "Object".to_owned(),
                object: Some(value),
                ..MetricStatus::default()
            },
        })
    }

    fn external(&self, own: &PodsSource, fetched: Result<Fetched, String>) -> Result<Proposal, Failure> {
        let (name, replicas) = (&own.metric.name, self.replicas);
        let failed = |within: String| {
            move |cause: String| Failure {
                reason: "FailedGetExternalMetric",
                error: format!("failed to get {name} external metric value: {within}{cause}"),
                cause,
            }
        };
        let value = fetched.map(sum).map_err(|error| {
            let (namespace, selector) = (self.namespace, shown(own.metric.selector.as_ref()));
            format!("unable to get external metric {namespace}/{name}/{selector}: {error}")
        });
        let (usage, current): (Usage, Value) = match (own.target.average_value, own.target.value) {
            (Some(target), _) => {
                let value = value.map_err(failed(format!("failed to get {name} external metric: ")))?;
                let usage = self
                    .calculator
                    .total_per_pod(replicas.status, target.millis(), value);
                (usage, Value::average(usage.value))
            }
            (None, Some(target)) => {
                let usage =
                    value.and_then(|value| self.calculator.total(replicas.spec, target.millis(), value));
                let usage = usage.map_err(failed(format!("failed to get external metric {name}: ")))?;
                (usage, Value::total(usage.value))
            }
            (None, None) => {
                let cause = "invalid external metric source: neither a value target nor an average value target was set";
                return Err(failed(String::new())(cause.to_owned()));
            }
        };
        Ok(Proposal {
            replicas: usage.replicas,
            name: external_name(&own.metric),
            status: MetricStatus {
                kind: "External".to_owned(),
                external: Some(metric_value(&own.metric, current)),
                ..MetricStatus::default()
            },
        })
    }
}

fn external_name(metric: &MetricIdentifier) -> String {
    format!(
        "external metric {}({})",
        metric.name,
        shown(metric.selector.as_ref())
    )
}

fn metric_value(metric: &MetricIdentifier, current: Value) -> MetricValue {
    MetricValue {
        metric: metric.clone(),
        current,
        described_object: None,
    }
}

fn of_pods(fetched: Fetched) -> PodMetrics {
    match fetched {
        Fetched::Pods(metrics) => metrics,
        Fetched::Object(_) | Fetched::External(_) => PodMetrics::new(),
    }
}

/// The values together, as far as they can be counted.
fn sum(fetched: Fetched) -> i64 {
    match fetched {
        Fetched::Object(value) => value,
        Fetched::External(values) => values.into_iter().fold(0, i64::saturating_add),
        Fetched::Pods(metrics) => metrics
            .values()
            .fold(0, |sum: i64, own| sum.saturating_add(own.value)),
    }
}

/// An amount of a resource, in thousandths, as metrics of pods show it.
pub(super) fn amount(resource: &str, millis: i64) -> String {
    let amount = Quantity::from_millis(millis);
    match resource {
        "memory" => amount.with_format(Format::BinarySi).to_string(),
        _ => amount.to_string(),
    }
}
