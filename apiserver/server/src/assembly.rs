//! Registry, admission, authentication, authorization and endpoints, put together.

use crate::account_keys::AccountKeys;
use crate::admission::{self, Sources, configured_plugins};
use crate::aggregation::Aggregation;
use crate::authentication::Authentication;
use crate::authenticators;
use crate::authorization;
use crate::config::ServerConfig;
use crate::conversions::Conversions;
use crate::error::ServerError;
use crate::feed::AuthorizationFeed;
use crate::filters::audit::auditor::Auditor;
use crate::filters::audit::policy::PolicyError;
use crate::filters::audit::webhook::{AuditWebhook, AuditWebhookConfig, WebhookReceiver};
use crate::flow_control::FlowControl;
use crate::flow_control::metrics::FlowControlMetrics;
use crate::flow_control::utilization::UtilizationCollector;
use crate::hooks::ServerHooks;
use crate::kubelet::{Kubelets, ProxiedConnections};
use crate::metrics::{
    AggregationMetrics, AuthorizationWebhookMetrics, AvailabilityCollector, ConversionMetrics,
    DecisionsCollector, Metrics, PolicyMetrics, UnreadMemoryCollector, WebhookMetrics,
    client_certificate_lifetimes, feature_enabled,
};
use crate::openid::{self, OpenId};
use crate::policies::Params;
use crate::provisioned_namespaces::ProvisionedNamespaces;
use crate::quota_usage::QuotaUsage;
use crate::reader::{RegistryReader, WeakReader};
use crate::resource_metrics::ResourceMetrics;
use crate::startup::error::StartupError;
use crate::state::ServerState;
use crate::token_tracking::SecretTokens;
use crate::trust::Trust;
use apiserver_admission::RequestAdmission;
use apiserver_admission::plugins::NamespaceProvisioner;
use apiserver_admission::policies::Policies;
use apiserver_admission::webhooks::Webhooks;
use apiserver_auth::KubeconfigError;
use apiserver_auth::authz::node::NodeIndex;
use apiserver_auth::authz::rbac::RbacAuthorizer;
use apiserver_auth::authz::{AuthorizerChain, AuthorizerParts};
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
    let (config, pki, trust) = (parts.config, parts.pki, parts.trust);
    let doors = SystemDoors::of(&parts.storage);
    let ground = Ground::new(&config, parts.storage, parts.dialer, runtime)?;
    let (registry, reader, metrics) = (&ground.registry, &ground.reader, &ground.metrics);
    let access = Access::begin(&ground, &config).await?;
    trust
        .clients
        .measure_lifetimes(client_certificate_lifetimes(metrics.registry())?);
    let keys = AccountKeys::load(&config, pki)?;
    let door = doors.door(SystemWriter::TokenTracking);
    let tracker = SecretTokens::new(registry.clone(), door, runtime.clone(), metrics.registry())?;
    let authentication = Authentication::open(&config, &ground.dialer, metrics, runtime)?;
    let tokens = authenticators::Parts {
        config: &config,
        keys: &keys,
        reader,
        tracker: Arc::new(tracker),
        issuers: authentication.issuers,
        webhook: authentication.webhook,
    };
    let tokens = Arc::new(tokens.tokens()?);
    let authenticators = authenticators::chain(&trust, &tokens, authentication.anonymous);
    let issuer = config.issuers().swap_remove(0);
    let aggregation = ground.aggregation(&config, pki)?;
    let admission = ground.admission(&config, &access, &doors).await?;
    let reviewer = Reviewer {
        authorizers: access.authorizers.clone(),
        tokens,
    };
    let token_issuer = TokenIssuer {
        issuer: issuer.clone(),
        api_audiences: config.audiences(),
        key: keys.signing.clone(),
        lifetimes: config.token_lifetimes(),
    };
    let hooks = ground.hooks(&config, &aggregation, reviewer, token_issuer);
    let endpoints = ground.endpoints(&config, admission, hooks)?;
    let jwks_uri = config.service_account_jwks_uri.clone();
    let jwks_uri = jwks_uri.unwrap_or_else(|| format!("https://{}{}", parts.advertised, openid::JWKS_PATH));
    Ok(Arc::new(ServerState {
        feed: access.feed,
        endpoints,
        aggregation,
        openid: OpenId::new(&issuer, &jwks_uri, &keys.verifying),
        audit: auditor(&config, &ground.dialer, runtime, metrics)?,
        flow_control: flow_control(&config, registry, runtime, metrics)?,
        mutations: runtime.child_scope(),
        started: AtomicBool::new(false),
        finished_steps: AtomicUsize::new(0),
        stopping: CancellationToken::new(),
        shutdown_announced: AtomicBool::new(false),
        began: runtime.now(),
        runtime: runtime.clone(),
        doors,
        authenticators,
        authorizers: access.authorizers,
        trust,
        signing_key: keys.signing,
        config,
        reader: ground.reader,
        registry: ground.registry,
        metrics: ground.metrics,
    }))
}

/// Parts that nearly all others use.
struct Ground {
    registry: Registry,
    reader: Arc<dyn ObjectReader>,
    metrics: Arc<Metrics>,
    dialer: Dialer,
    runtime: Runtime,
}

impl Ground {
    fn new(
        config: &ServerConfig,
        storage: Arc<dyn Storage>,
        dialer: Dialer,
        runtime: &Runtime,
    ) -> Result<Self, ServerError> {
        let (first, last) = config.service_node_port_range;
        let node_ports = NodePorts::new(first, last);
        let own = Arc::clone(&storage);
        let registry = Registry::with_node_ports(own, runtime.clone(), kinds::built_in(), node_ports);
        let gates = &config.feature_gates;
        if !gates.are_defaults() {
            let fields = machinery_api::table().fields_disabled_by(|gate| gates.is_enabled(gate));
            registry.disable_fields(fields);
        }
        if !config.runtime_config.serves_all() {
            registry.serve_only(|row| config.runtime_config.serves(row));
        }
        let absent = config.runtime_config.absent();
        if !absent.is_empty() {
            let versions = absent.join(", ");
            tracing::warn!(%versions, "--runtime-config requests versions of the API that this server does not have");
        }
        registry.set_event_ttl(config.event_ttl);
        let metrics = Metrics::new(storage, runtime.clone())?;
        metrics.registry().register(feature_enabled(gates)?)?;
        Ok(Self {
            reader: Arc::new(RegistryReader::new(&registry)),
            registry,
            metrics: Arc::new(metrics),
            dialer,
            runtime: runtime.clone(),
        })
    }

    /// Webhooks of admission, whose configurations are followed, and of conversion.
    async fn webhooks(&self, config: &ServerConfig) -> Result<Arc<Webhooks>, ServerError> {
        let observer = WebhookMetrics::new(self.metrics.families())?;
        let addresses = Arc::new(WeakReader::new(&self.registry));
        let client = Arc::new(HookClient::new(self.dialer.clone(), addresses));
        let conversions = ConversionMetrics::new(self.metrics.families())?;
        let conversions = Conversions::new(&client, &self.runtime, conversions);
        self.registry.convert_by(Arc::new(conversions));
        let webhooks = Webhooks::new(client, Arc::clone(&self.reader), self.runtime.clone(), observer);
        let credentials = configured_plugins::webhook_credentials(config)?;
        let followed = crate::webhooks::start(&self.registry, &webhooks, credentials, &self.runtime).await;
        followed.map_err(|error| step_failed("configurations of webhooks", &error))?;
        Ok(webhooks)
    }

    /// Policies of admission, which are followed.
    async fn policies(&self) -> Result<Arc<Policies>, ServerError> {
        let params = Arc::new(Params::new(&self.registry));
        let observer = PolicyMetrics::new(self.metrics.families())?;
        let policies = Policies::new(Arc::clone(&self.reader), params, self.runtime.clone(), observer);
        let followed = crate::policies::start(&self.registry, &policies, &self.runtime).await;
        followed.map_err(|error| step_failed("admission policies", &error))?;
        Ok(policies)
    }

    /// Plugins, webhooks and policies.
    async fn admission(
        &self,
        config: &ServerConfig,
        access: &Access,
        doors: &SystemDoors,
    ) -> Result<RequestAdmission, ServerError> {
        let (webhooks, policies) = (self.webhooks(config).await?, self.policies().await?);
        let door = doors.door(SystemWriter::QuotaUsage);
        let usage = QuotaUsage::new(self.registry.clone(), door, self.runtime.clone());
        let door = doors.door(SystemWriter::NamespaceProvision);
        let provisioner = ProvisionedNamespaces::new(self.registry.clone(), door, self.runtime.clone());
        let provisioner: Arc<dyn NamespaceProvisioner> = Arc::new(provisioner);
        let sources = Sources {
            provisioner: &provisioner,
            reader: &self.reader,
            rbac: &access.rbac,
            authorizers: &access.authorizers,
            registry: &self.registry,
            dialer: &self.dialer,
            webhooks: &webhooks,
            policies: &policies,
        };
        admission::assemble(&sources, (&self.runtime, &self.metrics), Arc::new(usage), config)
    }

    fn aggregation(&self, config: &ServerConfig, pki: &Pki) -> Result<Arc<Aggregation>, ServerError> {
        let proxy = &pki.front_proxy_client;
        let proxy = ClientIdentity::new(proxy.chain().to_vec(), proxy.key()).map_err(PkiError::from)?;
        let aggregation = Aggregation::new(
            ExtensionClient::new(self.dialer.clone(), Arc::clone(&self.reader)),
            proxy,
            config.max_proxied_connections,
            config.body_memory_bytes,
            AggregationMetrics::new(self.metrics.families())?,
            self.runtime.clone(),
        );
        let availability = AvailabilityCollector::new(&aggregation.table)?;
        self.metrics.registry().register(Box::new(availability))?;
        Ok(aggregation)
    }

    /// Usage of nodes and pods, measured from now on.
    fn resource_metrics(&self) -> Arc<ResourceMetrics> {
        let metrics = ResourceMetrics::new(
            self.registry.clone(),
            Arc::clone(&self.reader),
            self.dialer.clone(),
        );
        let metrics = Arc::new(metrics);
        let scraped = Arc::clone(&metrics);
        let scrape = move || {
            let scraped = Arc::clone(&scraped);
            async move { scraped.run().await }
        };
        self.runtime.keep("resource metrics", scrape).detach();
        metrics
    }

    fn hooks(
        &self,
        config: &ServerConfig,
        aggregation: &Arc<Aggregation>,
        reviewer: Reviewer,
        issuer: TokenIssuer,
    ) -> ServerHooks {
        ServerHooks {
            aggregation: Arc::clone(aggregation),
            reviewer,
            issuer,
            reader: Arc::clone(&self.reader),
            kubelets: Kubelets {
                dialer: self.dialer.clone(),
                connections: ProxiedConnections::new(config.max_proxied_connections),
            },
            registry: self.registry.clone(),
            watches: Arc::clone(&self.metrics.watches),
            lists: Arc::clone(&self.metrics.lists),
            resource_metrics: self.resource_metrics(),
            components: config.components.clone(),
        }
    }

    fn endpoints(
        &self,
        config: &ServerConfig,
        admission: RequestAdmission,
        hooks: ServerHooks,
    ) -> Result<Endpoints, ServerError> {
        let endpoints = Endpoints::new(
            self.registry.clone(),
            Arc::new(admission),
            Arc::new(hooks),
            VersionInfo::default(),
            ListMemory::new(config.list_memory_bytes, config.answer_pace_interval),
            config.min_request_timeout,
        );
        let unread_memory = UnreadMemoryCollector::new(endpoints.unread_memory())?;
        self.metrics.registry().register(Box::new(unread_memory))?;
        Ok(endpoints)
    }
}

/// Authorization, and the feed that keeps it up to date.
struct Access {
    feed: Arc<AuthorizationFeed>,
    rbac: Arc<RbacAuthorizer>,
    authorizers: AuthorizerChain,
}

impl Access {
    /// Reads what authorization goes by, and follows it.
    async fn begin(ground: &Ground, config: &ServerConfig) -> Result<Self, ServerError> {
        let nodes = Arc::new(NodeIndex::default());
        let rbac = Arc::new(RbacAuthorizer::default());
        let feed = Arc::new(AuthorizationFeed {
            registry: ground.registry.clone(),
            rbac: Arc::clone(&rbac),
            nodes: Arc::clone(&nodes),
            runtime: ground.runtime.clone(),
            applied: watch::Sender::default(),
        });
        Arc::clone(&feed).start().await.map_err(feed_failed)?;
        let parts = AuthorizerParts {
            reader: Arc::clone(&ground.reader),
            nodes,
            rbac: Arc::clone(&rbac),
            abac: Arc::default(),
            dialer: ground.dialer.clone(),
            observer: AuthorizationWebhookMetrics::new(ground.metrics.families())?,
        };
        let authorizers = authorization::open(config, parts, &ground.metrics, &ground.runtime)?;
        let decisions = DecisionsCollector::new(authorizers.clone())?;
        ground.metrics.registry().register(Box::new(decisions))?;
        Ok(Self {
            feed,
            rbac,
            authorizers,
        })
    }
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
    dialer: &Dialer,
    runtime: &Runtime,
    metrics: &Metrics,
) -> Result<Option<Arc<Auditor>>, ServerError> {
    let (log, webhook) = (&config.audit_log, &config.audit_webhook);
    if log.is_none() && webhook.is_none() {
        return Ok(None);
    }
    let policy = config.audit_policy_file.as_ref().map(|path| {
        std::fs::read(path).map_err(|source| ServerError::File {
            flag: "--audit-policy-file",
            path: path.clone(),
            source,
        })
    });
    let policy = policy.transpose()?;
    let open = |webhook: &AuditWebhookConfig| {
        let receiver = WebhookReceiver::open(&webhook.config_file, dialer.clone())?;
        let errors = metrics.audit().errors();
        Ok::<_, KubeconfigError>(AuditWebhook::open(webhook, Arc::new(receiver), runtime, errors))
    };
    let webhook = webhook.as_ref().map(open).transpose();
    let webhook = webhook.map_err(ServerError::AuditWebhook)?;
    let auditor = Auditor::open(log.clone(), webhook, policy.as_deref(), runtime, metrics.audit());
    match auditor {
        Ok(auditor) => Ok(Some(Arc::new(auditor))),
        Err(PolicyError::Log(source)) => Err(ServerError::File {
            flag: "--audit-log-path",
            path: log.as_ref().map(|log| log.path.clone()).unwrap_or_default(),
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
