//! FlowSchemas and PriorityLevelConfigurations (upstream's `pkg/apis/flowcontrol/validation`).
//!
//! A bad object of these kinds can shut every user out, so that the mandatory ones cannot be changed and no other outranks them.

pub mod flow_schema;
mod mandatory;
pub mod priority_level_configuration;
mod status;

pub use mandatory::BOOTSTRAP_OBJECTS;
