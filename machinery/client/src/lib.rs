//! kube over any transport and shared informers with projections.
