//! Documents with which relying parties verify service account tokens: the discovery document and the keys.

use apiserver_auth::jwt::VerifyingKey;
use apiserver_auth::jwt::jwks::jwks;
use apiserver_endpoints::Body;
use bytes::Bytes;
use http::{HeaderValue, Response};

pub(crate) const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";
pub(crate) const JWKS_PATH: &str = "/openid/v1/jwks";

/// The two documents, made once.
#[derive(Debug)]
pub(crate) struct OpenId(Option<Documents>);

#[derive(Debug)]
struct Documents {
    configuration: Bytes,
    keys: Bytes,
}

impl OpenId {
    /// Documents of an issuer that is a URL as OpenID wants it; of another there are none, as upstream has it.
    pub(crate) fn new(issuer: &str, jwks_uri: &str, keys: &[VerifyingKey]) -> Self {
        if !issuer.starts_with("https://") || issuer.contains(['?', '#']) {
            tracing::warn!(
                issuer,
                "OpenID discovery is not served: the issuer is no https URL without query and fragment"
            );
            return Self(None);
        }
        let mut algorithms: Vec<&str> = keys.iter().map(|key| key.algorithm().name()).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        let text = |value: &str| serde_json::Value::from(value).to_string();
        let configuration = format!(
            r#"{{"issuer":{},"jwks_uri":{},"response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":{}}}"#,
            text(issuer),
            text(jwks_uri),
            serde_json::Value::from(algorithms),
        );
        Self(Some(Documents {
            configuration: configuration.into(),
            keys: jwks(keys).into(),
        }))
    }

    pub(crate) fn answer(&self, path: &str) -> Option<Response<Body>> {
        let documents = self.0.as_ref()?;
        let (body, form) = match path {
            CONFIGURATION_PATH => (&documents.configuration, "application/json"),
            JWKS_PATH => (&documents.keys, "application/jwk-set+json"),
            _ => return None,
        };
        let mut response = Response::new(Body::from(body.clone()));
        let headers = response.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(form));
        headers.insert(
            http::header::CACHE_CONTROL,
            HeaderValue::from_static("public, max-age=3600"),
        );
        Some(response)
    }
}
