//! Joins the admission plugins to the registry, and looks after grants: nobody writes a role or binding beyond what they
//! hold (which upstream does in its RBAC stores), nor speaks for a signer who may not.

use crate::account_weight;
use crate::admission_configuration::{AdmissionConfiguration, AdmissionConfigurationError};
use crate::admission_host::RequestHost;
use crate::config::ServerConfig;
use crate::metrics::{AdmissionMetrics, Metrics, PodSecurityMetrics};
use crate::parameters::Parameters;
use crate::remarks::RequestRemarks;
use crate::signers;
use crate::unenforced::Unenforced;
use apiserver_admission::permissions::{Permissions, Right};
use apiserver_admission::plugins::event_rate_limit::{Configuration, EventRateLimit};
use apiserver_admission::plugins::pod_security::{self, PodSecurity, Recorder};
use apiserver_admission::plugins::resource_quota::{self, ResourceQuota, UsageWriter};
use apiserver_admission::policies::{Denial, Policies};
use apiserver_admission::webhooks::Webhooks;
use apiserver_admission::{
    AdmissionChain as Plugins, AdmissionError, Operation as PluginOperation, Rejection, RejectionCause,
    Request, plugins,
};
use apiserver_auth::authz::attributes::ResourceTarget;
use apiserver_auth::authz::rbac::escalation::{self, GrantChange, GrantCheck, GrantTarget};
use apiserver_auth::authz::rbac::{RbacAuthorizer, RoleRef};
use apiserver_auth::authz::{Attributes as AuthzAttributes, AttributesTarget, AuthorizerChain};
use apiserver_registry::error::{Cause, DeniedDetails, DeniedStatus, OPTIMISTIC_LOCK_MESSAGE};
use apiserver_registry::{Admission, Attributes, Operation, Registry, RegistryError, RequestContext};
use async_trait::async_trait;
use machinery_meta::reader::ObjectReader;
use machinery_meta::{GroupResource, UserInfo};
use machinery_runtime::Runtime;
use machinery_schema::Tree;
use std::sync::Arc;

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const GRANTS: [&str; 4] = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];

/// See the module.
pub(crate) struct AdmissionChain {
    plugins: Plugins,
    rbac: Arc<RbacAuthorizer>,
    authorizers: AuthorizerChain,
    parameters: Parameters,
    unenforced: Unenforced,
    pod_security: Arc<PodSecurityMetrics>,
}

const EVENT_RATE_LIMIT: &str = "EventRateLimit";

const RESOURCE_QUOTA: &str = "ResourceQuota";

const POD_SECURITY: &str = "PodSecurity";

/// The configurations of plugins.
fn configurations(config: &ServerConfig) -> Result<AdmissionConfiguration, AdmissionConfigurationError> {
    let file = config.admission_control_config_file.as_deref();
    let read = file
        .map(AdmissionConfiguration::read)
        .transpose()?
        .unwrap_or_default();
    for plugin in read.unused(&[EVENT_RATE_LIMIT, POD_SECURITY, RESOURCE_QUOTA]) {
        tracing::warn!(
            plugin,
            "this admission plugin takes no configuration here, it is ignored"
        );
    }
    Ok(read)
}

/// Configurations of disabled plugins are not read.
fn is_disabled(config: &ServerConfig, plugin: &str) -> bool {
    config.disable_admission_plugins.iter().any(|name| name == plugin)
}

/// The configuration of the plugin PodSecurity, where it is not disabled.
fn pod_security_configuration(
    read: &AdmissionConfiguration,
    config: &ServerConfig,
) -> Result<pod_security::Configuration, AdmissionConfigurationError> {
    use pod_security::ConfigurationError::{Form, Invalid};
    if is_disabled(config, POD_SECURITY) {
        return Ok(pod_security::Configuration::default());
    }
    let plugin = POD_SECURITY;
    let configuration = pod_security::Configuration::parse(read.of(plugin)?.as_ref());
    configuration.map_err(|error| match error {
        Form(why) => AdmissionConfigurationError::Plugin { plugin, why },
        Invalid(why) => AdmissionConfigurationError::Values { plugin, why },
    })
}

/// The configuration of the quota plugin, where it is not disabled.
fn quota_configuration(
    read: &AdmissionConfiguration,
    config: &ServerConfig,
) -> Result<resource_quota::Configuration, AdmissionConfigurationError> {
    if is_disabled(config, RESOURCE_QUOTA) {
        return Ok(resource_quota::Configuration::default());
    }
    let configuration = resource_quota::Configuration::parse(read.of(RESOURCE_QUOTA)?.as_ref());
    configuration.map_err(|error| AdmissionConfigurationError::Plugin {
        plugin: RESOURCE_QUOTA,
        why: error.to_string(),
    })
}

/// The plugin by its configuration, where it is enabled.
fn event_rate_limit(
    read: &AdmissionConfiguration,
    config: &ServerConfig,
    runtime: &Runtime,
) -> Result<Option<EventRateLimit>, AdmissionConfigurationError> {
    let has = |names: &[String]| names.iter().any(|name| name == EVENT_RATE_LIMIT);
    if !has(&config.enable_admission_plugins) || has(&config.disable_admission_plugins) {
        return Ok(None);
    }
    let configuration = Configuration::parse(read.of(EVENT_RATE_LIMIT)?.as_ref());
    let configuration = configuration.map_err(|error| AdmissionConfigurationError::Plugin {
        plugin: EVENT_RATE_LIMIT,
        why: error.to_string(),
    })?;
    let runtime = runtime.clone();
    let clock = Arc::new(move || runtime.monotonic());
    Ok(Some(EventRateLimit::new(&configuration, clock)))
}

/// The authorizers, as plugins ask them.
struct Authorizers(AuthorizerChain);

#[async_trait]
impl Permissions for Authorizers {
    async fn has(&self, user: &UserInfo, right: Right<'_>) -> bool {
        let target = AttributesTarget::Resource(ResourceTarget {
            group: right.group,
            version: "*",
            resource: right.resource,
            namespace: right.namespace,
            name: right.name,
            ..ResourceTarget::default()
        });
        let question = AuthzAttributes {
            user,
            verb: right.verb,
            target,
        };
        self.0.authorize(&question).await.is_allowed()
    }
}

/// Parts of the server that plugins ask.
pub(crate) struct Sources<'a> {
    pub(crate) reader: &'a Arc<dyn ObjectReader>,
    pub(crate) rbac: &'a Arc<RbacAuthorizer>,
    pub(crate) authorizers: &'a AuthorizerChain,
    pub(crate) registry: &'a Registry,
    pub(crate) webhooks: &'a Arc<Webhooks>,
    pub(crate) policies: &'a Arc<Policies>,
}

impl AdmissionChain {
    pub(crate) fn new(
        sources: &Sources<'_>,
        runtime: &Runtime,
        usage: Arc<dyn UsageWriter>,
        config: &ServerConfig,
    ) -> Result<Self, AdmissionConfigurationError> {
        let Sources {
            reader,
            rbac,
            authorizers,
            registry,
            webhooks,
            policies,
        } = *sources;
        let parameters = Parameters {
            authorizers: authorizers.clone(),
            reader: Arc::clone(reader),
            registry: registry.clone(),
        };
        let permissions: Arc<dyn Permissions> = Arc::new(Authorizers(authorizers.clone()));
        let own = runtime.clone();
        let random = Arc::new(move || own.random_u64());
        let read = configurations(config)?;
        let limit = event_rate_limit(&read, config, runtime)?;
        let configuration = quota_configuration(&read, config)?;
        let quota = ResourceQuota::new(reader, usage, configuration, runtime);
        let counts = Arc::new(PodSecurityMetrics::new());
        let recorder: Arc<dyn Recorder> = counts.clone();
        let own = runtime.clone();
        let clock: pod_security::Clock = Arc::new(move || own.monotonic());
        let standards = pod_security_configuration(&read, config)?;
        let standards = PodSecurity::new(reader, standards, recorder, clock);
        let mut enabled = plugins::all(
            reader,
            &permissions,
            random,
            limit,
            standards,
            quota,
            (webhooks, policies),
        );
        enabled.retain(|plugin| !is_disabled(config, plugin.name()));
        let unenforced = Unenforced {
            allowed: config.allow_unenforced,
        };
        Ok(Self {
            plugins: Plugins::new(enabled),
            rbac: Arc::clone(rbac),
            authorizers: authorizers.clone(),
            parameters,
            unenforced,
            pod_security: counts,
        })
    }

    /// Has the plugins' times counted.
    pub(crate) fn measured(
        mut self,
        metrics: &Metrics,
        runtime: &Runtime,
    ) -> Result<Self, prometheus::Error> {
        let observer = AdmissionMetrics::new(metrics.families(), runtime.clone(), self.plugins.len())?;
        self.plugins.observe(observer);
        self.pod_security.register(metrics.families())?;
        Ok(self)
    }

    fn host<'a>(&'a self, ctx: &'a RequestContext, attributes: &'a Attributes) -> RequestHost<'a> {
        RequestHost {
            ctx,
            attributes,
            registry: &self.parameters.registry,
            authorizers: &self.authorizers,
        }
    }

    async fn check_grant(
        &self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: &Tree,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        let target = GrantTarget {
            resource: &attributes.resource.resource,
            namespace: &attributes.namespace,
            name: if attributes.addressed {
                &attributes.name
            } else {
                ""
            },
        };
        let change = GrantChange { old, new: object };
        let check = escalation::check(&self.rbac, &self.authorizers, &ctx.user, target, change).await;
        match check {
            GrantCheck::Allowed => Ok(()),
            GrantCheck::Refused(why) => {
                let name = object.str_at(&["metadata", "name"]);
                Err(RegistryError::forbidden(
                    &attributes.resource.group_resource(),
                    name,
                    why,
                ))
            }
            GrantCheck::RoleMissing(role) => Err(missing_role(attributes, &role)),
        }
    }
}

/// Upstream's answers to a binding of an absent role: the lookup is made in the name of the binding's own resource.
fn missing_role(attributes: &Attributes, role: &RoleRef) -> RegistryError {
    match role.kind.as_str() {
        "Role" if attributes.namespace.is_empty() => {
            RegistryError::BadRequest("Namespace parameter required.".to_owned())
        }
        "Role" | "ClusterRole" => RegistryError::not_found(&attributes.resource.group_resource(), &role.name),
        other => RegistryError::Unclassified(format!("unsupported role reference kind: {other:?}")),
    }
}

fn is_grant(attributes: &Attributes) -> bool {
    attributes.resource.group == RBAC_GROUP
        && GRANTS.contains(&attributes.resource.resource.as_str())
        && matches!(attributes.operation, Operation::Create | Operation::Update)
}

fn request<'a>(
    remarks: &'a RequestRemarks<'a>,
    attributes: &'a Attributes,
    host: &'a RequestHost<'a>,
) -> Request<'a> {
    Request {
        user: &remarks.0.user,
        operation: match attributes.operation {
            Operation::Create => PluginOperation::Create,
            Operation::Update => PluginOperation::Update,
            Operation::Delete => PluginOperation::Delete,
            Operation::Connect => PluginOperation::Connect,
        },
        group: &attributes.resource.group,
        kind: &attributes.kind.kind,
        resource: &attributes.resource.resource,
        subresource: &attributes.subresource,
        namespace: &attributes.namespace,
        name: &attributes.name,
        dry_run: attributes.dry_run,
        remarks,
        host: Some(host),
        reinvocation: None,
    }
}

/// The name behind a refusal: the object's own where the request has none yet, or what its name will begin with.
fn shown_name<'a>(attributes: &'a Attributes, object: Option<&'a Tree>) -> &'a str {
    let of = |member| object.map_or("", |object| object.str_at(&["metadata", member]));
    let names = [&*attributes.name, of("name"), of("generateName")];
    names
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or("Unknown")
}

fn denied(given: Rejection) -> DeniedStatus {
    let cause = |own: RejectionCause| Cause {
        reason: own.reason,
        message: own.message,
        field: own.field,
    };
    DeniedStatus {
        code: given.code,
        reason: given.reason,
        message: given.message,
        details: given.details.map(|own| DeniedDetails {
            name: own.name,
            group: own.group,
            kind: own.kind,
            uid: own.uid,
            causes: own.causes.unwrap_or_default().into_iter().map(cause).collect(),
            retry_after_seconds: own.retry_after_seconds.unwrap_or_default(),
        }),
    }
}

/// The refusal of policies; it names the object as upstream's `NewForbidden` does.
fn denied_by_policies(given: Denial, resource: &GroupResource, name: &str) -> DeniedStatus {
    let message = match given.is_whole {
        true => given.message,
        false => format!("{resource} {name:?} is forbidden: {}", given.message),
    };
    let cause = |message| Cause {
        reason: String::new(),
        message,
        field: String::new(),
    };
    DeniedStatus {
        code: given.code,
        reason: given.reason,
        message,
        details: Some(DeniedDetails {
            name: name.to_owned(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            causes: given.causes.into_iter().map(cause).collect(),
            ..DeniedDetails::default()
        }),
    }
}

fn refused(error: AdmissionError, attributes: &Attributes, object: Option<&Tree>) -> RegistryError {
    let resource = attributes.resource.group_resource();
    let name = shown_name(attributes, object);
    match error {
        AdmissionError::Forbidden(why) => RegistryError::forbidden(&resource, name, why),
        AdmissionError::ForbiddenFor { why, cause } => RegistryError::Forbidden {
            resource,
            name: name.to_owned(),
            detail: why,
            causes: vec![Cause {
                reason: cause,
                message: String::new(),
                field: String::new(),
            }],
        },
        AdmissionError::Invalid(errors) => RegistryError::Invalid {
            kind: attributes.kind.group_kind(),
            name: name.to_owned(),
            errors,
        },
        AdmissionError::NamespaceTerminating(namespace) => {
            let detail = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let cause = Cause {
                reason: "NamespaceTerminating".to_owned(),
                message: format!("namespace {namespace} is being terminated"),
                field: "metadata.namespace".to_owned(),
            };
            RegistryError::Forbidden {
                resource,
                name: name.to_owned(),
                detail,
                causes: vec![cause],
            }
        }
        AdmissionError::NotFound { resource, name } => RegistryError::NotFound { resource, name },
        AdmissionError::BadRequest(message) => RegistryError::BadRequest(message),
        AdmissionError::TooManyRequests(message) => RegistryError::TooManyRequests {
            message,
            seconds: 0,
            causes: Vec::new(),
        },
        AdmissionError::Conflict { resource, name } => {
            RegistryError::conflict(&resource, &name, OPTIMISTIC_LOCK_MESSAGE)
        }
        AdmissionError::Unclassified(message) => RegistryError::Unclassified(message),
        AdmissionError::Internal(message) => RegistryError::Internal(message),
        AdmissionError::Timeout(message) => RegistryError::Timeout(message),
        AdmissionError::Rejected(rejection) => RegistryError::Denied(Box::new(denied(*rejection))),
        AdmissionError::Denied(denial) => {
            let denied = denied_by_policies(*denial, &resource, name);
            RegistryError::Denied(Box::new(denied))
        }
        AdmissionError::Reading(error) => RegistryError::Internal(error.to_string()),
    }
}

#[async_trait]
impl Admission for AdmissionChain {
    async fn mutate(
        &self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        signers::check_node(ctx, attributes, object)?;
        account_weight::weigh(ctx, &self.parameters.registry, attributes, object).await?;
        let (remarks, host) = (RequestRemarks(ctx), self.host(ctx, attributes));
        let asked = self
            .plugins
            .mutate(&request(&remarks, attributes, &host), object, old)
            .await;
        asked.map_err(|error| refused(error, attributes, Some(object)))?;
        // Before validation, as upstream: a grant is refused whatever else is wrong with it.
        if is_grant(attributes) {
            self.check_grant(ctx, attributes, object, old).await?;
        }
        Ok(())
    }

    async fn validate(
        &self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        if let Some(object) = object.filter(|_| is_grant(attributes)) {
            self.check_grant(ctx, attributes, object, old).await?;
        }
        if let Some(object) = object {
            signers::check(&self.authorizers, ctx, attributes, object, old).await?;
            self.parameters.check(ctx, attributes, object, old).await?;
            self.unenforced.check(ctx, attributes, object, old)?;
        }
        let (remarks, host) = (RequestRemarks(ctx), self.host(ctx, attributes));
        let asked = self
            .plugins
            .validate(&request(&remarks, attributes, &host), object, old)
            .await;
        asked.map_err(|error| refused(error, attributes, object))
    }
}
