//! Numbers of pods and containers on `/metrics`, counted when a client asks.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::usage::listing::RuntimeCounts;
use crate::pods::ephemeral::ephemeral_containers;
use crate::pods::is_static;
use crate::pods::source::PodStage;

/// Sources of the counts.
#[derive(Debug)]
pub(super) struct NodeCounts<'a> {
    pub(super) node: &'a str,
    /// 1 or 2.
    pub(super) cgroup_version: u8,
    /// Pods that have workers.
    pub(super) pods: &'a [PodStage],
    /// Sandboxes and containers, where the runtime says.
    pub(super) runtime: Option<&'a RuntimeCounts>,
    /// Seconds until the serving certificate expires, where it has a time.
    pub(super) certificate_seconds: Option<i64>,
}

impl NodeCounts<'_> {
    /// Writes the families.
    pub(super) fn write(&self, out: &mut String) {
        let mut family = |name: &str, help: &str, samples: &[(String, i64)]| {
            let _ = writeln!(out, "# HELP {name} [ALPHA] {help}\n# TYPE {name} gauge");
            for (labels, value) in samples {
                let _ = writeln!(out, "{name}{labels} {value}");
            }
        };
        let of_node = format!("{{node=\"{}\"}}", self.node);
        family(
            "kubelet_node_name",
            "The node's name. The count is always 1.",
            &[(of_node, 1)],
        );
        family(
            "kubelet_cgroup_version",
            "cgroup version on the hosts.",
            &plain(self.cgroup_version.into()),
        );
        if let Some(runtime) = self.runtime {
            let running = signed(runtime.sandboxes);
            family(
                "kubelet_running_pods",
                "Number of pods that have a running pod sandbox",
                &plain(running),
            );
            let states = runtime.containers.iter();
            let states =
                states.map(|(state, count)| (format!("{{container_state=\"{state}\"}}"), signed(*count)));
            family(
                "kubelet_running_containers",
                "Number of containers currently running",
                &states.collect::<Vec<_>>(),
            );
        }
        let is_desired = |own: &&PodStage| !own.is_orphaned;
        family(
            "kubelet_desired_pods",
            "The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.",
            &self.by_source(is_desired),
        );
        family(
            "kubelet_active_pods",
            "The number of pods the kubelet considers active and which are being considered when admitting new pods. static \
             is true if the pod is not from the apiserver.",
            &self.by_source(|own| own.lifecycle != "terminated"),
        );
        family(
            "kubelet_working_pods",
            "Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is desired, \
             orphaned, or runtime only (also orphaned), and whether the pod is static. An orphaned pod has been removed from \
             local configuration or force deleted in the API and consumes resources that are not otherwise visible.",
            &self.working(),
        );
        let of_files = self
            .pods
            .iter()
            .filter(is_desired)
            .filter(|own| is_static(&own.pod));
        family(
            "kubelet_mirror_pods",
            "The number of mirror pods the kubelet will try to create (one per admitted static pod)",
            &plain(signed(of_files.count())),
        );
        let ephemeral = self.pods.iter().map(|own| ephemeral_containers(&own.pod).count());
        family(
            "kubelet_managed_ephemeral_containers",
            "Current number of ephemeral containers in pods managed by this kubelet.",
            &plain(signed(ephemeral.sum())),
        );
        if let Some(seconds) = self.certificate_seconds {
            family(
                "kubelet_certificate_manager_server_ttl_seconds",
                "Gauge of the shortest TTL (time-to-live) of the Kubelet's serving certificate. The value is in seconds until \
                 certificate expiry (negative if already expired). If serving certificate is invalid or unused, the value \
                 will be +INF.",
                &plain(seconds),
            );
        }
    }

    fn by_source(&self, is_counted: impl Fn(&&PodStage) -> bool) -> Vec<(String, i64)> {
        let count = |of_file: bool| {
            let counted = self.pods.iter().filter(&is_counted);
            signed(counted.filter(|own| is_static(&own.pod) == of_file).count())
        };
        vec![
            ("{static=\"\"}".to_owned(), count(false)),
            ("{static=\"true\"}".to_owned(), count(true)),
        ]
    }

    fn working(&self) -> Vec<(String, i64)> {
        let mut counts = BTreeMap::new();
        for config in ["desired", "orphan"] {
            for lifecycle in ["sync", "terminated", "terminating"] {
                for source in ["", "true"] {
                    counts.insert((config, lifecycle, source), 0);
                }
            }
        }
        for own in self.pods {
            let config = if own.is_orphaned { "orphan" } else { "desired" };
            let source = if is_static(&own.pod) { "true" } else { "" };
            *counts.entry((config, own.lifecycle, source)).or_default() += 1;
        }
        let labels = |(config, lifecycle, source)| {
            format!("{{config=\"{config}\",lifecycle=\"{lifecycle}\",static=\"{source}\"}}")
        };
        counts
            .into_iter()
            .map(|(of, count)| (labels(of), count))
            .collect()
    }
}

fn plain(value: i64) -> [(String, i64); 1] {
    [(String::new(), value)]
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn pods_are_counted_by_source_and_by_what_is_done_with_them() {
        let stage = |source: Option<&str>, lifecycle, is_orphaned| {
            let annotations = source.map(|source| json!({"kubernetes.io/config.source": source}));
            let pod = json!({"metadata": {"name": "p", "annotations": annotations}});
            PodStage {
                pod: Arc::new(serde_json::from_value(pod).unwrap()),
                lifecycle,
                is_orphaned,
            }
        };
        let pods = [
            stage(None, "sync", false),
            stage(None, "terminated", false),
            stage(None, "terminating", true),
            stage(Some("file"), "sync", false),
        ];
        let runtime = RuntimeCounts {
            sandboxes: 3,
            containers: BTreeMap::from([("running", 4)]),
        };
        let counts = NodeCounts {
            node: "n",
            cgroup_version: 1,
            pods: &pods,
            runtime: Some(&runtime),
            certificate_seconds: Some(60),
        };
        let mut text = String::new();
        counts.write(&mut text);
        for sample in [
            "kubelet_running_pods 3",
            "kubelet_running_containers{container_state=\"running\"} 4",
            "kubelet_desired_pods{static=\"\"} 2",
            "kubelet_active_pods{static=\"\"} 2",
            "kubelet_active_pods{static=\"true\"} 1",
            "kubelet_mirror_pods 1",
            "kubelet_working_pods{config=\"orphan\",lifecycle=\"terminating\",static=\"\"} 1",
            "kubelet_working_pods{config=\"desired\",lifecycle=\"sync\",static=\"true\"} 1",
            "kubelet_certificate_manager_server_ttl_seconds 60",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}\n{text}");
        }
    }
}
