//! The assembled API server: listener, filters, start-up steps.
//!
//! [`Server::start`] opens the PKI, puts registry, admission, authentication, authorization and endpoints together and
//! runs the rows of [`startup`]. A request comes from the [`listener`] (TLS, HTTP/1.1 or 2) or, in process, from
//! [`Server::service_as`]; both enter the same [`handler_chain`], outermost filter first, and end in `endpoints` or in
//! one of the few paths that are the server's own: health, metrics, OpenID.
//!
//! Mutations run in tasks of their own: a client that leaves never stops one halfway, and shutdown waits for them.
//!
//! Not here: what kinds look like (`registry`), how bodies are read and written (`endpoints`).

mod accepted_credentials;
mod access_error;
mod account_keys;
mod admission;
mod admission_configuration;
mod aggregation;
mod anonymous_rate;
mod assembly;
mod authentication;
mod authentication_options;
mod authenticators;
mod authorization;
mod authorization_options;
mod backup;
pub mod config;
mod connection_requests;
mod connections;
mod conversions;
mod debug_pages;
mod dispatch;
mod entry;
mod error;
mod exchange;
mod feature_gates;
mod feed;
mod file_reload;
mod filters;
mod flow_control;
mod followed;
mod frame_budget;
mod front_proxy;
mod handler_chain;
mod health;
mod hooks;
mod host;
mod kubelet;
mod linger;
mod listener;
mod metrics;
mod openid;
mod placed;
mod policies;
mod provisioned_namespaces;
mod proxy_headers;
mod quota_usage;
mod reader;
mod reload;
mod renewal;
mod resource_metrics;
mod runtime_config;
mod server;
mod service;
mod serving_certificates;
mod startup;
mod state;
mod tls_options;
mod token_tracking;
mod trust;
mod webhook_admission;
mod webhook_memory;
mod webhooks;

pub use access_error::{AuthenticationError, AuthorizationError};
pub use apiserver_admission::plugins::NAMES as ADMISSION_PLUGINS;
pub use apiserver_auth::jwt::LegacyClaims;
pub use apiserver_auth::pki;
pub use apiserver_endpoints::{Body, yaml};
pub use apiserver_registry::SYSTEM_NAMESPACES;
pub use apiserver_registry::store::early_expiry::ExpiryBounds;
pub use apiserver_registry::{built_in_values, stored_resources};
pub use authentication_options::{AuthenticationOptions, OidcOptions, TokenWebhookOptions};
pub use authorization_options::{AuthorizationModeOptions, AuthorizationOptions};
pub use config::{ConfigError, ServerConfig};
pub use error::ServerError;
pub use feature_gates::{FeatureGates, GateComponent};
pub use filters::audit::backend::AuditMode;
pub use filters::audit::log::AuditLogConfig;
pub use filters::audit::policy::PolicyError;
pub use filters::audit::truncate::AuditTruncateConfig;
pub use filters::audit::webhook::{AuditBatchConfig, AuditThrottle, AuditWebhookConfig};
pub use front_proxy::RequestHeaderConfig;
pub use runtime_config::RuntimeConfig;
pub use server::{Server, ServerBuilder};
pub use service::LocalService;
pub use serving_certificates::{PairError, SniCertificate, SniCertificateError, authorities_of};
pub use tls_options::TlsOptions;
