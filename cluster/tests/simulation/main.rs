//! Controllers under a seeded world: one thread, paused time, late, lost and broken messages, components that start
//! anew, power that goes, the production server.
//!
//! One file per controller, each a [`Scenario`]: objects to begin with, a seeded sequence of what users and nodes do, an
//! invariant checked at every revision, and what must be true when the cluster is quiescent. `KNARR_SEEDS` says which
//! seeds are chosen: `1000` (the first thousand), `5000..6000`, or one by `KNARR_SEED=10`. A failing run names its seed.
//!
//! ```text
//! image (a started server's disk) -> World per seed -> act, fault, act … -> heal -> settled? -> quiet?
//!                                        log -> Model -> holds? at every revision
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::cast_possible_truncation,
    reason = "a test, helpers included; its numbers are small"
)]

mod disk_snapshot;
mod history;
mod kubelets;
mod model;
mod node;
mod runner;
mod simulated_cluster;

mod attach_detach;
mod cluster_role_aggregation;
mod cron_job;
mod daemon_set;
mod deployment;
mod devices;
mod disruption;
mod endpoint_slice_mirroring;
mod endpoints;
mod expiry;
mod garbage_collector;
mod horizontal_pod_autoscaler;
mod job;
mod namespace;
mod node_ipam;
mod node_lifecycle;
mod node_ttl;
mod pod_gc;
mod replica_set;
mod replication_controller;
mod resource_claim;
mod resource_quota;
mod root_ca;
mod scheduler;
mod service_account;
mod service_account_tokens;
mod service_addresses;
mod stateful_set;
mod storage_protection;
mod strangers;
mod ttl_after_finished;
mod volume_binder;
mod whole;

use runner::Scenario;
