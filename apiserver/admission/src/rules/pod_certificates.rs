//! PodCertificateRequests: their status is written by users who may sign for their signer. Upstream asks in the
//! strategy of the kind, so that the refusal is its validation's.

use crate::permissions::Permissions;
use crate::plugins::certificates::{GROUP, SIGNER, may_act_for};
use crate::refusals::refused;
use apiserver_registry::{Attributes, RegistryError, RequestContext};
use machinery_meta::{FieldError, FieldPath};
use machinery_schema::Tree;
use std::sync::Arc;

const RESOURCE: &str = "podcertificaterequests";

/// The check of their status.
pub(super) struct PodCertificates(pub(super) Arc<dyn Permissions>);

impl PodCertificates {
    /// Refuses a changed status of a user who may not sign; other objects pass.
    pub(super) async fn check(
        &self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: &Tree,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        let resource = &attributes.resource;
        let is_status = (&*resource.group, &*resource.resource) == (GROUP, RESOURCE)
            && attributes.subresource == "status";
        let changed = || old.is_none_or(|old| old.at(&["status"]) != object.at(&["status"]));
        if !is_status || !changed() {
            return Ok(());
        }
        // The permission of a request is decided by what it was created with.
        let signer = old.unwrap_or(object).str_at(&SIGNER);
        let allowed = may_act_for(&*self.0, &ctx.user, "sign", signer).await;
        if allowed.map_err(|error| refused(error, attributes, Some(object)))? {
            return Ok(());
        }
        let path = FieldPath::new("spec").child("signerName");
        let user = &ctx.user.name;
        let detail = format!("User {user:?} is not permitted to \"sign\" for signer {signer:?}");
        Err(RegistryError::Invalid {
            kind: attributes.kind.group_kind(),
            name: object.str_at(&["metadata", "name"]).to_owned(),
            errors: vec![FieldError::forbidden(&path, detail)],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AdmissionError;
    use crate::permissions::Right;
    use apiserver_registry::OperationOptions;
    use async_trait::async_trait;
    use machinery_meta::{GroupVersionKind, GroupVersionResource, Operation, UserInfo};
    use machinery_runtime::Runtime;

    /// The right to sign for a signer, or a domain's; without one nothing is decided.
    struct Signing(Option<&'static str>);

    #[async_trait]
    impl Permissions for Signing {
        async fn has(&self, _: &UserInfo, right: Right<'_>) -> Result<bool, AdmissionError> {
            let own = self.0.ok_or(AdmissionError::Busy)?;
            Ok((right.verb, right.resource, right.name) == ("sign", "signers", own))
        }
    }

    async fn check(of: Signing, subresource: &str, old: &str, new: &str) -> Result<(), RegistryError> {
        let attributes = Attributes {
            operation: Operation::Update,
            kind: GroupVersionKind::new(GROUP, "v1", "PodCertificateRequest"),
            resource: GroupVersionResource {
                group: GROUP.to_owned(),
                version: "v1".to_owned(),
                resource: RESOURCE.to_owned(),
            },
            built_in: None,
            subresource: subresource.to_owned(),
            namespace: "default".to_owned(),
            name: "x".to_owned(),
            addressed: true,
            dry_run: false,
            options: OperationOptions::None,
        };
        let tree = |status: &str| {
            let text = format!(
                r#"{{"metadata":{{"name":"x"}},"spec":{{"signerName":"a.io/s"}},"status":{status}}}"#
            );
            Tree::from_json(&text).unwrap()
        };
        let user = UserInfo::named("carol", [UserInfo::AUTHENTICATED]);
        let ctx = RequestContext::internal(user, Runtime::real());
        let rule = PodCertificates(Arc::new(of));
        rule.check(&ctx, &attributes, &tree(new), Some(&tree(old))).await
    }

    const SIGNED: &str = r#"{"certificateChain":"x"}"#;

    #[tokio::test]
    async fn pod_certificate_is_signed_by_those_who_may() {
        for signer in ["a.io/s", "a.io/*"] {
            check(Signing(Some(signer)), "status", "{}", SIGNED)
                .await
                .unwrap();
        }
        let refused = check(Signing(Some("b.io/*")), "status", "{}", SIGNED).await;
        let Err(RegistryError::Invalid { errors, .. }) = refused else {
            panic!("{refused:?}");
        };
        let said =
            r#"spec.signerName: Forbidden: User "carol" is not permitted to "sign" for signer "a.io/s""#;
        assert_eq!(errors[0].to_string(), said);
        let undecided = check(Signing(None), "status", "{}", SIGNED).await;
        assert!(
            matches!(undecided, Err(RegistryError::TooManyRequests { .. })),
            "{undecided:?}"
        );
    }

    #[tokio::test]
    async fn pod_certificate_whose_status_stays_needs_no_right() {
        check(Signing(None), "status", SIGNED, SIGNED).await.unwrap();
        check(Signing(None), "", "{}", SIGNED).await.unwrap();
    }
}
