//! Figures as upstream's kubelet has them of cAdvisor: `/metrics/cadvisor`, in cAdvisor's names and labels, as far as the agent
//! knows them. A row is the machine (`id="/"`), a pod (no `container`), or a container.

use std::fmt::Write as _;

use http::{Response, StatusCode};
use jiff::Timestamp;
use node_sys::cgroup::CgroupStats;
use node_sys::machine::Machine;

use super::figures::{ContainerFigures, Figures, PodFigures, gather};
use super::metrics::TEXT_FORMAT;
use super::response::{Body, with_type};
use crate::containers::resources::{container_cgroup, pod_cgroup};
use crate::managers::ManagerContext;
use crate::pods::plan::container_named;
use crate::pods::{name, namespace};

/// Answers with what the machine, its pods and their containers use.
pub(super) async fn answer(context: &ManagerContext) -> Response<Body> {
    let figures = gather(context).await.map_err(|message| {
        tracing::warn!(error = %message, "reading container statistics failed");
    });
    let root = &context.config.cgroup_root;
    let text = rendered(figures.as_ref().ok(), root, &context.facts.machine);
    with_type(StatusCode::OK, TEXT_FORMAT, text.into())
}

/// Usage of one cgroup; `None` is unknown.
#[derive(Debug, Default)]
struct Row {
    id: String,
    container: String,
    image: String,
    name: String,
    namespace: String,
    pod: String,
    started_at: Timestamp,
    cpu_nanoseconds: Option<u64>,
    memory_usage_bytes: Option<u64>,
    memory_working_set_bytes: Option<u64>,
    memory_rss_bytes: Option<u64>,
    page_faults: Option<u64>,
    major_page_faults: Option<u64>,
    threads: Option<u64>,
}

/// One label more.
type Extra = (&'static str, &'static str);
/// A value with its own labels; `None` is unknown.
type Sample = (&'static [Extra], Option<f64>);

/// A family: its name, kind and help, and its samples of a row with labels of their own.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    of: fn(&Row, Timestamp) -> Vec<Sample>,
}

const FAMILIES: [Family; 8] = [
    Family {
        name: "container_cpu_usage_seconds_total",
        kind: "counter",
        help: "Cumulative cpu time consumed in seconds.",
        of: |row, _| {
            vec![(
                &[("cpu", "total")],
                row.cpu_nanoseconds.map(|used| used as f64 / 1e9),
            )]
        },
    },
    Family {
        name: "container_last_seen",
        kind: "gauge",
        help: "Last time a container was seen by the exporter",
        of: |_, now| vec![(&[], Some(now.as_second() as f64))],
    },
    Family {
        name: "container_memory_failures_total",
        kind: "counter",
        help: "Cumulative count of memory allocation failures.",
        of: |row, _| {
            vec![
                (
                    &[("failure_type", "pgfault"), ("scope", "container")],
                    number(row.page_faults),
                ),
                (
                    &[("failure_type", "pgmajfault"), ("scope", "container")],
                    number(row.major_page_faults),
                ),
            ]
        },
    },
    Family {
        name: "container_memory_rss",
        kind: "gauge",
        help: "Size of RSS in bytes.",
        of: |row, _| vec![(&[], number(row.memory_rss_bytes))],
    },
    Family {
        name: "container_memory_usage_bytes",
        kind: "gauge",
        help: "Current memory usage in bytes, including all memory regardless of when it was accessed",
        of: |row, _| vec![(&[], number(row.memory_usage_bytes))],
    },
    Family {
        name: "container_memory_working_set_bytes",
        kind: "gauge",
        help: "Current working set in bytes.",
        of: |row, _| vec![(&[], number(row.memory_working_set_bytes))],
    },
    Family {
        name: "container_start_time_seconds",
        kind: "gauge",
        help: "Start time of the container since unix epoch in seconds.",
        of: |row, _| vec![(&[], Some(row.started_at.as_second() as f64))],
    },
    Family {
        name: "container_threads",
        kind: "gauge",
        help: "Number of threads running inside the container",
        of: |row, _| vec![(&[], number(row.threads))],
    },
];

fn number(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn of_group(used: &CgroupStats) -> Row {
    Row {
        cpu_nanoseconds: Some(used.cpu_usage_nanoseconds),
        memory_usage_bytes: Some(used.memory_usage_bytes),
        memory_working_set_bytes: Some(used.memory_working_set_bytes),
        memory_rss_bytes: Some(used.memory_rss_bytes),
        threads: Some(used.pids),
        ..Row::default()
    }
}

fn of_container(pod: &PodFigures, own: &ContainerFigures, root: &str) -> Row {
    let (cpu, memory) = (own.stats.cpu.as_ref(), own.stats.memory.as_ref());
    let memory = |of: fn(&node_cri::v1::MemoryUsage) -> Option<node_cri::v1::UInt64Value>| {
        memory.and_then(of).map(|value| value.value)
    };
    let id = own.stats.attributes.as_ref().map(|own| own.id.clone());
    let id = id.unwrap_or_default();
    let image = container_named(&pod.pod, &own.name).and_then(|(_, found)| found.image.clone());
    Row {
        id: container_cgroup(root, &pod.pod, &id),
        container: own.name.clone(),
        image: image.unwrap_or_default(),
        name: id,
        namespace: namespace(&pod.pod).to_owned(),
        pod: name(&pod.pod).to_owned(),
        started_at: own.started_at,
        cpu_nanoseconds: cpu
            .and_then(|cpu| cpu.usage_core_nano_seconds)
            .map(|used| used.value),
        memory_usage_bytes: memory(|memory| memory.usage_bytes),
        memory_working_set_bytes: memory(|memory| memory.working_set_bytes),
        memory_rss_bytes: memory(|memory| memory.rss_bytes),
        page_faults: memory(|memory| memory.page_faults),
        major_page_faults: memory(|memory| memory.major_page_faults),
        threads: None,
    }
}

fn rows(figures: &Figures, root: &str) -> Vec<Row> {
    let mut rows = vec![Row {
        id: "/".to_owned(),
        started_at: figures.booted_at,
        ..of_group(&figures.node)
    }];
    for pod in &figures.pods {
        rows.push(Row {
            id: pod_cgroup(root, &pod.pod),
            namespace: namespace(&pod.pod).to_owned(),
            pod: name(&pod.pod).to_owned(),
            started_at: pod.started_at,
            ..of_group(&pod.used)
        });
        rows.extend(pod.containers.iter().map(|own| of_container(pod, own, root)));
    }
    rows
}

/// All families; those without a sample are left out, and all of containers where nothing is known.
fn rendered(figures: Option<&Figures>, root: &str, machine: &Machine) -> String {
    let mut out = String::new();
    let rows = figures.map(|figures| rows(figures, root)).unwrap_or_default();
    let now = figures.map(|figures| figures.now).unwrap_or_default();
    for family in &FAMILIES {
        let samples: Vec<String> = rows.iter().flat_map(|row| samples(family, row, now)).collect();
        if !samples.is_empty() {
            heading(&mut out, family.name, family.kind, family.help);
            out.extend(samples);
        }
    }
    heading(
        &mut out,
        "container_scrape_error",
        "gauge",
        "1 if there was an error while getting container metrics, 0 otherwise",
    );
    let _ = writeln!(out, "container_scrape_error {}", u8::from(figures.is_none()));
    let labels = labelled(&[
        ("boot_id", &machine.boot_id),
        ("machine_id", &machine.machine_id),
        ("system_uuid", &machine.system_uuid),
    ]);
    heading(
        &mut out,
        "machine_cpu_cores",
        "gauge",
        "Number of logical CPU cores.",
    );
    let _ = writeln!(out, "machine_cpu_cores{labels} {}", machine.cpus);
    let help = "Amount of memory installed on the machine.";
    heading(&mut out, "machine_memory_bytes", "gauge", help);
    let _ = writeln!(out, "machine_memory_bytes{labels} {}", machine.memory_bytes);
    out
}

fn heading(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Lines of a family, each with its time.
fn samples(family: &Family, row: &Row, now: Timestamp) -> Vec<String> {
    let own = [
        ("container", row.container.as_str()),
        ("id", &row.id),
        ("image", &row.image),
        ("name", &row.name),
        ("namespace", &row.namespace),
        ("pod", &row.pod),
    ];
    let line = |(extra, value): Sample| {
        let mut labels = [&own, extra].concat();
        labels.sort_unstable();
        let (name, labels) = (family.name, labelled(&labels));
        Some(format!("{name}{labels} {} {}\n", value?, now.as_millisecond()))
    };
    (family.of)(row, now).into_iter().filter_map(line).collect()
}

/// Labels in Prometheus' form; an image's name is whatever its pod says.
fn labelled(labels: &[(&str, &str)]) -> String {
    let escaped = |value: &str| {
        value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    };
    let labels = labels
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    format!("{{{}}}", labels.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_cri::v1;
    use std::sync::Arc;

    fn figures() -> Figures {
        let number = |value| Some(v1::UInt64Value { value });
        let stats = v1::ContainerStats {
            attributes: Some(v1::ContainerAttributes {
                id: "c1".to_owned(),
                ..v1::ContainerAttributes::default()
            }),
            cpu: Some(v1::CpuUsage {
                usage_core_nano_seconds: number(2_500_000_000),
                ..v1::CpuUsage::default()
            }),
            memory: Some(v1::MemoryUsage {
                working_set_bytes: number(4_096),
                page_faults: number(7),
                ..v1::MemoryUsage::default()
            }),
            ..v1::ContainerStats::default()
        };
        let pod = r#"{"metadata": {"name": "web", "namespace": "shop", "uid": "u"},
            "spec": {"containers": [{"name": "main", "image": "a\"b"}]}}"#;
        let time = |seconds| Timestamp::from_second(seconds).unwrap();
        Figures {
            now: time(1_000),
            booted_at: time(1),
            node: CgroupStats::default(),
            pods: vec![PodFigures {
                pod: Arc::new(serde_json::from_str(pod).unwrap()),
                started_at: time(900),
                used: CgroupStats {
                    cpu_usage_nanoseconds: 3_000_000_000,
                    pids: 5,
                    ..CgroupStats::default()
                },
                containers: vec![ContainerFigures {
                    name: "main".to_owned(),
                    started_at: time(901),
                    stats,
                }],
            }],
        }
    }

    #[test]
    fn cadvisor_rows_have_upstreams_names_and_labels() {
        let text = rendered(Some(&figures()), "/", &Machine::observe());
        let container =
            r#"id="/kubepods/besteffort/podu/c1",image="a\"b",name="c1",namespace="shop",pod="web"}"#;
        let pod = r#"id="/kubepods/besteffort/podu",image="",name="",namespace="shop",pod="web"}"#;
        let machine = r#"id="/",image="",name="",namespace="",pod=""}"#;
        for line in [
            format!(
                r#"container_cpu_usage_seconds_total{{container="main",cpu="total",{container} 2.5 1000000"#
            ),
            format!(r#"container_cpu_usage_seconds_total{{container="",cpu="total",{pod} 3 1000000"#),
            format!(r#"container_cpu_usage_seconds_total{{container="",cpu="total",{machine} 0 1000000"#),
            format!(
                r#"container_memory_failures_total{{container="main",failure_type="pgfault",{} 7 1000000"#,
                container.replace(r#"pod="web"}"#, r#"pod="web",scope="container"}"#)
            ),
            format!(r#"container_memory_working_set_bytes{{container="main",{container} 4096 1000000"#),
            format!(r#"container_start_time_seconds{{container="main",{container} 901 1000000"#),
            format!(r#"container_threads{{container="",{pod} 5 1000000"#),
            "container_scrape_error 0".to_owned(),
        ] {
            assert!(text.lines().any(|own| own == line), "{line}\nis not in\n{text}");
        }
        assert!(text.contains("# TYPE container_cpu_usage_seconds_total counter\n"));
        assert!(!text.contains("pgmajfault"), "what is unknown has no sample");
        let machine = rendered(None, "/", &Machine::observe());
        assert!(machine.contains("container_scrape_error 1\n") && machine.contains("\nmachine_cpu_cores{"));
        assert!(!machine.contains("container_last_seen"));
    }
}
