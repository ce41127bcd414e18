//! Components of the agent in `/healthz` and `/metrics`: those of the kubelet, and of network, service rules
//! and DNS beside it.

use std::fmt::Write as _;

use machinery_runtime::{Components, Runtime};

/// The answer of `/healthz`: it fails while a component is down after a panic.
pub(super) fn health(runtime: &Runtime) -> (u16, String) {
    let all = runtime.components().all().into_iter();
    let down: Vec<&str> = all.filter_map(|(name, down)| down.map(|_| name)).collect();
    if down.is_empty() {
        (200, "ok".to_owned())
    } else {
        (500, format!("components are down: {}\n", down.join(", ")))
    }
}

/// The same in Prometheus' form, in the words of the server's own metrics.
pub(super) fn metrics(components: &Components, out: &mut String) {
    out.push_str("# HELP knarr_component_up 0 while a component is down after a panic.\n# TYPE knarr_component_up gauge\n");
    for (name, down) in components.all() {
        let up = u8::from(down.is_none());
        let _ = writeln!(out, "knarr_component_up{{component=\"{name}\"}} {up}");
    }
    out.push_str(
        "# HELP knarr_component_restarts_total Restarts of a component after a panic or an error.\n\
         # TYPE knarr_component_restarts_total counter\n",
    );
    for (name, count) in components.restarts() {
        let _ = writeln!(
            out,
            "knarr_component_restarts_total{{component=\"{name}\"}} {count}"
        );
    }
    out.push_str(
        "# HELP knarr_task_panics_total Panics that ended one request or one component, by task.\n\
         # TYPE knarr_task_panics_total counter\n",
    );
    for (task, count) in components.panics() {
        let _ = writeln!(out, "knarr_task_panics_total{{task=\"{task}\"}} {count}");
    }
}
