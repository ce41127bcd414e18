//! Metrics of every component of the agent, requested at its start, so that each family is there before its first sample.

use crate::{devices, dra, metrics, pod_resources, resource_managers, shutdown};
use machinery_runtime::Runtime;

/// Requests every family.
pub(crate) fn begin(runtime: &Runtime) {
    let own = runtime.metrics();
    own.begin_process();
    metrics::calls::begin(own);
    metrics::groups::begin(own);
    metrics::images::begin(own);
    metrics::pods::begin(own);
    metrics::requests::begin(own);
    devices::begin_metrics(runtime);
    dra::begin_metrics(runtime);
    pod_resources::begin_metrics(runtime);
    resource_managers::begin_metrics(runtime);
    shutdown::metrics::begin(own);
}
