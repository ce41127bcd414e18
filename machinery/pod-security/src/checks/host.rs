//! Checks of what a pod shares with its node: namespaces, ports, processes, and addresses that the agent connects to.

use super::Verdict;
use crate::evaluation::Violation;
use crate::pod::{Container, Pod};
use crate::wording::{containers, counted, quoted, setters};
use k8s_openapi::api::core::v1::{
    HTTPGetAction, Lifecycle, LifecycleHandler, Probe, TCPSocketAction, WindowsSecurityContextOptions,
};
use std::collections::BTreeSet;

pub(super) fn host_namespaces(pod: &Pod<'_>) -> Verdict {
    let spec = pod.spec;
    let shared = [
        ("hostNetwork=true", spec.host_network),
        ("hostPID=true", spec.host_pid),
        ("hostIPC=true", spec.host_ipc),
    ];
    let shared = shared.into_iter().filter(|(_, set)| *set == Some(true));
    let shared: Vec<&str> = shared.map(|(name, _)| name).collect();
    (!shared.is_empty()).then(|| Violation {
        reason: "host namespaces",
        detail: shared.join(", "),
    })
}

pub(super) fn host_ports(pod: &Pod<'_>) -> Verdict {
    let mut ports = BTreeSet::new();
    let names = pod.names(|container| {
        let own = container
            .ports
            .into_iter()
            .flatten()
            .filter_map(|port| port.host_port);
        let own: Vec<String> = own
            .filter(|port| *port != 0)
            .map(|port| port.to_string())
            .collect();
        let uses = !own.is_empty();
        ports.extend(own);
        uses
    });
    // Sorted as texts, as upstream's.
    let shown = ports.iter().map(String::as_str).collect::<Vec<&str>>().join(", ");
    let noun = counted(ports.len(), "hostPort", "hostPorts");
    let verb = counted(names.len(), "uses", "use");
    (!names.is_empty()).then(|| Violation {
        reason: "hostPort",
        detail: format!("{} {verb} {noun} {shown}", containers(&names)),
    })
}

pub(super) fn host_probes_and_lifecycle(pod: &Pod<'_>) -> Verdict {
    let (mut names, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    for container in pod.containers() {
        let own = connected_hosts(&container);
        if !own.is_empty() {
            names.insert(container.name);
            hosts.extend(own);
        }
    }
    let names: Vec<&str> = names.into_iter().collect();
    let verb = counted(names.len(), "uses", "use");
    let noun = counted(hosts.len(), "probe or lifecycle host", "probe or lifecycle hosts");
    (!names.is_empty()).then(|| Violation {
        reason: "probe or lifecycle host",
        detail: format!("{} {verb} {noun} {}", containers(&names), quoted(hosts)),
    })
}

/// Hosts that the node's agent connects to for a container.
fn connected_hosts<'a>(container: &Container<'a>) -> Vec<&'a str> {
    let of_probe = |probe: &'a Probe| (probe.http_get.as_ref(), probe.tcp_socket.as_ref());
    let of_handler = |handler: &'a LifecycleHandler| (handler.http_get.as_ref(), handler.tcp_socket.as_ref());
    let handlers = |own: &'a Lifecycle| [own.post_start.as_ref(), own.pre_stop.as_ref()];
    let probes = container.probes.into_iter().flatten().map(of_probe);
    let handlers = container
        .lifecycle
        .into_iter()
        .flat_map(handlers)
        .flatten()
        .map(of_handler);
    let host = |(http, tcp): (Option<&'a HTTPGetAction>, Option<&'a TCPSocketAction>)| {
        let http = http.and_then(|own| own.host.as_deref());
        [http, tcp.and_then(|own| own.host.as_deref())]
    };
    let hosts = probes.chain(handlers).flat_map(host).flatten();
    hosts.filter(|host| !host.is_empty()).collect()
}

pub(super) fn windows_host_process(pod: &Pod<'_>) -> Verdict {
    let is_set =
        |own: Option<&WindowsSecurityContextOptions>| own.and_then(|own| own.host_process) == Some(true);
    let names = pod.names(|own| is_set(own.security.and_then(|own| own.windows_options.as_ref())));
    let by_pod = is_set(pod.security().and_then(|own| own.windows_options.as_ref()));
    let setters = setters(by_pod, &names).join(" and ");
    (!setters.is_empty()).then(|| Violation {
        reason: "hostProcess",
        detail: format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"),
    })
}
