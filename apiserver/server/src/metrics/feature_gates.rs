//! Feature gates with their stages and states.

use crate::feature_gates::FeatureGates;
use prometheus::core::Collector;
use prometheus::{IntGaugeVec, Opts};

/// The metric of these gates, which do not change.
pub(crate) fn feature_enabled(gates: &FeatureGates) -> Result<Box<dyn Collector>, prometheus::Error> {
    let words = Opts::new(
        "kubernetes_feature_enabled",
        "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
    );
    let gauges = IntGaugeVec::new(words, &["name", "stage"])?;
    for (name, stage, is_enabled) in gates.all() {
        gauges
            .with_label_values(&[name, stage])
            .set(i64::from(is_enabled));
    }
    Ok(Box::new(gauges))
}
