//! Black-box checks that know only the API.
//!
//! - [`differential`], [`tenants`], [`owners`]: requests whose answers by the real kube-apiserver are data, with which ours
//!   are compared.
//! - [`suite`]: results of upstream's conformance suite, and the rule that a spec which passed goes on passing.
//! - [`facts`]: what is known of the built-in kinds, read from `machinery/api/facts`; [`protobuf`] writes and reads
//!   objects by it, independently of the product's own codec.
//! - [`mod@bench`]: a load generator that measures any API server.
//! - [`hostile`]: two tenants at work on a server that others attack.
//!
//! Nothing here starts a server: `cargo xtask diff` and `cargo xtask conformance` do, and hand over kubeconfigs.

pub mod bench;
pub mod differential;
pub mod facts;
pub mod hostile;
pub mod owners;
pub mod protobuf;
pub mod suite;
pub mod tenants;
