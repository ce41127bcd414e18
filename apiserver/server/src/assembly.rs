//! Registry, admission, authentication, authorization and endpoints, put together.

use crate::account_keys::AccountKeys;
use crate::admission::{AdmissionChain, Sources};
use crate::aggregation::Aggregation;
use crate::authenticators;
use crate::config::ServerConfig;
use crate::conversions::Conversions;
use crate::error::ServerError;
use crate::feed::AuthorizationFeed;
use crate::filters::audit::auditor::Auditor;
use crate::filters::audit::policy::PolicyError;
use crate::flow_control::FlowControl;
use crate::flow_control::metrics::FlowControlMetrics;
use crate::flow_control::utilization::UtilizationCollector;
use crate::hooks::ServerHooks;
use crate::kubelet::{Kubelets, ProxiedConnections};
use crate::metrics::{
    AggregationMetrics, AvailabilityCollector, ConversionMetrics, DecisionsCollector, Metrics, PolicyMetrics,
    UnreadMemoryCollector, WebhookMetrics, client_certificate_lifetimes,
};
use crate::openid::{self, OpenId};
use crate::policies::Params;
use crate::quota_usage::QuotaUsage;
use crate::reader::{RegistryReader, WeakReader};
use crate::resource_metrics::ResourceMetrics;
use crate::startup::error::StartupError;
use crate::state::ServerState;
use crate::token_tracking::SecretTokens;
use crate::trust::Trust;
use apiserver_admission::policies::Policies;
use apiserver_admission::webhooks::Webhooks;
use apiserver_auth::authz;
use apiserver_auth::authz::node::NodeIndex;
use apiserver_auth::authz::rbac::RbacAuthorizer;
use apiserver_auth::pki::{Pki, PkiError};
use apiserver_auth::reviews::Reviewer;
use apiserver_auth::token_request::TokenIssuer;
use apiserver_egress::{ClientIdentity, Dialer, ExtensionClient, HookClient};
use apiserver_endpoints::{Endpoints, ListMemory, VersionInfo};
use apiserver_registry::kinds::core::service::NodePorts;
use apiserver_registry::{Registry, RegistryError, SystemDoors, SystemWriter, kinds};
use apiserver_storage::Storage;
use machinery_meta::reader::ObjectReader;
use machinery_runtime::{CancellationToken, Runtime};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use tokio::sync::watch;

/// Parts that a server is assembled from.
pub(crate) struct Assembly<'a> {
    pub(crate) config: ServerConfig,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) pki: &'a Pki,
    pub(crate) trust: Arc<Trust>,
    pub(crate) dialer: Dialer,
    pub(crate) advertised: SocketAddr,
}

pub(crate) async fn assemble(
    parts: Assembly<'_>,
    runtime: &Runtime,
) -> Result<Arc<ServerState>, ServerError> {
    let Assembly {
        config,
        storage,
        pki,
        trust,
        dialer,
        advertised,
    } = parts;
    let (first, last) = config.service_node_port_range;
    let node_ports = NodePorts::new(first, last);
    let doors = SystemDoors::of(&storage);
    let own = Arc::clone(&storage);
    let registry = Registry::with_node_ports(own, runtime.clone(), kinds::built_in(), node_ports);
    let nodes = Arc::new(NodeIndex::default());
    let reader: Arc<dyn ObjectReader> = Arc::new(RegistryReader::new(&registry));
    let rbac = Arc::new(RbacAuthorizer::default());
    let feed = Arc::new(AuthorizationFeed {
        registry: registry.clone(),
        rbac: Arc::clone(&rbac),
        nodes: Arc::clone(&nodes),
        runtime: runtime.clone(),
        applied: watch::Sender::default(),
    });
    Arc::clone(&feed).start().await.map_err(feed_failed)?;
    let authorizers = authz::default_chain(&reader, &nodes, &rbac);
    let metrics = Arc::new(Metrics::new(storage, runtime.clone())?);
    let decisions = DecisionsCollector::new(authorizers.clone())?;
    metrics.registry().register(Box::new(decisions))?;
    trust
        .clients
        .measure_lifetimes(client_certificate_lifetimes(metrics.registry())?);
    let keys = AccountKeys::load(&config, pki)?;
    let door = doors.door(SystemWriter::TokenTracking);
    let tracker = SecretTokens::new(registry.clone(), door, runtime.clone(), metrics.registry())?;
    let parts = authenticators::Parts {
        config: &config,
        keys: &keys,
        reader: &reader,
        tracker: Arc::new(tracker),
    };
    let tokens = Arc::new(parts.tokens()?);
    let jwks_uri = config.service_account_jwks_uri.clone();
    let jwks_uri = jwks_uri.unwrap_or_else(|| format!("https://{advertised}{}", openid::JWKS_PATH));
    let authenticators = authenticators::chain(&config, &trust, &tokens);
    let issuer = config.issuers().swap_remove(0);
    let resource_metrics = ResourceMetrics::new(registry.clone(), Arc::clone(&reader), dialer.clone());
    let resource_metrics = Arc::new(resource_metrics);
    let scraped = Arc::clone(&resource_metrics);
    let scrape = move || {
        let scraped = Arc::clone(&scraped);
        async move { scraped.run().await }
    };
    runtime.keep("resource metrics", scrape).detach();
    let observer = WebhookMetrics::new(metrics.families())?;
    let client = Arc::new(HookClient::new(
        dialer.clone(),
        Arc::new(WeakReader::new(&registry)),
    ));
    let conversions = ConversionMetrics::new(metrics.families())?;
    registry.convert_by(Arc::new(Conversions::new(&client, runtime, conversions)));
    let webhooks = Webhooks::new(client, Arc::clone(&reader), runtime.clone(), observer);
    let followed = crate::webhooks::start(&registry, &webhooks, runtime).await;
    followed.map_err(|error| step_failed("configurations of webhooks", &error))?;
    let proxy = &pki.front_proxy_client;
    let proxy = ClientIdentity::new(proxy.chain().to_vec(), proxy.key()).map_err(PkiError::from)?;
    let aggregation = Aggregation::new(
        ExtensionClient::new(dialer.clone(), Arc::clone(&reader)),
        proxy,
        config.max_proxied_connections,
        AggregationMetrics::new(metrics.families())?,
        runtime.clone(),
    );
    let availability = AvailabilityCollector::new(&aggregation.table)?;
    metrics.registry().register(Box::new(availability))?;
    let params = Arc::new(Params::new(&registry));
    let observer = PolicyMetrics::new(metrics.families())?;
    let policies = Policies::new(Arc::clone(&reader), params, runtime.clone(), observer);
    let followed = crate::policies::start(&registry, &policies, runtime).await;
    followed.map_err(|error| step_failed("admission policies", &error))?;
    let hooks = ServerHooks {
        aggregation: Arc::clone(&aggregation),
        reviewer: Reviewer {
            authorizers: authorizers.clone(),
            tokens,
        },
        issuer: TokenIssuer {
            issuer: issuer.clone(),
            api_audiences: config.audiences(),
            key: keys.signing.clone(),
        },
        reader: Arc::clone(&reader),
        kubelets: Kubelets {
            dialer,
            connections: ProxiedConnections::new(config.max_proxied_connections),
        },
        registry: registry.clone(),
        watches: Arc::clone(&metrics.watches),
        lists: Arc::clone(&metrics.lists),
        resource_metrics,
        components: config.components.clone(),
    };
    let door = doors.door(SystemWriter::QuotaUsage);
    let usage = QuotaUsage::new(registry.clone(), door, runtime.clone());
    let sources = Sources {
        reader: &reader,
        rbac: &rbac,
        authorizers: &authorizers,
        registry: &registry,
        webhooks: &webhooks,
        policies: &policies,
    };
    let admission = AdmissionChain::new(&sources, runtime, Arc::new(usage), &config)?;
    let admission = admission.measured(&metrics, runtime)?;
    let audit = auditor(&config, runtime, &metrics)?;
    let flow_control = flow_control(&config, &registry, runtime, &metrics)?;
    let endpoints = Endpoints::new(
        registry.clone(),
        Arc::new(admission),
        Arc::new(hooks),
        VersionInfo::default(),
        ListMemory::new(config.list_memory_bytes, config.answer_pace_interval),
    );
    let unread_memory = UnreadMemoryCollector::new(endpoints.unread_memory())?;
    metrics.registry().register(Box::new(unread_memory))?;
    Ok(Arc::new(ServerState {
        feed,
        endpoints,
        aggregation,
        reader,
        openid: OpenId::new(&issuer, &jwks_uri, &keys.verifying),
        audit,
        flow_control,
        metrics,
        mutations: runtime.child_scope(),
        started: AtomicBool::new(false),
        finished_steps: AtomicUsize::new(0),
        stopping: CancellationToken::new(),
        began: runtime.now(),
        runtime: runtime.clone(),
        registry,
        doors,
        authenticators,
        authorizers,
        trust,
        signing_key: keys.signing,
        config,
    }))
}

/// Both limits together are the server's seats, as upstream's.
fn flow_control(
    config: &ServerConfig,
    registry: &Registry,
    runtime: &Runtime,
    metrics: &Metrics,
) -> Result<Option<Arc<FlowControl>>, ServerError> {
    let seats = config.max_requests_inflight + config.max_mutating_requests_inflight;
    if seats == 0 {
        return Ok(None);
    }
    let own = FlowControlMetrics::new(metrics.registry())?;
    let control = FlowControl::new(seats, registry.clone(), own, runtime);
    let utilization = UtilizationCollector::new(&control)?;
    metrics.registry().register(Box::new(utilization))?;
    let adjusted = Arc::clone(&control);
    let adjusting = move || Arc::clone(&adjusted).adjust_limits();
    runtime.keep("flow control limits", adjusting).detach();
    Ok(Some(control))
}

fn auditor(
    config: &ServerConfig,
    runtime: &Runtime,
    metrics: &Metrics,
) -> Result<Option<Arc<Auditor>>, ServerError> {
    let Some(log) = &config.audit_log else {
        return Ok(None);
    };
    let policy = config.audit_policy_file.as_ref().map(|path| {
        std::fs::read(path).map_err(|source| ServerError::File {
            flag: "--audit-policy-file",
            path: path.clone(),
            source,
        })
    });
    let policy = policy.transpose()?;
    let auditor = Auditor::open(log.clone(), policy.as_deref(), runtime, metrics.audit());
    match auditor {
        Ok(auditor) => Ok(Some(Arc::new(auditor))),
        Err(PolicyError::Log(source)) => Err(ServerError::File {
            flag: "--audit-log-path",
            path: log.path.clone(),
            source,
        }),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn feed_failed(error: RegistryError) -> StartupError {
    step_failed("roles, bindings and pods", &error)
}

fn step_failed(step: &'static str, error: &RegistryError) -> StartupError {
    StartupError {
        step,
        message: apiserver_endpoints::status::of(error).message,
    }
}
