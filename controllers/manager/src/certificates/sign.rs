//! Certificates for approved requests (upstream's `csrsigning`).

use super::live::{LiveRequest, NewCondition, usages_of};
use super::view::RequestView;
use super::{API_CLIENT, KUBELET_CLIENT, KUBELET_SERVING, SERVICE_ACCOUNT, recognize, requests};
use crate::config::Config;
use crate::context::{CertificateOf, CertificateSigner, ControllerContext};
use crate::descriptor::ControllerDescriptor;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use machinery_client::{Client, ClientError, Informer};
use machinery_meta::ObjectKey;
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use machinery_x509::CertificateRequest;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "certificatesigningrequest-signing-controller",
    queue: "certificate",
    service_account: SERVICE_ACCOUNT,
    default: true,
    start,
};

const SIGNERS: [&str; 3] = [API_CLIENT, KUBELET_CLIENT, KUBELET_SERVING];
/// The group that may do everything.
const MASTERS: &str = "system:masters";
/// No shorter life is given.
const SHORTEST: Duration = Duration::from_secs(600);

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let Some(sign) = context.certificate_signer.clone() else {
        tracing::info!("no signing request is signed: there is no authority to sign with");
        return Box::pin(std::future::pending());
    };
    let requests = requests(context);
    let controller = ROW.controller(&context.runtime).watches(&requests, |change| {
        let waiting = change.new.as_ref().filter(|own| is_ours(own));
        waiting.map(|own| own.key().clone())
    });
    controller.run(Signer {
        client: context.client(ROW.service_account),
        runtime: context.runtime.clone(),
        config: Arc::clone(&context.config),
        requests,
        sign,
    })
}

fn is_ours(request: &RequestView) -> bool {
    request.waits_for_signer() && SIGNERS.contains(&&*request.signer)
}

struct Signer {
    client: Client,
    runtime: Runtime,
    config: Arc<Config>,
    requests: Informer<RequestView>,
    sign: CertificateSigner,
}

impl Reconciler for Signer {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            if !self.requests.get(key).is_some_and(|own| is_ours(&own)) {
                return Ok(Outcome::Done);
            }
            let live = LiveRequest::read(&self.client, key).await;
            let live = live.map_err(ReconcileError::doing("reading a signing request"))?;
            let Some(live) = live.filter(waits) else {
                return Ok(Outcome::Done);
            };
            let written = match checked(&live.request.spec, &self.config.api_server_names) {
                Err(why) => self.fail(key, &live, &why).await,
                Ok(()) => {
                    let signed = self.signed(&live.request.spec);
                    let certificate = json!(STANDARD.encode(signed.map_err(ReconcileError::Unusable)?));
                    live.put(&self.client, key, "status", "certificate", &certificate)
                        .await
                }
            };
            match written {
                // Then there is another event.
                Err(error) if error.is_conflict() || error.is_not_found() => Ok(Outcome::Done),
                other => other
                    .map(|()| Outcome::Done)
                    .map_err(ReconcileError::doing("writing the status of a signing request")),
            }
        })
    }
}

fn waits(live: &LiveRequest) -> bool {
    live.has("Approved") && !live.has("Denied") && !live.has("Failed") && !live.has_certificate()
}

/// The problem for which there will be no certificate, in upstream's words.
pub(super) fn checked(
    spec: &CertificateSigningRequestSpec,
    api_server_names: &BTreeSet<String>,
) -> Result<(), String> {
    let request = CertificateRequest::from_pem(&spec.request.0).map_err(|error| error.to_string())?;
    if spec.signer_name == KUBELET_SERVING && recognize::is_of_api_server(&request, api_server_names) {
        return Err("subjectAltNames of the API server are not allowed".to_owned());
    }
    // Refused at the request's creation already; no user becomes a master by what this signs.
    if spec.signer_name == API_CLIENT && request.organizations.iter().any(|own| own == MASTERS) {
        return Err(format!(
            "use of {API_CLIENT} signer with {MASTERS} group is not allowed"
        ));
    }
    match recognize::problem(&spec.signer_name, &request, usages_of(spec)) {
        Ok(Some(problem)) => Err(problem),
        Ok(None) | Err(()) => Ok(()),
    }
}

/// The life of a certificate: the requested one, between the shortest and that of `--cluster-signing-duration`.
pub(super) fn lifetime(requested_seconds: Option<i32>, longest: Duration) -> Duration {
    let Some(requested) = requested_seconds else {
        return longest;
    };
    let requested = Duration::from_secs(u64::try_from(requested).unwrap_or_default());
    requested.max(SHORTEST).min(longest)
}

impl Signer {
    fn signed(&self, spec: &CertificateSigningRequestSpec) -> Result<String, String> {
        (self.sign)(CertificateOf {
            request: &spec.request.0,
            usages: usages_of(spec),
            lifetime: lifetime(spec.expiration_seconds, self.config.cluster_signing_duration),
        })
    }

    async fn fail(&self, key: &ObjectKey, live: &LiveRequest, why: &str) -> Result<(), ClientError> {
        let condition = NewCondition {
            kind: "Failed",
            reason: "SignerValidationFailure",
            message: why,
        };
        live.add(&self.client, key, "status", condition, self.runtime.now())
            .await
    }
}
