//! Kernel parameters a pod may set: those that belong to one of its own namespaces and touch no other pod. Pure.

use k8s_openapi::api::core::v1::Pod;

use crate::pods::spec;

/// The namespace a parameter belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

/// Upstream's safe parameters, and since which kernel each is a namespace's own.
const SAFE: [(&str, Namespace, (u32, u32)); 14] = [
    ("kernel.shm_rmid_forced", Namespace::Ipc, (0, 0)),
    ("net.ipv4.ip_local_port_range", Namespace::Net, (0, 0)),
    ("net.ipv4.tcp_syncookies", Namespace::Net, (0, 0)),
    ("net.ipv4.ping_group_range", Namespace::Net, (0, 0)),
    ("net.ipv4.ip_unprivileged_port_start", Namespace::Net, (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", Namespace::Net, (3, 16)),
    ("net.ipv4.tcp_keepalive_time", Namespace::Net, (4, 5)),
    ("net.ipv4.tcp_fin_timeout", Namespace::Net, (4, 6)),
    ("net.ipv4.tcp_keepalive_intvl", Namespace::Net, (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", Namespace::Net, (4, 5)),
    ("net.ipv4.tcp_rmem", Namespace::Net, (4, 15)),
    ("net.ipv4.tcp_wmem", Namespace::Net, (4, 15)),
    ("net.ipv4.tcp_slow_start_after_idle", Namespace::Net, (4, 15)),
    ("net.ipv4.tcp_notsent_lowat", Namespace::Net, (4, 6)),
];

/// Returns upstream's message for a sysctl that the pod may not set.
pub(crate) fn forbidden(pod: &Pod, kernel: &str) -> Option<String> {
    let spec = spec(pod);
    let wanted = spec
        .security_context
        .iter()
        .flat_map(|context| context.sysctls.iter().flatten());
    let problem = |name: &str| {
        let name = normal(name);
        let safe = SAFE
            .iter()
            .find(|(safe, _, since)| *safe == name && version(kernel) >= *since);
        let shared = match safe {
            None => return Some(format!("{name:?} not allowlisted")),
            Some((_, Namespace::Ipc, _)) => spec.host_ipc.filter(|on| *on).map(|_| "IPC"),
            Some((_, Namespace::Net, _)) => spec.host_network.filter(|on| *on).map(|_| "Net"),
        };
        shared.map(|namespace| format!("{name:?} not allowed with host {namespace} enabled"))
    };
    wanted
        .map(|sysctl| problem(&sysctl.name))
        .find_map(|problem| problem)
        .map(|problem| format!("forbidden sysctl: {problem}"))
}

/// `net/ipv4/conf/eno2.100/rp_filter` is `net.ipv4.conf.eno2/100.rp_filter`.
fn normal(name: &str) -> String {
    let first = name.find(['.', '/']).map(|at| name.as_bytes()[at]);
    if first != Some(b'/') {
        return name.to_owned();
    }
    let swapped = name.chars().map(|letter| match letter {
        '.' => '/',
        '/' => '.',
        other => other,
    });
    swapped.collect()
}

fn version(kernel: &str) -> (u32, u32) {
    let mut numbers = kernel
        .split(['.', '-', '+'])
        .map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(host: &str, sysctl: &str, kernel: &str, problem: Option<&str>) {
        let text = format!(
            r#"{{"spec":{{{host}"containers":[],"securityContext":{{"sysctls":[{{"name":"{sysctl}","value":"1"}}]}}}}}}"#
        );
        let pod: Pod = serde_json::from_str(&text).unwrap();
        assert_eq!(forbidden(&pod, kernel).as_deref(), problem, "{sysctl}");
    }

    #[test]
    fn sysctl_namespaced_only_is_allowed() {
        let kernel = "6.1.0-13-amd64";
        check("", "net.ipv4.tcp_syncookies", kernel, None);
        check("", "net/ipv4/tcp_syncookies", kernel, None);
        check("", "kernel.shm_rmid_forced", kernel, None);
        check(
            "",
            "kernel.shmmax",
            kernel,
            Some(r#"forbidden sysctl: "kernel.shmmax" not allowlisted"#),
        );
        let old = r#"forbidden sysctl: "net.ipv4.tcp_rmem" not allowlisted"#;
        check("", "net.ipv4.tcp_rmem", "4.14.9", Some(old));
        check("", "net.ipv4.tcp_rmem", "4.15", None);
        let net = r#"forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled"#;
        check(
            r#""hostNetwork":true,"#,
            "net.ipv4.tcp_syncookies",
            kernel,
            Some(net),
        );
        let ipc = r#"forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host IPC enabled"#;
        check(r#""hostIPC":true,"#, "kernel.shm_rmid_forced", kernel, Some(ipc));
    }
}
