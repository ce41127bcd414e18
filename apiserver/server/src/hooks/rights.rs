//! Rights beyond the request's own, by the authorizers.

use super::ServerHooks;
use crate::filters::authorization::decided;
use apiserver_auth::authz::Attributes;
use apiserver_auth::authz::attributes::{AttributesTarget, ResourceTarget};
use apiserver_endpoints::{RequestInfo, Rights};
use apiserver_registry::{RegistryError, RequestContext};
use async_trait::async_trait;

#[async_trait]
impl Rights for ServerHooks {
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
            asker: None,
            user: &ctx.user,
            verb,
            target,
        };
        let decision = self.reviewer.authorizers.authorize(&attributes).await;
        decided(&attributes, decision)
    }
}
