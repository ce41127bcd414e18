//! NodeMetrics: what a node uses.

use crate::engine::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("metrics.k8s.io", "nodes");
