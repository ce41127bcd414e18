//! Rules about writes that are no plugins: no flag switches them off.
//!
//! Upstream has them in the stores and strategies of single kinds, with an authorizer there: [`grants`] of roles and
//! bindings, [`pod_certificates`], [`parameters`] of policies. [`unenforced`] is ours. They stand between the plugins that
//! change a write and those that only refuse it, as upstream's do.

mod grants;
mod parameters;
mod pod_certificates;
mod unenforced;

use apiserver_auth::authz::AuthorizerChain;
use apiserver_auth::authz::rbac::RbacAuthorizer;
use apiserver_registry::{Attributes, Registry, RegistryError, RequestContext};
use grants::Grants;
use machinery_meta::reader::ObjectReader;
use machinery_schema::Tree;
use parameters::Parameters;
use pod_certificates::PodCertificates;
use std::fmt;
use std::sync::Arc;
use unenforced::Unenforced;

/// See the module.
pub(crate) struct Rules {
    grants: Grants,
    pod_certificates: PodCertificates,
    parameters: Parameters,
    unenforced: Unenforced,
}

/// Parts of the server that the rules ask.
pub struct RuleParts {
    pub rbac: Arc<RbacAuthorizer>,
    pub authorizers: AuthorizerChain,
    pub reader: Arc<dyn ObjectReader>,
    pub registry: Registry,
    /// `--allow-unenforced`: objects without effect are not refused.
    pub allow_unenforced: bool,
}

impl fmt::Debug for RuleParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleParts").finish_non_exhaustive()
    }
}

impl Rules {
    pub(crate) fn new(parts: RuleParts) -> Self {
        Self {
            grants: Grants {
                rbac: parts.rbac,
                authorizers: parts.authorizers.clone(),
            },
            pod_certificates: PodCertificates(Arc::new(parts.authorizers.clone())),
            parameters: Parameters {
                authorizers: parts.authorizers,
                reader: parts.reader,
                registry: parts.registry,
            },
            unenforced: Unenforced {
                allowed: parts.allow_unenforced,
            },
        }
    }

    /// Checks a write that plugins have changed, before its validation: a grant is refused whatever else is wrong with it,
    /// as upstream does.
    pub(crate) async fn check_changed(
        &self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: &Tree,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        self.grants.check(ctx, attributes, object, old).await
    }

    /// Checks a write that is valid, before the plugins that refuse.
    pub(crate) async fn check(
        &self,
        ctx: &RequestContext,
        attributes: &Attributes,
        object: &Tree,
        old: Option<&Tree>,
    ) -> Result<(), RegistryError> {
        self.grants.check(ctx, attributes, object, old).await?;
        self.pod_certificates.check(ctx, attributes, object, old).await?;
        self.parameters.check(ctx, attributes, object, old).await?;
        self.unenforced.check(ctx, attributes, object, old)
    }
}
