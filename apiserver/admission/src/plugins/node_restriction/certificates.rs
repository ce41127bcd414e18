//! Certificates that a node requests: its own, and those of pods that run on it, with the account they run as.

use super::{NodeRequest, NodeRestriction, Verdict, missing, refuse};
use crate::permissions::Right;
use crate::plugins::certificates::SIGNER;
use crate::{AdmissionError, Operation};
use apiserver_registry::kinds::certificates::common_name;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery_api::pod::PodView;
use machinery_schema::Tree;

/// Sign certificates of kubelets.
const KUBELET_SIGNERS: [&str; 2] = [
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/kube-apiserver-client-kubelet",
];

/// Refuses a request for the certificate of another node.
pub(super) fn signing_request(asked: NodeRequest<'_>) -> Verdict {
    let request = asked.request;
    let Some(object) = asked
        .object
        .filter(|_| request.operation == Operation::Create && request.subresource.is_empty())
        .filter(|object| KUBELET_SIGNERS.contains(&object.str_at(&SIGNER)))
    else {
        return Ok(());
    };
    let text = STANDARD
        .decode(object.str_at(&["spec", "request"]))
        .unwrap_or_default();
    let own = format!("system:node:{}", asked.node);
    match common_name(&text) {
        Err(why) => refuse(format!("unable to parse csr: {why}")),
        Ok(name) if name != own => refuse(format!("can only create a node CSR with CN={own}")),
        Ok(_) => Ok(()),
    }
}

impl NodeRestriction {
    pub(super) async fn pod_certificate(&self, asked: NodeRequest<'_>) -> Verdict {
        let request = asked.request;
        if request.operation != Operation::Create {
            return refuse(format!("unexpected operation {}", asked.operation()));
        }
        if !request.subresource.is_empty() {
            return refuse(format!("unexpected subresource {}", request.subresource));
        }
        let object = asked.written()?;
        let spec = |member: &str| object.str_at(&["spec", member]);
        let (node, pod_name) = (spec("nodeName"), spec("podName"));
        if node != asked.node {
            return refuse(format!(
                "PodCertificateRequest.Spec.NodeName={node:?}, which is not the requesting node {:?}",
                asked.node
            ));
        }
        let full_name = format!("{}/{pod_name}", request.namespace);
        self.same_node(node, spec("nodeUID"), &full_name).await?;
        let pod = self
            .stored("", "pods", "Pod", request.namespace, pod_name)
            .await?
            .ok_or_else(|| retrieving(&format!("pod {full_name:?}"), &missing("", "pod", pod_name)))?;
        let (given, own) = (spec("podUID"), &pod.found.header.uid.0);
        if given != own {
            return again(format!(
                "PodCertificateRequest for pod {full_name:?} contains pod UID ({given:?}) which differs from running pod {own:?}"
            ));
        }
        let view = PodView::new(pod.tree.root());
        runs_here(view, node, &full_name, spec("serviceAccountName"))?;
        self.same_account(asked, object, &full_name).await?;
        self.signer(asked, view, object, &full_name).await
    }

    async fn same_node(&self, node: &str, uid: &str, pod: &str) -> Verdict {
        let found = self.stored("", "nodes", "Node", "", node).await?;
        let found = found.ok_or_else(|| retrieving(&format!("node {node:?}"), &missing("", "node", node)))?;
        let own = &found.found.header.uid.0;
        if own == uid {
            return Ok(());
        }
        again(format!(
            "PodCertificateRequest for pod {pod:?} names node UID {uid:?}, inconsistent with the running node ({own:?})"
        ))
    }

    async fn same_account(&self, asked: NodeRequest<'_>, object: &Tree, pod: &str) -> Verdict {
        let namespace = asked.request.namespace;
        let name = object.str_at(&["spec", "serviceAccountName"]);
        let given = object.str_at(&["spec", "serviceAccountUID"]);
        let found = self
            .stored("", "serviceaccounts", "ServiceAccount", namespace, name)
            .await?;
        let what = format!("service account {:?}", format!("{namespace}/{name}"));
        let found = found.ok_or_else(|| retrieving(&what, &missing("", "serviceaccount", name)))?;
        let own = &found.found.header.uid.0;
        if own == given {
            return Ok(());
        }
        again(format!(
            "PodCertificateRequest for pod {pod:?} names service account UID {given:?}, which differs from the running service account ({own:?})"
        ))
    }

    /// The pod mounts a certificate of the signer, or the node has a right to request one.
    async fn signer(
        &self,
        asked: NodeRequest<'_>,
        pod: PodView<'_>,
        object: &Tree,
        full_name: &str,
    ) -> Verdict {
        let signer = object.str_at(&["spec", "signerName"]);
        let mounted = pod.projections().any(|source| {
            let certificate = source.get("podCertificate");
            certificate.is_some_and(|certificate| certificate.str("signerName") == signer)
        });
        if mounted {
            return Ok(());
        }
        let request = asked.request;
        // A resource in a rule has no slashes.
        let resource = signer.replace('/', ":");
        let right = Right {
            verb: "request-serviceaccounts-podcertificate-signer",
            group: request.group,
            resource: &resource,
            namespace: request.namespace,
            name: object.str_at(&["spec", "serviceAccountName"]),
        };
        if self.permissions.has(request.user, right).await? {
            return Ok(());
        }
        refuse(format!(
            "pod {full_name:?} does not mount a podCertificate projected volume for signer {signer:?}"
        ))
    }
}

fn runs_here(pod: PodView<'_>, node: &str, full_name: &str, account: &str) -> Verdict {
    if pod.node_name() != node {
        return refuse(format!(
            "pod {full_name:?} is not running on node {node:?} named in the PodCertificateRequest"
        ));
    }
    if pod.is_mirror() {
        return refuse(format!("pod {full_name:?} is a mirror pod"));
    }
    let own = pod.service_account();
    if own == account {
        return Ok(());
    }
    refuse(format!(
        "PodCertificateRequest for pod {full_name:?} contains serviceAccountName ({account:?}) that differs from running pod ({own:?})"
    ))
}

/// A refusal that may be over with the next try: another object of that name may be on its way.
fn again(why: String) -> Verdict {
    Err(AdmissionError::Internal(why))
}

fn retrieving(what: &str, error: &AdmissionError) -> AdmissionError {
    AdmissionError::Internal(format!(
        "while retrieving {what} named in the PodCertificateRequest: {error}"
    ))
}
