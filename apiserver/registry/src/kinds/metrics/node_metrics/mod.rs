//! NodeMetrics: what a node uses.

use crate::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("metrics.k8s.io", "nodes");
