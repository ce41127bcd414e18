//! A request as the server has it now, and the writes of its status.

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use machinery_client::client::decode;
use machinery_client::{ApiResource, Client, ClientError, Edit};
use machinery_meta::ObjectKey;
use serde_json::{Value, json};

use crate::views::seconds;

/// See the module.
pub(super) struct LiveRequest {
    json: Vec<u8>,
    pub(super) request: CertificateSigningRequest,
}

/// The usages that a certificate is requested for.
pub(super) fn usages_of(spec: &CertificateSigningRequestSpec) -> &[String] {
    spec.usages.as_deref().unwrap_or_default()
}

/// A condition to be added.
pub(super) struct NewCondition<'a> {
    pub(super) kind: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: &'a str,
}

impl LiveRequest {
    /// `None` where it is gone.
    pub(super) async fn read(client: &Client, key: &ObjectKey) -> Result<Option<Self>, ClientError> {
        let resource = ApiResource::of::<CertificateSigningRequest>();
        match client.get(&resource, key).await {
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
            Ok(json) => Ok(Some(Self {
                request: decode(&resource.kind, &json)?,
                json: json.to_vec(),
            })),
        }
    }

    pub(super) fn has(&self, condition: &str) -> bool {
        let status = self.request.status.as_ref();
        let all = status.and_then(|status| status.conditions.as_ref());
        all.is_some_and(|all| all.iter().any(|own| own.type_ == condition))
    }

    pub(super) fn has_certificate(&self) -> bool {
        let status = self.request.status.as_ref();
        let certificate = status.and_then(|status| status.certificate.as_ref());
        certificate.is_some_and(|own| !own.0.is_empty())
    }

    /// Writes one condition more through a subresource.
    pub(super) async fn add(
        &self,
        client: &Client,
        key: &ObjectKey,
        subresource: &str,
        condition: NewCondition<'_>,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        let stored: Value = decode("a signing request", &self.json)?;
        let mut conditions = stored["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        conditions.push(json!({
            "type": condition.kind, "status": "True", "reason": condition.reason,
            "message": condition.message, "lastUpdateTime": seconds(now),
        }));
        self.put(client, key, subresource, "conditions", &json!(conditions))
            .await
    }

    /// Writes one field of the status.
    pub(super) async fn put(
        &self,
        client: &Client,
        key: &ObjectKey,
        subresource: &str,
        field: &str,
        value: &Value,
    ) -> Result<(), ClientError> {
        let resource = ApiResource::of::<CertificateSigningRequest>();
        let mut edit = Edit::of(&resource, &self.json)?;
        edit.set_in("status", field, value)?;
        client
            .update(&resource, key, subresource, edit.body())
            .await
            .map(drop)
    }
}
