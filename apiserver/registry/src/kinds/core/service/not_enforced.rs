//! Fields of services that have no effect yet.

use crate::shared::not_enforced::{Field, field};
use machinery_schema::Ref;

const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Fields of traffic.
pub(crate) fn fields(object: Ref<'_>) -> Vec<Field> {
    let spec = |name: &str| object.at(&["spec", name]);
    let annotation = object.at(&["metadata", "annotations", SOURCE_RANGES]);
    let fields = [
        field(
            format!("metadata.annotations[{SOURCE_RANGES}]"),
            annotation,
            "clients are not filtered by their address",
        ),
        field(
            "spec.trafficDistribution",
            spec("trafficDistribution"),
            "endpoints are chosen by chance",
        ),
    ];
    fields.into_iter().flatten().collect()
}
