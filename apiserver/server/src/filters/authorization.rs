//! Authorization of requests.

use super::audit::AuditEvent;
use super::filter::{Filter, Next};
use super::forbid;
use crate::exchange::{RequestExchange, Response};
use crate::metrics::{Decided, Metrics};
use crate::state::ServerState;
use apiserver_auth::authz::attributes::{AttributesTarget, ResourceTarget};
use apiserver_auth::authz::{Attributes, AuthorizerChain, Busy, Decision, Forbidden};
use apiserver_registry::RegistryError;
use apiserver_registry::latency::LatencyPart;
use futures::future::BoxFuture;
use machinery_meta::{FieldSelector, LabelSelector};
use std::sync::Arc;

pub(crate) struct Authorization {
    authorizers: AuthorizerChain,
    metrics: Arc<Metrics>,
}

impl Authorization {
    pub(crate) fn new(core: &Arc<ServerState>) -> Self {
        Self {
            authorizers: core.authorizers.clone(),
            metrics: Arc::clone(&core.metrics),
        }
    }
}

/// Hands the attributes of a request to `ask`.
pub(super) async fn with_attributes<T>(
    exchange: &RequestExchange,
    ask: impl AsyncFnOnce(&Attributes<'_>) -> T,
) -> T {
    let info = &exchange.info;
    // Selectors that do not parse narrow nothing here; the handler answers them with 400.
    let fields = Some(&info.field_selector)
        .filter(|text| !text.is_empty())
        .and_then(|t| FieldSelector::parse(t).ok());
    let labels = Some(&info.label_selector)
        .filter(|text| !text.is_empty())
        .and_then(|t| LabelSelector::parse(t).ok());
    let target = if info.is_resource_request {
        AttributesTarget::Resource(ResourceTarget {
            group: &info.api_group,
            version: &info.api_version,
            resource: &info.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: &info.name,
            field_selector: fields.as_ref(),
            label_selector: labels.as_ref(),
        })
    } else {
        AttributesTarget::Path(&info.path)
    };
    let attributes = Attributes {
        asker: None,
        user: &exchange.context.user,
        verb: &info.verb,
        target,
    };
    ask(&attributes).await
}

async fn check(
    authorizers: &AuthorizerChain,
    metrics: &Metrics,
    exchange: &RequestExchange,
    attributes: &Attributes<'_>,
) -> Result<(), RegistryError> {
    let runtime = &exchange.context.runtime;
    let begun = runtime.monotonic();
    let decision = authorizers.authorize(attributes).await;
    let took = runtime.monotonic().saturating_sub(begun);
    exchange.context.latency.add(LatencyPart::Authorization, took);
    let outcome = match &decision {
        Err(Busy) => Decided::Failed,
        Ok(Decision::Allow(_)) => Decided::Allowed,
        Ok(other) if other.error().is_some() => Decided::Failed,
        Ok(Decision::Deny(_)) => Decided::Denied,
        Ok(Decision::NoOpinion(_)) => Decided::NoOpinion,
    };
    metrics.access.decided(outcome, took);
    if let Some(event) = AuditEvent::of(exchange) {
        match &decision {
            Ok(decision) if decision.error().is_none() => {
                let said = if decision.is_allowed() { "allow" } else { "forbid" };
                event.annotate("authorization.k8s.io/decision", said);
                event.annotate("authorization.k8s.io/reason", decision.reason().to_string());
            }
            // As upstream: nothing was decided.
            _ => event.annotate("authorization.k8s.io/reason", "internal error"),
        }
    }
    decided(attributes, decision)
}

/// Outcome of a decision for its request.
///
/// # Errors
/// Forbidden; or nothing was decided, for now or since an authorizer failed.
pub(crate) fn decided(
    attributes: &Attributes<'_>,
    decision: Result<Decision, Busy>,
) -> Result<(), RegistryError> {
    let decision = decision.map_err(|Busy| RegistryError::busy())?;
    if decision.is_allowed() {
        return Ok(());
    }
    if let Some(error) = decision.error() {
        return Err(RegistryError::Internal(error.to_owned()));
    }
    let forbidden = Forbidden::new(attributes, &decision);
    Err(RegistryError::forbidden(
        &forbidden.resource,
        &forbidden.name,
        forbidden.detail,
    ))
}

impl Filter for Authorization {
    fn call(&self, exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        let (authorizers, metrics) = (self.authorizers.clone(), Arc::clone(&self.metrics));
        Box::pin(async move {
            let checked = with_attributes(&exchange, async |attributes| {
                check(&authorizers, &metrics, &exchange, attributes).await
            });
            match checked.await {
                Ok(()) => next.run(exchange).await,
                Err(error) => forbid(&exchange, &error),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver_auth::authz::Reason;
    use machinery_meta::UserInfo;

    #[test]
    fn request_comes_again_where_its_asker_has_too_many_under_way() {
        let user = UserInfo::named("anna", ["staff"]);
        let attributes = Attributes {
            asker: None,
            user: &user,
            verb: "get",
            target: AttributesTarget::Path("/healthz"),
        };
        let refused = |decision| decided(&attributes, decision).unwrap_err();
        assert!(matches!(
            refused(Err(Busy)),
            RegistryError::TooManyRequests { .. }
        ));
        let denied = Ok(Decision::Deny(Reason::None));
        assert!(matches!(refused(denied), RegistryError::Forbidden { .. }));
    }
}
