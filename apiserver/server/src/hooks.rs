//! Requests of the endpoints to the rest of the server: reviews, tokens, streams to kubelets.

use crate::aggregation::Aggregation;
use crate::kubelet::Kubelets;
use crate::metrics::{ListMetrics, WatchMetrics};
use crate::resource_metrics::ResourceMetrics;
use apiserver_auth::authz::attributes::{AttributesTarget, ResourceTarget};
use apiserver_auth::authz::{Attributes, Forbidden};
use apiserver_auth::reviews::{ReviewError, ReviewRequest, Reviewer};
use apiserver_auth::token_request::{Account, TokenIssuer, TokenRequestError, TokenRequestSpec};
use apiserver_endpoints::{
    Body, Component, ConnectRequest, ExtensionGroups, Hooks, RequestInfo, ResourceUsage, WatchEvents,
};
use apiserver_registry::context::LARGE_OBJECT_BYTES;
use apiserver_registry::{Admitted, Registry, RegistryError, RequestContext, ResourceRow};
use async_trait::async_trait;
use machinery_meta::reader::ObjectReader;
use machinery_meta::{FieldError, GroupKind};
use machinery_schema::{Strictness, Tree, decode_json};
use serde_json::Value;
use std::sync::Arc;

/// See the module.
pub(crate) struct ServerHooks {
    pub(crate) aggregation: Arc<Aggregation>,
    pub(crate) reviewer: Reviewer,
    pub(crate) issuer: TokenIssuer,
    pub(crate) reader: Arc<dyn ObjectReader>,
    pub(crate) kubelets: Kubelets,
    pub(crate) registry: Registry,
    pub(crate) watches: Arc<WatchMetrics>,
    pub(crate) lists: Arc<ListMetrics>,
    pub(crate) resource_metrics: Arc<ResourceMetrics>,
    /// Other parts of the control plane in this process.
    pub(crate) components: Vec<&'static str>,
}

/// The object again, with another member set from JSON.
fn with_members(object: &Tree, members: &[(&str, &str)]) -> Result<Tree, RegistryError> {
    let mut text = String::from("{");
    let kept = object
        .root()
        .entries()
        .filter(|(name, _)| members.iter().all(|(own, _)| own != name));
    let mut push = |name: &str, json: &str| text.push_str(&format!("{}:{json},", Value::from(name)));
    for (name, value) in kept {
        push(name, &value.to_json());
    }
    for (name, json) in members {
        push(name, json);
    }
    text.pop();
    text.push('}');
    let decoded = decode_json(object.schema(), object.ty(), text.as_bytes(), Strictness::Ignore);
    decoded
        .map(|decoded| decoded.tree)
        .map_err(|error| RegistryError::Internal(error.to_string()))
}

fn invalid(group: &str, kind: &str, name: &str, errors: Vec<FieldError>) -> RegistryError {
    let kind = GroupKind {
        group: group.to_owned(),
        kind: kind.to_owned(),
    };
    RegistryError::Invalid {
        kind,
        name: name.to_owned(),
        errors,
    }
}

fn spec_json(object: &Tree) -> String {
    member_json(object, "spec")
}

fn member_json(object: &Tree, name: &str) -> String {
    object
        .get(name)
        .map(|member| member.to_json())
        .unwrap_or_default()
}

/// Work on a review, a large one in turn with other heavy work.
async fn on_review<T>(
    ctx: &RequestContext,
    review: &Tree,
    work: impl FnOnce(&Tree) -> Result<T, RegistryError>,
) -> Result<T, RegistryError> {
    ctx.heavy_from(review.arena_bytes(), LARGE_OBJECT_BYTES).await?;
    work(review)
}

#[async_trait]
impl Hooks for ServerHooks {
    fn extensions(&self) -> Arc<ExtensionGroups> {
        self.aggregation.shown()
    }

    fn watch_events(&self, row: &ResourceRow) -> Option<Arc<dyn WatchEvents>> {
        self.watches.of(row)
    }

    fn listed(&self, row: &ResourceRow, fetched: usize, returned: usize) {
        self.lists.listed(row, fetched, returned);
    }

    async fn review(
        &self,
        ctx: &RequestContext,
        admitted: &Admitted,
        object: Tree,
    ) -> Result<Tree, RegistryError> {
        let attributes = admitted.attributes();
        let (kind, namespace) = (attributes.kind.kind.as_str(), attributes.namespace.as_str());
        let read = on_review(ctx, &object, |object| {
            Ok((spec_json(object), member_json(object, "metadata")))
        });
        let (spec, metadata) = read.await?;
        let asked = ReviewRequest {
            user: &ctx.user,
            namespace,
            metadata: &metadata,
            now: ctx.runtime.now(),
        };
        let answered = self.reviewer.answer(kind, asked, spec.as_bytes()).await;
        let status = answered.map_err(|error| match error {
            ReviewError::BadRequest(message) => RegistryError::BadRequest(message),
            // Upstream leaves the kind out.
            ReviewError::Invalid(errors) => invalid("authorization.k8s.io", "", "", errors),
            other => RegistryError::Internal(other.to_string()),
        })?;
        let status = String::from_utf8(status).map_err(|error| RegistryError::Internal(error.to_string()))?;
        if kind == "SelfSubjectRulesReview" {
            // Upstream answers with a new object.
            return with_members(
                &object,
                &[("metadata", "{}"), ("spec", "{}"), ("status", &status)],
            );
        }
        if kind != "SelfSubjectReview" {
            let answer = move |object: &Tree| with_members(object, &[("status", &status)]);
            return on_review(ctx, &object, answer).await;
        }
        let created = ctx.runtime.now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let meta = format!(r#"{{"creationTimestamp":"{created}"}}"#);
        with_members(&object, &[("metadata", &meta), ("status", &status)])
    }

    async fn token(
        &self,
        ctx: &RequestContext,
        _admitted: &Admitted,
        service_account: &Tree,
        object: Tree,
    ) -> Result<Tree, RegistryError> {
        let spec: TokenRequestSpec = serde_json::from_str(&spec_json(&object))
            .map_err(|error| RegistryError::BadRequest(error.to_string()))?;
        let account = Account {
            namespace: service_account.str_at(&["metadata", "namespace"]),
            name: service_account.str_at(&["metadata", "name"]),
            uid: service_account.str_at(&["metadata", "uid"]),
        };
        let id = ctx.runtime.uuid().to_string();
        let issued = self
            .issuer
            .issue(&*self.reader, account, &spec, ctx.runtime.now(), id)
            .await;
        let issued = issued.map_err(token_error)?;
        ctx.audit.add(
            "authentication.kubernetes.io/issued-credential-id",
            issued.credential_id.clone(),
        );
        let expires = issued.expiration_timestamp.strftime("%Y-%m-%dT%H:%M:%SZ");
        let status = format!(
            r#"{{"token":"{}","expirationTimestamp":"{expires}"}}"#,
            issued.token
        );
        let spec = TokenRequestSpec {
            audiences: issued.audiences,
            expiration_seconds: Some(issued.expiration_seconds),
            bound_object_ref: spec.bound_object_ref,
            attestations: None,
        };
        let spec =
            serde_json::to_string(&spec).map_err(|error| RegistryError::Internal(error.to_string()))?;
        let created = ctx.runtime.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut object = with_members(&object, &[("spec", &spec), ("status", &status)])?;
        for (member, value) in [
            ("name", account.name),
            ("namespace", account.namespace),
            ("uid", account.uid),
            ("creationTimestamp", &created),
        ] {
            object.set_str(&["metadata", member], value);
        }
        Ok(object)
    }

    async fn authorize(
        &self,
        ctx: &RequestContext,
        verb: &str,
        info: &RequestInfo,
    ) -> Result<(), RegistryError> {
        let target = AttributesTarget::Resource(ResourceTarget {
            group: &info.api_group,
            version: &info.api_version,
            resource: &info.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: &info.name,
            field_selector: None,
            label_selector: None,
        });
        let attributes = Attributes {
            user: &ctx.user,
            verb,
            target,
        };
        let decision = self.reviewer.authorizers.authorize(&attributes).await;
        if decision.is_allowed() {
            return Ok(());
        }
        let forbidden = Forbidden::new(&attributes, &decision);
        Err(RegistryError::forbidden(
            &forbidden.resource,
            &forbidden.name,
            forbidden.detail,
        ))
    }

    async fn resource_usage(&self) -> Arc<ResourceUsage> {
        self.resource_metrics.usage().await
    }

    async fn components(&self) -> Vec<Component> {
        let storage = self.registry.stored().current_revision().await;
        let mut all = vec![Component {
            // Whatever it is, it stands where upstream has etcd.
            name: "etcd-0",
            health: storage.map(drop).map_err(|error| error.to_string()),
        }];
        // They have no life of their own: they run as long as whoever answers this.
        all.extend(
            self.components
                .iter()
                .map(|name| Component { name, health: Ok(()) }),
        );
        all.sort_by_key(|component| component.name);
        all
    }

    async fn connect(
        &self,
        ctx: &RequestContext,
        _admitted: &Admitted,
        request: ConnectRequest<'_>,
    ) -> Result<http::Response<Body>, RegistryError> {
        self.kubelets.connect(&*self.reader, ctx, request).await
    }

    async fn log(
        &self,
        ctx: &RequestContext,
        request: ConnectRequest<'_>,
    ) -> Result<http::Response<Body>, RegistryError> {
        self.kubelets.connect(&*self.reader, ctx, request).await
    }
}

fn token_error(error: TokenRequestError) -> RegistryError {
    match error {
        TokenRequestError::Invalid(errors) => invalid("authentication.k8s.io", "TokenRequest", "", errors),
        TokenRequestError::NotFound { resource, name } => RegistryError::NotFound { resource, name },
        TokenRequestError::BadRequest(message) => RegistryError::BadRequest(message),
        TokenRequestError::Conflict {
            resource,
            name,
            cause,
        } => RegistryError::conflict(&resource, &name, cause),
        TokenRequestError::Signing(_) | TokenRequestError::Unreadable(_) => {
            RegistryError::Internal(error.to_string())
        }
    }
}
