pub mod config_map;
pub mod endpoints;
pub mod event;
pub mod node;
pub mod pod;
pub mod secret;
pub mod service;
