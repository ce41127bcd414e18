//! The check of kernel parameters: those alone that a pod's namespaces isolate.

use super::Verdict;
use crate::evaluation::Violation;
use crate::pod::Pod;

/// Parameters with the minor version since which they are allowed.
const ALLOWED: [(&str, u64); 14] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
    ("net.ipv4.tcp_slow_start_after_idle", 37),
    ("net.ipv4.tcp_notsent_lowat", 37),
];

pub(super) fn sysctls<const MINOR: u64>(pod: &Pod<'_>) -> Verdict {
    let is_allowed = |name: &str| ALLOWED.iter().any(|(own, since)| *own == name && *since <= MINOR);
    let set = pod
        .security()
        .and_then(|own| own.sysctls.as_ref())
        .into_iter()
        .flatten();
    let names = set.map(|own| own.name.as_str());
    let forbidden: Vec<&str> = names.filter(|name| !is_allowed(name)).collect();
    (!forbidden.is_empty()).then(|| Violation {
        reason: "forbidden sysctls",
        detail: forbidden.join(", "),
    })
}
