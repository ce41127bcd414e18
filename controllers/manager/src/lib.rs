//! The loops that move status toward spec, one folder each.
//!
//! A controller is a folder (`mod.rs` row and front page, `reconcile.rs` shell, `plan.rs` decisions, `status.rs`,
//! `tests.rs`) and one row in [`all`]. All of them read through the same shared informers, with the identity
//! `system:kube-controller-manager`; each writes with its own service account. The fields that they read of a kind are that
//! kind's projection in [`views`].
//!
//! They know nothing of each other and of the server but its API.

pub mod all;
pub mod config;
pub mod context;
mod heavy;
pub mod history;
pub mod manager;
mod metrics;
mod owners;
pub mod pod_claim;
pub mod pod_control;
mod pod_progress;
pub mod views;

mod attach_detach;
mod bootstrap_tokens;
mod certificates;
mod cluster_role_aggregation;
mod cluster_trust_bundles;
mod cron_job;
mod daemon_set;
mod deployment;
mod descriptor;
mod device_taint_eviction;
mod disruption;
mod endpoint_shares;
mod endpoint_slice;
mod endpoint_slice_mirroring;
mod endpoints;
mod ephemeral_volume;
mod expand;
mod garbage_collector;
mod horizontal_pod_autoscaler;
mod job;
mod local_path;
#[cfg(test)]
mod metric_families;
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
mod served_kinds;
mod service_account;
mod service_account_tokens;
mod service_cidr;
mod slice_writer;
mod stateful_set;
mod storage_protection;
mod storage_version_migration;
mod ttl_after_finished;
mod validating_admission_policy_status;
#[cfg(test)]
mod view_memory;
mod volume_binder;

pub use all::rows;
pub use config::{Config, HorizontalPodAutoscalerConfig};
pub use context::{CertificateOf, CertificateSigner, ControllerContext, TokenOf, TokenSigner};
pub use descriptor::ControllerDescriptor;
/// The election of the server that runs them.
pub use machinery_reconcile::leader_election;
pub use manager::ControllerManager;
