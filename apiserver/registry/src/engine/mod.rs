//! Verbs on any kind: what a request to a kind does between the API and storage. Nothing here knows a kind by name.
//!
//! In the order of a write: [`kind`] is what a kind says of itself and [`row`] how a version of it is served; [`admission`] is the door
//! to storage; [`metadata`] and [`defaults`] fill; [`strategy`] is what a kind decides, [`kind_strategy`] that of built-in kinds;
//! [`managed_fields`] keeps owners; [`codec`] encodes; [`store`] has the verbs and [`registry`] the rows.

pub mod admission;
pub(crate) mod allocation;
pub(crate) mod codec;
pub mod context;
pub(crate) mod continue_token;
pub(crate) mod conversion;
pub(crate) mod converted;
pub(crate) mod defaults;
pub mod error;
pub(crate) mod event_recorder;
pub mod kind;
pub(crate) mod kind_strategy;
pub mod latency;
pub mod managed_fields;
pub(crate) mod master_leases;
pub mod metadata;
pub(crate) mod node_ports;
pub(crate) mod notices;
pub(crate) mod object_part;
pub(crate) mod operation_options;
pub mod options;
pub(crate) mod point_of_no_return;
pub mod registry;
pub mod row;
pub(crate) mod rows;
pub mod scope;
pub(crate) mod selectable;
pub mod store;
pub(crate) mod stored;
pub mod strategy;
pub(crate) mod traits;
pub(crate) mod turns;
pub(crate) mod user_class;
pub(crate) mod validation_rules;
pub(crate) mod values;
pub mod verbs;
pub mod version_webhook;
