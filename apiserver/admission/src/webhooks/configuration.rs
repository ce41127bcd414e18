//! Webhooks of one configuration, compiled once when it is written.

use super::conditions;
use crate::expressions::Expression;
use crate::matching::{Constraints, Rule, is_equivalent, selector};
use apiserver_egress::{CredentialsByHost, HookTarget};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, WebhookClientConfig};
use machinery_runtime::LogThrottle;
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A configuration of either kind: a validating webhook has all members of a mutating one but the reinvocation policy.
#[derive(Debug, Deserialize)]
struct Written {
    #[serde(default)]
    webhooks: Option<Vec<MutatingWebhook>>,
}

/// A version of AdmissionReview that this server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// A webhook.
#[derive(Debug)]
pub struct Webhook {
    pub(super) configuration: String,
    pub(super) name: String,
    /// Unique among all webhooks of a kind.
    pub(super) id: String,
    pub(super) constraints: Constraints,
    pub(super) conditions: Vec<Expression>,
    /// Requests pass where it cannot be called.
    pub(super) ignores_failure: bool,
    /// It may be called in a dry run.
    pub(super) has_no_side_effects: bool,
    pub(super) timeout: Option<Duration>,
    /// The first version of its list that this server speaks.
    pub(super) review: Option<ReviewVersion>,
    pub(super) wants_reinvocation: bool,
    pub(super) target: Result<HookTarget, String>,
    /// Lines of the log about its failures, of which every request can make one.
    pub(super) log: LogThrottle,
}

/// The webhooks of one configuration.
#[derive(Debug)]
pub struct ConfiguredWebhooks(pub Vec<Arc<Webhook>>);

impl ConfiguredWebhooks {
    /// Compiles a configuration, given as JSON; its webhooks are shown the credentials for their addresses.
    ///
    /// # Errors
    /// The JSON is no configuration.
    pub fn compile(
        name: &str,
        json: &[u8],
        credentials: &CredentialsByHost,
    ) -> Result<Self, serde_json::Error> {
        let written: Written = serde_json::from_slice(json)?;
        let mut seen: HashMap<String, usize> = HashMap::new();
        let webhooks = written.webhooks.unwrap_or_default().into_iter();
        let all = webhooks.map(|webhook| {
            let nth = seen.entry(webhook.name.clone()).or_default();
            let id = format!("{name}/{}/{nth}", webhook.name);
            *nth += 1;
            Arc::new(compiled(name, id, webhook, credentials))
        });
        Ok(Self(all.collect()))
    }
}

fn compiled(
    configuration: &str,
    id: String,
    webhook: MutatingWebhook,
    credentials: &CredentialsByHost,
) -> Webhook {
    let reviews = webhook.admission_review_versions.iter();
    let mut known = reviews.filter_map(|version| match version.as_str() {
        "v1" => Some(ReviewVersion::V1),
        "v1beta1" => Some(ReviewVersion::V1Beta1),
        _ => None,
    });
    let review = known.next();
    let rules = webhook.rules.unwrap_or_default().into_iter();
    let written = webhook.match_conditions.iter().flatten();
    let seconds = webhook.timeout_seconds.and_then(|own| u64::try_from(own).ok());
    Webhook {
        configuration: configuration.to_owned(),
        id,
        constraints: Constraints {
            rules: rules.map(Rule::from).collect(),
            excluded: Vec::new(),
            without_rules: false,
            matches_equivalents: is_equivalent(webhook.match_policy.as_deref()),
            namespace_selector: selector(webhook.namespace_selector.as_ref()),
            object_selector: selector(webhook.object_selector.as_ref()),
        },
        conditions: written.map(|own| conditions::compile(&own.expression)).collect(),
        ignores_failure: webhook.failure_policy.as_deref() == Some("Ignore"),
        has_no_side_effects: matches!(&*webhook.side_effects, "None" | "NoneOnDryRun"),
        timeout: seconds.map(Duration::from_secs),
        review,
        wants_reinvocation: webhook.reinvocation_policy.as_deref() == Some("IfNeeded"),
        target: target(&webhook.client_config, credentials),
        log: LogThrottle::default(),
        name: webhook.name,
    }
}

fn target(client: &WebhookClientConfig, credentials: &CredentialsByHost) -> Result<HookTarget, String> {
    let bundle = client.ca_bundle.as_ref().map_or(&[][..], |own| &own.0);
    let target = match (&client.service, &client.url) {
        (Some(service), _) => {
            let port = service.port.and_then(|port| u16::try_from(port).ok());
            let path = service.path.as_deref().unwrap_or_default();
            HookTarget::service(
                (&service.namespace, &service.name),
                port.unwrap_or(443),
                path,
                bundle,
            )
        }
        (None, Some(url)) => HookTarget::url_of(url, bundle),
        (None, None) => Err(apiserver_egress::TargetError::Missing),
    };
    let target = target.and_then(|own| own.with_credentials(credentials, bundle));
    target.map_err(|error| error.to_string())
}
