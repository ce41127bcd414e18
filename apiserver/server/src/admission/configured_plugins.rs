//! The plugins of this server: those that are enabled, by their configurations.

use super::Sources;
use super::image_reviews::ImageReviews;
use crate::admission_configuration::{AdmissionConfiguration, AdmissionConfigurationError};
use crate::config::ServerConfig;
use crate::metrics::PodSecurityMetrics;
use crate::webhook_admission;
use crate::webhooks::WebhookCredentials;
use apiserver_admission::permissions::Permissions;
use apiserver_admission::plugins::event_rate_limit::{Configuration, EventRateLimit};
use apiserver_admission::plugins::image_policy::{self, ImagePolicyWebhook};
use apiserver_admission::plugins::pod_security::{self, PodSecurity, Recorder};
use apiserver_admission::plugins::resource_quota::{self, ResourceQuota, UsageWriter};
use apiserver_admission::plugins::{
    OFF_BY_DEFAULT, Parts, PodNodeSelectorConfiguration, PodTolerationRestrictionConfiguration,
};
use apiserver_admission::{AdmissionChain, plugins};
use apiserver_egress::{CredentialsByHost, Dialer};
use machinery_runtime::Runtime;
use std::sync::Arc;

const EVENT_RATE_LIMIT: &str = "EventRateLimit";

const IMAGE_POLICY: &str = "ImagePolicyWebhook";

const RESOURCE_QUOTA: &str = "ResourceQuota";

const POD_SECURITY: &str = "PodSecurity";

const POD_NODE_SELECTOR: &str = "PodNodeSelector";

const POD_TOLERATION_RESTRICTION: &str = "PodTolerationRestriction";

const MUTATING_WEBHOOKS: &str = "MutatingAdmissionWebhook";
const VALIDATING_WEBHOOKS: &str = "ValidatingAdmissionWebhook";
const MUTATING_POLICIES: &str = "MutatingAdmissionPolicy";
const VALIDATING_POLICIES: &str = "ValidatingAdmissionPolicy";

/// Plugins that take a configuration.
const CONFIGURED: [&str; 10] = [
    EVENT_RATE_LIMIT,
    IMAGE_POLICY,
    MUTATING_POLICIES,
    MUTATING_WEBHOOKS,
    POD_NODE_SELECTOR,
    POD_SECURITY,
    POD_TOLERATION_RESTRICTION,
    RESOURCE_QUOTA,
    VALIDATING_POLICIES,
    VALIDATING_WEBHOOKS,
];

/// Plugins behind a feature gate that can be switched.
const GATED: [(&str, &str); 2] = [
    ("MutatingAdmissionPolicy", "MutatingAdmissionPolicy"),
    ("PodTopologyLabels", "PodTopologyLabelsAdmission"),
];

/// The chain of the plugins that are enabled, and the counts of PodSecurity.
pub(super) fn chain(
    sources: &Sources<'_>,
    runtime: &Runtime,
    usage: Arc<dyn UsageWriter>,
    config: &ServerConfig,
) -> Result<(AdmissionChain, Arc<PodSecurityMetrics>), AdmissionConfigurationError> {
    let reader = sources.reader;
    let permissions: Arc<dyn Permissions> = Arc::new(sources.authorizers.clone());
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
    let parts = Parts {
        event_rate_limit: limit,
        image_policy: image_policy(&read, config, sources.dialer, runtime)?,
        pod_security: standards,
        quota,
        node_selectors: node_selectors(&read, config)?,
        tolerations: tolerations(&read, config)?,
        provisioner: Arc::clone(sources.provisioner),
        webhooks: Arc::clone(sources.webhooks),
        policies: Arc::clone(sources.policies),
    };
    let mut enabled = plugins::all(reader, &permissions, random, parts);
    let gates = &config.feature_gates;
    let is_off = |name: &str| {
        GATED
            .iter()
            .any(|(own, gate)| *own == name && !gates.is_enabled(gate))
    };
    enabled.retain(|plugin| is_enabled(config, plugin.name()) && !is_off(plugin.name()));
    Ok((AdmissionChain::new(enabled), counts))
}

/// The configurations of plugins.
fn configurations(config: &ServerConfig) -> Result<AdmissionConfiguration, AdmissionConfigurationError> {
    let file = config.admission_control_config_file.as_deref();
    let read = file
        .map(AdmissionConfiguration::read)
        .transpose()?
        .unwrap_or_default();
    for plugin in read.unused(&CONFIGURED) {
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

/// Plugins that are off by default run where they are named.
fn is_enabled(config: &ServerConfig, plugin: &str) -> bool {
    let is_named = || config.enable_admission_plugins.iter().any(|name| name == plugin);
    !is_disabled(config, plugin) && (!OFF_BY_DEFAULT.contains(&plugin) || is_named())
}

/// The configuration of the plugin PodNodeSelector, where it is enabled.
fn node_selectors(
    read: &AdmissionConfiguration,
    config: &ServerConfig,
) -> Result<PodNodeSelectorConfiguration, AdmissionConfigurationError> {
    match is_enabled(config, POD_NODE_SELECTOR) {
        true => Ok(PodNodeSelectorConfiguration::parse(
            read.of(POD_NODE_SELECTOR)?.as_ref(),
        )),
        false => Ok(PodNodeSelectorConfiguration::default()),
    }
}

/// The configuration of the plugin PodTolerationRestriction, where it is enabled.
fn tolerations(
    read: &AdmissionConfiguration,
    config: &ServerConfig,
) -> Result<PodTolerationRestrictionConfiguration, AdmissionConfigurationError> {
    let plugin = POD_TOLERATION_RESTRICTION;
    if !is_enabled(config, plugin) {
        return Ok(PodTolerationRestrictionConfiguration::default());
    }
    let configuration = PodTolerationRestrictionConfiguration::parse(read.of(plugin)?.as_ref());
    configuration.map_err(|why| AdmissionConfigurationError::Plugin { plugin, why })
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
    if !is_enabled(config, EVENT_RATE_LIMIT) {
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

/// The credentials for webhooks of the plugins that are not disabled.
pub(crate) fn webhook_credentials(
    config: &ServerConfig,
) -> Result<WebhookCredentials, AdmissionConfigurationError> {
    let file = config.admission_control_config_file.as_deref();
    let read = file
        .map(AdmissionConfiguration::read)
        .transpose()?
        .unwrap_or_default();
    for plugin in [MUTATING_POLICIES, VALIDATING_POLICIES] {
        if !is_disabled(config, plugin) {
            webhook_admission::check_policies(&read, plugin)?;
        }
    }
    let of = |plugin| match is_disabled(config, plugin) {
        true => Ok(CredentialsByHost::default()),
        false => webhook_admission::credentials(&read, plugin),
    };
    Ok(WebhookCredentials {
        mutating: of(MUTATING_WEBHOOKS)?,
        validating: of(VALIDATING_WEBHOOKS)?,
    })
}

/// The plugin ImagePolicyWebhook by its configuration, where it is enabled.
fn image_policy(
    read: &AdmissionConfiguration,
    config: &ServerConfig,
    dialer: &Dialer,
    runtime: &Runtime,
) -> Result<Option<ImagePolicyWebhook>, AdmissionConfigurationError> {
    let plugin = IMAGE_POLICY;
    if !is_enabled(config, plugin) {
        return Ok(None);
    }
    let wrong = |why| AdmissionConfigurationError::Plugin { plugin, why };
    let configuration = image_policy::Configuration::parse(read.of(plugin)?.as_ref()).map_err(wrong)?;
    let reviews = ImageReviews::open(&configuration, dialer).map_err(|error| wrong(error.to_string()))?;
    let own = runtime.clone();
    let clock = Arc::new(move || own.monotonic());
    Ok(Some(ImagePolicyWebhook::new(
        configuration,
        Arc::new(reviews),
        clock,
    )))
}
