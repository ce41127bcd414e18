//! PodMetrics: what the containers of a pod use.

use crate::engine::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("metrics.k8s.io", "pods");
