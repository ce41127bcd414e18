//! What relying parties need to verify service account tokens: the discovery document and the keys.

use apiserver_auth::jwt::VerifyingKey;
use apiserver_auth::jwt::keys::jwks;
use apiserver_endpoints::Body;
use bytes::Bytes;
use http::{HeaderValue, Response};

pub(crate) const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";
pub(crate) const JWKS_PATH: &str = "/openid/v1/jwks";

/// Both documents, made once.
#[derive(Debug)]
pub(crate) struct OpenId {
    configuration: Bytes,
    keys: Bytes,
}

impl OpenId {
    pub(crate) fn new(issuer: &str, external: &str, keys: &[VerifyingKey]) -> Self {
        let mut algorithms: Vec<&str> = keys.iter().map(VerifyingKey::algorithm).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        let text = |value: String| serde_json::Value::from(value).to_string();
        let configuration = format!(
            r#"{{"issuer":{},"jwks_uri":{},"response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":{}}}"#,
            text(issuer.to_owned()),
            text(format!("{external}{JWKS_PATH}")),
            serde_json::Value::from(algorithms),
        );
        Self {
            configuration: configuration.into(),
            keys: jwks(keys).into(),
        }
    }

    pub(crate) fn answer(&self, path: &str) -> Option<Response<Body>> {
        let (body, form) = match path {
            CONFIGURATION_PATH => (&self.configuration, "application/json"),
            JWKS_PATH => (&self.keys, "application/jwk-set+json"),
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
