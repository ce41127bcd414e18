//! Defaults of a pod that no API server has filled in, as far as the node reads them; values are upstream's
//! (`pkg/apis/core/v1/defaults.go`). Pure.

use k8s_openapi::api::core::v1::{Container, Lifecycle, Pod, PodSpec, Probe};
use machinery_semantics::image_names::default_pull_policy;

/// Fills them in.
pub(crate) fn apply(pod: &mut Pod) {
    let Some(spec) = pod.spec.as_mut() else { return };
    default(&mut spec.restart_policy, "Always");
    default(&mut spec.dns_policy, "ClusterFirst");
    default(&mut spec.scheduler_name, "default-scheduler");
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.enable_service_links.get_or_insert(true);
    spec.security_context.get_or_insert_default();
    let host_network = spec.host_network == Some(true);
    for container in containers(spec) {
        of_container(container, host_network);
    }
}

fn containers(spec: &mut PodSpec) -> impl Iterator<Item = &mut Container> {
    let inits = spec.init_containers.iter_mut().flatten();
    inits.chain(spec.containers.iter_mut())
}

fn default(field: &mut Option<String>, value: &str) {
    if field.as_deref().unwrap_or_default().is_empty() {
        *field = Some(value.to_owned());
    }
}

fn of_container(container: &mut Container, host_network: bool) {
    let policy = default_pull_policy(container.image.as_deref().unwrap_or_default());
    default(&mut container.image_pull_policy, policy);
    default(&mut container.termination_message_path, "/dev/termination-log");
    default(&mut container.termination_message_policy, "File");
    for port in container.ports.iter_mut().flatten() {
        default(&mut port.protocol, "TCP");
        if host_network && port.host_port.is_none_or(|own| own == 0) {
            port.host_port = Some(port.container_port);
        }
    }
    let probes = [
        &mut container.liveness_probe,
        &mut container.readiness_probe,
        &mut container.startup_probe,
    ];
    probes.into_iter().flatten().for_each(of_probe);
    container.lifecycle.iter_mut().for_each(of_lifecycle);
    if let Some(resources) = &mut container.resources {
        let limits = resources.limits.clone().unwrap_or_default();
        let requests = resources.requests.get_or_insert_default();
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

fn of_probe(probe: &mut Probe) {
    let positive = |field: &mut Option<i32>, value: i32| {
        *field = Some(field.filter(|own| *own != 0).unwrap_or(value));
    };
    positive(&mut probe.timeout_seconds, 1);
    positive(&mut probe.period_seconds, 10);
    positive(&mut probe.success_threshold, 1);
    positive(&mut probe.failure_threshold, 3);
    if let Some(get) = &mut probe.http_get {
        default(&mut get.path, "/");
        default(&mut get.scheme, "HTTP");
    }
}

fn of_lifecycle(lifecycle: &mut Lifecycle) {
    let handlers = [&mut lifecycle.post_start, &mut lifecycle.pre_stop];
    for get in handlers
        .into_iter()
        .flatten()
        .filter_map(|own| own.http_get.as_mut())
    {
        default(&mut get.path, "/");
        default(&mut get.scheme, "HTTP");
    }
}
