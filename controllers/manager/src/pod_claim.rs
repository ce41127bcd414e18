//! Pods that come to an owner and leave it, as upstream's `PodControllerRefManager` has it.
//!
//! A pod without a controller that the owner's selector selects is adopted, an own one that it selects no more is released.
//! Each of them is tried, whatever becomes of the others; one that is gone meanwhile is no failure.

use crate::pod_control::{PodControl, still_staying};
use crate::views::PodView;
use machinery_client::{ApiResource, ClientError, Object};
use machinery_meta::{ObjectHeader, Uid};
use machinery_reconcile::{ObjectReference, ReconcileError};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Pods that come to an owner and that leave it.
#[derive(Debug)]
pub struct PodClaim<'a> {
    /// Kind of the owner.
    pub kind: &'a ApiResource,
    /// The owner.
    pub owner: &'a ObjectHeader,
    /// Pods that come.
    pub adopt: &'a [Arc<Object<PodView>>],
    /// Pods that leave.
    pub release: &'a [Arc<Object<PodView>>],
    /// Finalizer that comes and goes with the owner.
    pub finalizer: Option<&'static str>,
}

impl PodControl {
    /// Adopts and releases; before the first adoption the live owner is read: it must exist and not be deleted. Returns
    /// the uids of those that were to be adopted and are gone.
    ///
    /// # Errors
    /// The first failure, once all were tried.
    pub async fn claim(
        &self,
        claim: &PodClaim<'_>,
        about: &ObjectReference,
    ) -> Result<BTreeSet<Uid>, ReconcileError> {
        let stays = match claim.adopt {
            [] => Ok(()),
            _ => still_staying(self.client(), claim.kind, claim.owner).await,
        };
        let coming = if stays.is_ok() { claim.adopt } else { &[] };
        let (mut gone, mut failed) = (BTreeSet::new(), None);
        for pod in coming {
            match self.patch(pod, adoption(about, claim.finalizer)).await {
                Err(error) if error.is_not_found() => drop(gone.insert(pod.uid().clone())),
                Err(error) => failed = failed.or(Some(("adopting a pod", error))),
                Ok(()) => {}
            }
        }
        for pod in claim.release {
            match self.patch(pod, release(about, claim.finalizer)).await {
                // Gone, or recreated under the name: it is not the owner's either way.
                Err(error) if error.is_not_found() || error.is_invalid() || error.is_conflict() => {}
                Err(error) => failed = failed.or(Some(("releasing a pod", error))),
                Ok(()) => {}
            }
        }
        stays?;
        match failed {
            Some((doing, first)) => Err(ReconcileError::doing(doing)(first)),
            None => Ok(gone),
        }
    }

    /// Patches metadata of a pod, which must still be the one that was seen.
    async fn patch(&self, pod: &Object<PodView>, mut metadata: Value) -> Result<(), ClientError> {
        metadata["uid"] = json!(pod.uid().0);
        self.patch_strategic(pod, &json!({"metadata": metadata})).await
    }
}

fn adoption(owner: &ObjectReference, finalizer: Option<&str>) -> Value {
    let mut metadata = json!({"ownerReferences": [{
        "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.key.name, "uid": owner.uid,
        "controller": true, "blockOwnerDeletion": true,
    }]});
    if let Some(finalizer) = finalizer {
        metadata["finalizers"] = json!([finalizer]);
    }
    metadata
}

fn release(owner: &ObjectReference, finalizer: Option<&str>) -> Value {
    let mut metadata = json!({"ownerReferences": [{"$patch": "delete", "uid": owner.uid}]});
    if let Some(finalizer) = finalizer {
        metadata["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
    }
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_control::reference;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use machinery_client::Client;
    use machinery_client::object::object_of;
    use machinery_reconcile::EventRecorder;
    use machinery_runtime::Runtime;
    use parking_lot::Mutex;

    fn pod(name: &str) -> Arc<Object<PodView>> {
        let json = json!({"metadata": {"name": name, "namespace": "n", "uid": name}});
        Arc::new(object_of(&json.to_string()).unwrap())
    }

    /// The answer to a claim of pods that come and leave, and the requests in order: a pod's name starts with the code with which its
    /// patch is answered.
    async fn claimed(
        live: &str,
        adopt: &[&str],
        release: &[&str],
    ) -> (Result<BTreeSet<Uid>, ReconcileError>, Vec<String>) {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (own, live) = (requests.clone(), live.to_owned());
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (path, own, live) = (request.uri().path().to_owned(), own.clone(), live.clone());
            async move {
                let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                let code = name.get(..3).and_then(|code| code.parse().ok()).unwrap_or(200);
                let reason = match code {
                    404 => "NotFound",
                    409 => "Conflict",
                    422 => "Invalid",
                    _ => "Forbidden",
                };
                let answer = match code {
                    200 => json!({"metadata": {"name": name, "uid": live, "resourceVersion": "7"}}),
                    _ => json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason}),
                };
                own.lock().push(name);
                let body = http_body_util::Full::new(bytes::Bytes::from(answer.to_string()));
                let answer = http::Response::builder().status(code).body(body);
                Ok::<_, std::io::Error>(answer.unwrap())
            }
        });
        let client = Client::new(kube::Client::new(service, "default"), Runtime::real());
        let control = PodControl::new(client.clone(), EventRecorder::new(client, "test"));
        let set = json!({"metadata": {"name": "set", "namespace": "n", "uid": "set"}});
        let set = object_of::<()>(&set.to_string()).unwrap();
        let kind = ApiResource::of::<ReplicaSet>();
        let pods = |names: &[&str]| names.iter().map(|name| pod(name)).collect::<Vec<_>>();
        let claim = PodClaim {
            kind: &kind,
            owner: &set.header,
            adopt: &pods(adopt),
            release: &pods(release),
            finalizer: None,
        };
        let done = control.claim(&claim, &reference(&kind, &set.header)).await;
        let requests = std::mem::take(&mut *requests.lock());
        (done, requests)
    }

    #[tokio::test]
    async fn pods_that_are_gone_are_not_adopted_and_no_failure() {
        let (done, requests) =
            claimed("set", &["404-a", "200-b"], &["404-c", "409-d", "422-e", "200-f"]).await;
        assert_eq!(done.unwrap(), BTreeSet::from([Uid("404-a".to_owned())]));
        assert_eq!(
            requests,
            ["set", "404-a", "200-b", "404-c", "409-d", "422-e", "200-f"]
        );
        let (done, requests) = claimed("set", &[], &["200-f"]).await;
        assert!(done.unwrap().is_empty());
        assert_eq!(requests, ["200-f"], "the owner is asked about adoptions alone");
    }

    #[tokio::test]
    async fn pods_are_claimed_though_another_could_not_be() {
        let (done, requests) = claimed("set", &["403-a", "200-b"], &["403-c", "200-d"]).await;
        assert_eq!(done.unwrap_err().to_string(), "adopting a pod");
        assert_eq!(requests, ["set", "403-a", "200-b", "403-c", "200-d"]);
        // Another set of the name adopts nothing, and releases all the same.
        let (done, requests) = claimed("other", &["200-b"], &["200-d"]).await;
        assert!(done.unwrap_err().to_string().contains("adopts nothing"));
        assert_eq!(requests, ["set", "200-d"]);
    }
}
