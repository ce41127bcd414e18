//! Figures as Prometheus reads them: `/metrics` and `/metrics/resource`.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use http::{Response, StatusCode};
use jiff::Timestamp;
use node_cri::v1;
use node_sys::cgroup::CgroupStats;

use super::components;
use super::node_counts::NodeCounts;
use super::response::{Body, with_type};
use super::tls::ServingCertificate;
use super::usage::Usage;
use super::usage::figures::{ContainerFigures, Figures, PodFigures};
use crate::managers::ManagerContext;
use crate::metrics::probes::ProbeMetrics;
use crate::pods::{name, namespace};

pub(super) const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The agent's own figures.
pub(super) async fn metrics(
    context: &ManagerContext,
    usage: &Usage,
    serving: &ServingCertificate,
) -> Response<Body> {
    let runtime = usage.counts(context).await.ok();
    let (pods, now) = (context.pods.stages(), context.runtime.now());
    let counts = NodeCounts {
        node: &context.config.node_name,
        cgroup_version: context.workers.control.cgroups.version(),
        pods: &pods,
        runtime: runtime.as_deref(),
        certificate_seconds: serving.not_after().map(|at| at.as_second() - now.as_second()),
    };
    let mut out = String::new();
    counts.write(&mut out);
    counted(&mut out, PREEMPTIONS, context.workers.allocations.preempted());
    context.workers.evictions.lock().write(&mut out);
    counted(&mut out, IMAGES_REMOVED, context.workers.control.images.removed());
    context.workers.control.images.volumes().write(&mut out);
    context.workers.csi.write_metrics(&mut out);
    certificates(&context.workers.objects.certificates().states(), &mut out);
    components::metrics(context.runtime.components(), &mut out);
    // Those of service rules and names.
    out.push_str(&context.runtime.metrics().text());
    with_type(StatusCode::OK, TEXT_FORMAT, out.into())
}

/// Name, help and label of a family that is counted by one label.
type Counted = (&'static str, &'static str, &'static str);

const PREEMPTIONS: Counted = (
    "kubelet_preemptions",
    "Cumulative number of pod preemptions by preemption resource",
    "preemption_signal",
);
const IMAGES_REMOVED: Counted = (
    "kubelet_image_garbage_collected_total",
    "Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
    "reason",
);

fn counted<N: Display>(out: &mut String, (name, help, label): Counted, counts: BTreeMap<N, u64>) {
    let _ = writeln!(out, "# HELP {name} [ALPHA] {help}\n# TYPE {name} counter");
    for (value, count) in counts {
        let _ = writeln!(out, "{name}{{{label}=\"{value}\"}} {count}");
    }
}

/// The figures of probes, and the start of the process.
pub(super) fn probes(context: &ManagerContext) -> Response<Body> {
    let own = context.runtime.metrics().text();
    let out = probes_text(&context.workers.probe_metrics, &own);
    with_type(StatusCode::OK, TEXT_FORMAT, out.into())
}

fn probes_text(probes: &ProbeMetrics, own: &str) -> String {
    let mut out = probes.text();
    let is_start = |line: &&str| line.contains("process_start_time_seconds");
    for line in own.lines().filter(is_start) {
        // On this page upstream has it of its own registry, with a stability.
        let line = line.replace("_seconds Start", "_seconds [ALPHA] Start");
        let _ = writeln!(out, "{line}");
    }
    out
}

/// Projections of pod certificates by signer, whose name has no character that a label escapes, and state.
fn certificates(states: &BTreeMap<(String, &'static str), usize>, out: &mut String) {
    out.push_str(
        "# HELP kubelet_podcertificate_states [ALPHA] Gauge vector reporting the number of pod certificate projected \
         volume sources, faceted by signer_name and state.\n# TYPE kubelet_podcertificate_states gauge\n",
    );
    for ((signer, state), count) in states {
        let _ = writeln!(
            out,
            "kubelet_podcertificate_states{{signer_name=\"{signer}\",state=\"{state}\"}} {count}"
        );
    }
}

/// Writes the usage of the node, its pods and their containers under upstream's names.
pub(super) async fn resource(context: &ManagerContext, usage: &Usage) -> Response<Body> {
    let figures = usage.figures(context).await.map_err(|message| {
        tracing::warn!(error = %message, "reading container statistics failed");
    });
    let text = resource_text(figures.as_deref().ok());
    with_type(StatusCode::OK, TEXT_FORMAT, text.into())
}

/// A family: its name, kind and help, and what it has of a container, a pod or the node.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    /// Upstream's word of how long it stays as it is.
    stability: &'static str,
    of: Of,
}

const STABLE: &str = "STABLE";
const ALPHA: &str = "ALPHA";

enum Of {
    Container(fn(&ContainerFigures) -> Option<f64>),
    Pod(fn(&CgroupStats) -> Option<f64>),
    Node(fn(&CgroupStats) -> Option<f64>),
    /// The only sample without a time of its own but [`Of::Error`].
    Start,
    Error,
}

const FAMILIES: [Family; 12] = [
    Family {
        name: "container_cpu_usage_seconds_total",
        kind: "counter",
        help: "Cumulative cpu time consumed by the container in core-seconds",
        stability: STABLE,
        of: Of::Container(|container| {
            let used = container.stats.cpu?.usage_core_nano_seconds;
            number(used).map(|nanoseconds| nanoseconds / 1e9)
        }),
    },
    Family {
        name: "container_memory_working_set_bytes",
        kind: "gauge",
        help: "Current working set of the container in bytes",
        stability: STABLE,
        of: Of::Container(|container| number(container.stats.memory?.working_set_bytes)),
    },
    Family {
        name: "container_start_time_seconds",
        kind: "gauge",
        help: "Start time of the container since unix epoch in seconds",
        stability: STABLE,
        of: Of::Start,
    },
    Family {
        name: "container_swap_limit_bytes",
        kind: "gauge",
        help: "Current amount of the container swap limit in bytes. Reported only on non-windows systems",
        stability: ALPHA,
        of: Of::Container(|container| container.used.swap_limit_bytes.map(|limit| limit as f64)),
    },
    Family {
        name: "container_swap_usage_bytes",
        kind: "gauge",
        help: "Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        stability: ALPHA,
        of: Of::Container(|container| swap(&container.used)),
    },
    Family {
        name: "node_cpu_usage_seconds_total",
        kind: "counter",
        help: "Cumulative cpu time consumed by the node in core-seconds",
        stability: STABLE,
        of: Of::Node(|used| Some(cpu_seconds(used))),
    },
    Family {
        name: "node_memory_working_set_bytes",
        kind: "gauge",
        help: "Current working set of the node in bytes",
        stability: STABLE,
        of: Of::Node(|used| Some(used.memory_working_set_bytes as f64)),
    },
    Family {
        name: "node_swap_usage_bytes",
        kind: "gauge",
        help: "Current swap usage of the node in bytes. Reported only on non-windows systems",
        stability: ALPHA,
        of: Of::Node(swap),
    },
    Family {
        name: "pod_cpu_usage_seconds_total",
        kind: "counter",
        help: "Cumulative cpu time consumed by the pod in core-seconds",
        stability: STABLE,
        of: Of::Pod(|used| Some(cpu_seconds(used))),
    },
    Family {
        name: "pod_memory_working_set_bytes",
        kind: "gauge",
        help: "Current working set of the pod in bytes",
        stability: STABLE,
        of: Of::Pod(|used| Some(used.memory_working_set_bytes as f64)),
    },
    Family {
        name: "pod_swap_usage_bytes",
        kind: "gauge",
        help: "Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        stability: ALPHA,
        of: Of::Pod(swap),
    },
    Family {
        name: "resource_scrape_error",
        kind: "gauge",
        help: "1 if there was an error while getting container metrics, 0 otherwise",
        stability: STABLE,
        of: Of::Error,
    },
];

fn number(value: Option<v1::UInt64Value>) -> Option<f64> {
    value.map(|value| value.value as f64)
}

fn swap(used: &CgroupStats) -> Option<f64> {
    used.swap_bytes.map(|bytes| bytes as f64)
}

fn cpu_seconds(used: &CgroupStats) -> f64 {
    used.cpu_usage_nanoseconds as f64 / 1e9
}

/// A family without values is left out, as are all but the last if nothing is known.
fn resource_text(figures: Option<&Figures>) -> String {
    let mut out = String::new();
    for family in &FAMILIES {
        let samples = match (&family.of, figures) {
            (Of::Error, figures) => vec![(String::new(), if figures.is_some() { "0" } else { "1" }.into())],
            (_, None) => Vec::new(),
            (of, Some(figures)) => samples(of, figures),
        };
        if samples.is_empty() {
            continue;
        }
        let Family {
            name,
            kind,
            help,
            stability,
            ..
        } = family;
        let _ = writeln!(out, "# HELP {name} [{stability}] {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(out, "{name}{labels} {value}");
        }
    }
    out
}

/// Labels, and the value with its time.
fn samples(of: &Of, figures: &Figures) -> Vec<(String, String)> {
    let at = |value: f64| format!("{value} {}", figures.now.as_millisecond());
    let containers = || {
        let of_pod = |pod| move |container| (pod, container);
        figures
            .pods
            .iter()
            .flat_map(move |pod| pod.containers.iter().map(of_pod(pod)))
    };
    match of {
        Of::Container(value) => containers()
            .filter_map(|(pod, own)| Some((labels(pod, Some(own)), at(value(own)?))))
            .collect(),
        Of::Start => containers()
            .map(|(pod, own)| (labels(pod, Some(own)), seconds(own.started_at)))
            .collect(),
        Of::Pod(value) => figures
            .pods
            .iter()
            .filter_map(|pod| Some((labels(pod, None), at(value(&pod.used)?))))
            .collect(),
        Of::Node(value) => value(&figures.node)
            .map(|own| (String::new(), at(own)))
            .into_iter()
            .collect(),
        Of::Error => Vec::new(),
    }
}

fn labels(pod: &PodFigures, container: Option<&ContainerFigures>) -> String {
    let own = container.map(|own| format!("container=\"{}\",", own.name));
    format!(
        "{{{}namespace=\"{}\",pod=\"{}\"}}",
        own.unwrap_or_default(),
        namespace(&pod.pod),
        name(&pod.pod)
    )
}

fn seconds(time: Timestamp) -> String {
    format!("{}.{:09}", time.as_second(), time.subsec_nanosecond())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::metrics::EvictionMetrics;
    use crate::families;
    use crate::images::VolumeCounts;
    use crate::metrics::probes::ProbeLabels;
    use crate::server::metric_families::{compare, compare_described};
    use crate::server::usage::listing::RuntimeCounts;
    use machinery_runtime::Runtime;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn metrics_of_pod_certificates_are_upstreams() {
        let mut out = String::new();
        let states = BTreeMap::from([
            (("example.com/foo".to_owned(), "fresh"), 1),
            (("example.com/foo".to_owned(), "overdue_for_refresh"), 1),
            (("example.com/bar".to_owned(), "fresh"), 2),
        ]);
        certificates(&states, &mut out);
        let expected = "# HELP kubelet_podcertificate_states [ALPHA] Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name and state.
# TYPE kubelet_podcertificate_states gauge
kubelet_podcertificate_states{signer_name=\"example.com/bar\",state=\"fresh\"} 2
kubelet_podcertificate_states{signer_name=\"example.com/foo\",state=\"fresh\"} 1
kubelet_podcertificate_states{signer_name=\"example.com/foo\",state=\"overdue_for_refresh\"} 1
";
        assert_eq!(out, expected);
    }

    fn sample() -> Figures {
        let used = |seconds: u64| CgroupStats {
            cpu_usage_nanoseconds: seconds * 1_000_000_000,
            memory_working_set_bytes: seconds << 20,
            swap_bytes: Some(seconds << 10),
            swap_limit_bytes: Some(seconds << 11),
            ..CgroupStats::default()
        };
        let number = |value| Some(v1::UInt64Value { value });
        let stats = v1::ContainerStats {
            cpu: Some(v1::CpuUsage {
                usage_core_nano_seconds: number(2_500_000_000),
                ..v1::CpuUsage::default()
            }),
            memory: Some(v1::MemoryUsage {
                working_set_bytes: number(4096),
                ..v1::MemoryUsage::default()
            }),
            ..v1::ContainerStats::default()
        };
        let pod = r#"{"metadata":{"name":"web","namespace":"shop"}}"#;
        let time = |seconds| Timestamp::from_second(seconds).unwrap();
        Figures {
            now: time(1000),
            booted_at: time(1),
            node: used(100),
            pods: vec![PodFigures {
                pod: Arc::new(serde_json::from_str(pod).unwrap()),
                started_at: time(900),
                used: used(3),
                containers: vec![ContainerFigures {
                    name: "main".to_owned(),
                    id: "id".to_owned(),
                    used: used(1),
                    started_at: Timestamp::from_millisecond(901_250).unwrap(),
                    stats,
                }],
            }],
        }
    }

    #[test]
    fn metrics_names_match_upstream() {
        let text = resource_text(Some(&sample()));
        let told: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let container = r#"{container="main",namespace="shop",pod="web"}"#;
        let pod = r#"{namespace="shop",pod="web"}"#;
        let expected = [
            format!("container_cpu_usage_seconds_total{container} 2.5 1000000"),
            format!("container_memory_working_set_bytes{container} 4096 1000000"),
            format!("container_start_time_seconds{container} 901.250000000"),
            format!("container_swap_limit_bytes{container} 2048 1000000"),
            format!("container_swap_usage_bytes{container} 1024 1000000"),
            "node_cpu_usage_seconds_total 100 1000000".to_owned(),
            "node_memory_working_set_bytes 104857600 1000000".to_owned(),
            "node_swap_usage_bytes 102400 1000000".to_owned(),
            format!("pod_cpu_usage_seconds_total{pod} 3 1000000"),
            format!("pod_memory_working_set_bytes{pod} 3145728 1000000"),
            format!("pod_swap_usage_bytes{pod} 3072 1000000"),
            "resource_scrape_error 0".to_owned(),
        ];
        assert_eq!(told, expected);
        assert!(text.contains("# TYPE node_cpu_usage_seconds_total counter\n"));
        assert!(resource_text(None).ends_with("gauge\nresource_scrape_error 1\n"));
    }

    fn metrics_sample() -> String {
        let mut out = String::new();
        let runtime = RuntimeCounts {
            sandboxes: 1,
            containers: BTreeMap::from([("running", 1)]),
        };
        let counts = NodeCounts {
            node: "n",
            cgroup_version: 1,
            pods: &[],
            runtime: Some(&runtime),
            certificate_seconds: Some(1),
        };
        counts.write(&mut out);
        counted(&mut out, PREEMPTIONS, BTreeMap::from([("memory", 1)]));
        counted(&mut out, IMAGES_REMOVED, BTreeMap::from([("age", 1)]));
        let mut evictions = EvictionMetrics::default();
        evictions.evicted("memory.available");
        evictions.decided("memory.available", Duration::from_secs(1));
        evictions.write(&mut out);
        VolumeCounts::default().write(&mut out);
        crate::csi::write_sample(&mut out);
        certificates(
            &BTreeMap::from([(("example.com/foo".to_owned(), "fresh"), 1)]),
            &mut out,
        );
        out
    }

    #[tokio::test]
    async fn families_of_metrics_are_upstreams() {
        let runtime = Runtime::real();
        families::begin(&runtime);
        let own = runtime.metrics().text();
        // The last is of the library that reads them.
        let is_process = |line: &&str| line.contains("process_") && !line.contains("process_threads");
        let process: String = own
            .lines()
            .filter(is_process)
            .map(|line| format!("{line}\n"))
            .collect();
        let mut found = compare("metrics", &format!("{}{process}", metrics_sample()));
        found.extend(compare_described("metrics", &runtime.metrics().described()));
        crate::server::metric_families::all_are_there("metrics", &found);
    }

    #[tokio::test]
    async fn families_of_probes_are_upstreams() {
        let runtime = Runtime::real();
        families::begin(&runtime);
        let probes = ProbeMetrics::default();
        let labels = ProbeLabels {
            kind: "Liveness",
            container: "main".to_owned(),
            pod: "web".to_owned(),
            namespace: "shop".to_owned(),
            pod_uid: "u".to_owned(),
        };
        probes.probed(&labels, true, Duration::from_secs(1));
        let text = probes_text(&probes, &runtime.metrics().text());
        let found = compare("probes", &text);
        crate::server::metric_families::all_are_there("probes", &found);
    }

    #[test]
    fn families_of_resources_are_upstreams() {
        let found = compare("resource", &resource_text(Some(&sample())));
        crate::server::metric_families::all_are_there("resource", &found);
    }
}
