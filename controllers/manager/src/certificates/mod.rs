//! Decides on signing requests of kubelets, signs requests that are approved, and deletes those that have served their purpose.
//!
//! Watches: CertificateSigningRequests. [`approve`] asks the API server, by a SubjectAccessReview, whether the requestor may
//! have the certificate without an administrator's decision. [`sign`] writes the certificate, or why there will be none; the authority's
//! key stays with the server. [`clean`] deletes by age. Before any write the live request is read once more.
//!
//! Never here: a decision on a request that is decided, and requests for other signers.

mod approve;
mod clean;
mod clean_pod_requests;
mod live;
mod recognize;
mod sign;
#[cfg(test)]
mod tests;
pub(crate) mod view;

pub(crate) use approve::ROW as APPROVING_ROW;
pub(crate) use clean::ROW as CLEANER_ROW;
pub(crate) use clean_pod_requests::ROW as POD_CLEANER_ROW;
pub(crate) use sign::ROW as SIGNING_ROW;

use crate::context::ControllerContext;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use machinery_client::Informer;
use view::RequestView;

/// The account of all three, as upstream's.
const SERVICE_ACCOUNT: &str = "certificate-controller";

/// Signs certificates that the API server takes for users.
const API_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Signs certificates by which kubelets are clients of the API server.
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signs certificates that kubelets serve.
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

fn requests(context: &ControllerContext) -> Informer<RequestView> {
    context.informers.of::<CertificateSigningRequest, _>()
}
