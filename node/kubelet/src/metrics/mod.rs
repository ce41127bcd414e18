//! Figures of the kubelet's own work, under upstream's names, for `/metrics` and `/metrics/probes`.
//!
//! A subject has a file: [`calls`] of the container runtime, [`groups`], [`pods`] and their containers, [`images`], [`requests`] to
//! this agent and to the API server, [`probes`]. Each requests its families when the agent starts ([`crate::families`]), so
//! that they are there before their first sample, and counts in the agent's `Runtime` (decision 0104). Upstream's families are listed in
//! `testdata/metrics.tsv`, with the reason of each that is absent.

pub(crate) mod calls;
pub(crate) mod groups;
pub(crate) mod images;
pub(crate) mod pods;
pub(crate) mod probes;
pub(crate) mod requests;

/// Upper bounds of durations of a pod's start, in seconds.
const START_SECONDS: [f64; 25] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0,
    480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
