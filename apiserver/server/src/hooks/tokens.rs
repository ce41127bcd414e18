//! Tokens of service accounts, by the issuer's key.

use super::ServerHooks;
use super::objects::{invalid, spec_json, with_members};
use apiserver_auth::token_request::{Account, TokenRequestError, TokenRequestSpec};
use apiserver_endpoints::Tokens;
use apiserver_registry::{Admitted, RegistryError, RequestContext};
use async_trait::async_trait;
use machinery_schema::Tree;

#[async_trait]
impl Tokens for ServerHooks {
    async fn complete(&self, ctx: &RequestContext, request: Tree) -> Result<Tree, RegistryError> {
        let mut spec = read_spec(&request)?;
        self.issuer.complete(&mut spec).map_err(token_error)?;
        let spec = write_spec(&spec)?;
        let mut request = with_members(&request, &[("spec", &spec), ("status", "{}")])?;
        let now = ctx.runtime.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        request.set_str(&["metadata", "creationTimestamp"], &now);
        Ok(request)
    }

    async fn token(
        &self,
        ctx: &RequestContext,
        _admitted: &Admitted,
        service_account: &Tree,
        object: Tree,
    ) -> Result<Tree, RegistryError> {
        let spec = read_spec(&object)?;
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
        let requested = spec.expiration_seconds.unwrap_or(issued.expiration_seconds);
        if requested > issued.expiration_seconds {
            ctx.warnings.add(format!(
                "requested expiration of {requested} seconds shortened to {} seconds",
                issued.expiration_seconds
            ));
        }
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
        let spec = write_spec(&spec)?;
        let mut object = with_members(&object, &[("spec", &spec), ("status", &status)])?;
        for (member, value) in [
            ("name", account.name),
            ("namespace", account.namespace),
            ("uid", account.uid),
        ] {
            object.set_str(&["metadata", member], value);
        }
        Ok(object)
    }
}

fn read_spec(request: &Tree) -> Result<TokenRequestSpec, RegistryError> {
    serde_json::from_str(&spec_json(request)).map_err(|error| RegistryError::BadRequest(error.to_string()))
}

fn write_spec(spec: &TokenRequestSpec) -> Result<String, RegistryError> {
    serde_json::to_string(spec).map_err(|error| RegistryError::Internal(error.to_string()))
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
