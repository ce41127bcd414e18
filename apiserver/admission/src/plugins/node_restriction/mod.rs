//! NodeRestriction: a node's agent writes only about its own node and about pods bound to it (upstream's plugin of that
//! name in 1.37, with its default feature gates; what it takes and this one refuses is in decisions 0102 and 0126).

mod certificates;
mod nodes;
mod pods;
mod slices;
mod tokens;

#[cfg(test)]
mod tests;

use super::objects::find;
use crate::permissions::Permissions;
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_api::read_stored;
use machinery_meta::GroupResource;
use machinery_meta::reader::{ObjectReader, ReadObject};
use machinery_schema::Tree;
use std::sync::Arc;

const LEASE_NAMESPACE: &str = "kube-node-lease";

pub(super) struct NodeRestriction {
    reader: Arc<dyn ObjectReader>,
    permissions: Arc<dyn Permissions>,
}

/// One request of a node.
#[derive(Clone, Copy)]
struct NodeRequest<'a> {
    node: &'a str,
    request: &'a Request<'a>,
    object: Option<&'a Tree>,
    old: Option<&'a Tree>,
}

type Verdict = Result<(), AdmissionError>;

fn refuse(why: impl Into<String>) -> Verdict {
    Err(AdmissionError::forbidden(why))
}

impl NodeRequest<'_> {
    fn operation(&self) -> &'static str {
        self.request.operation.as_str()
    }

    /// The name in the address, or that of the object where the address has none yet.
    fn name(&self) -> &str {
        match self.object {
            Some(object) if self.request.name.is_empty() => object.str_at(&["metadata", "name"]),
            _ => self.request.name,
        }
    }

    /// The object and what it replaces; admission of another operation refuses.
    fn update(&self) -> Result<(&Tree, &Tree), AdmissionError> {
        match (self.request.operation, self.object, self.old) {
            (Operation::Update, Some(object), Some(old)) => Ok((object, old)),
            _ => Err(AdmissionError::forbidden(format!(
                "unexpected operation {:?}",
                self.operation()
            ))),
        }
    }

    fn written(&self) -> Result<&Tree, AdmissionError> {
        self.object
            .ok_or_else(|| AdmissionError::forbidden("the request has no object"))
    }
}

/// Reports whether a member is equal in both objects; an empty member equals an absent one.
fn same(object: &Tree, old: &Tree, path: &[&str]) -> bool {
    let of = |tree: &Tree| {
        let value = tree.at(path)?.to_json();
        (!matches!(value.as_str(), "null" | "[]" | "{}")).then_some(value)
    };
    of(object) == of(old)
}

/// A stored object with what its header says.
struct Stored {
    found: ReadObject,
    tree: Tree,
}

impl NodeRestriction {
    pub(super) fn new(reader: &Arc<dyn ObjectReader>, permissions: &Arc<dyn Permissions>) -> Self {
        Self {
            reader: Arc::clone(reader),
            permissions: Arc::clone(permissions),
        }
    }

    /// A stored object of group version v1; what cannot be read is refused.
    async fn stored(
        &self,
        group: &str,
        resource: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Stored>, AdmissionError> {
        let Some(found) = find(&*self.reader, group, resource, namespace, name).await? else {
            return Ok(None);
        };
        match read_stored(group, "v1", kind, &found.json) {
            Ok(tree) => Ok(Some(Stored { found, tree })),
            Err(error) => Err(AdmissionError::forbidden(error.to_string())),
        }
    }

    async fn pod(&self, namespace: &str, name: &str) -> Result<Stored, AdmissionError> {
        let found = self.stored("", "pods", "Pod", namespace, name).await?;
        found.ok_or_else(|| missing("", "pod", name))
    }

    async fn check(&self, asked: NodeRequest<'_>) -> Verdict {
        let request = asked.request;
        match (request.group, request.resource) {
            ("", "pods") => match request.subresource {
                "" => self.pod_itself(asked).await,
                "status" => pods::status(asked),
                "eviction" => self.eviction(asked).await,
                other => refuse(format!(
                    "unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"
                )),
            },
            ("", "nodes") => nodes::node(asked),
            ("", "persistentvolumeclaims") if request.subresource == "status" => {
                pods::volume_claim_status(asked)
            }
            ("", "persistentvolumeclaims") => refuse("may only update PVC status"),
            ("", "serviceaccounts") => self.service_account(asked).await,
            ("certificates.k8s.io", "certificatesigningrequests") => certificates::signing_request(asked),
            ("certificates.k8s.io", "podcertificaterequests") => self.pod_certificate(asked).await,
            ("coordination.k8s.io", "leases") => nodes::lease(asked),
            ("storage.k8s.io", "csinodes") => nodes::csi_node(asked),
            ("resource.k8s.io", "resourceslices") => self.resource_slice(asked).await,
            _ => Ok(()),
        }
    }
}

/// The error for an absent object, in the words of upstream's listers.
fn missing(group: &str, singular: &str, name: &str) -> AdmissionError {
    AdmissionError::NotFound {
        resource: GroupResource::new(group, singular),
        name: name.to_owned(),
    }
}

#[async_trait]
impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Admit]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update, Operation::Delete]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.operation != Operation::Connect && request.user.node_name().is_some()
    }

    /// Looks before other plugins change anything: what a mirror pod names is what its node wrote.
    async fn mutate(&self, request: &Request<'_>, object: &mut Tree, old: Option<&Tree>) -> Verdict {
        self.ask(request, Some(object), old).await
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Tree>, old: Option<&Tree>) -> Verdict {
        // Writes were looked at before they were changed by others.
        if request.operation == Operation::Delete {
            self.ask(request, object, old).await
        } else {
            Ok(())
        }
    }
}

impl NodeRestriction {
    async fn ask(&self, request: &Request<'_>, object: Option<&Tree>, old: Option<&Tree>) -> Verdict {
        let Some(node) = request.user.node_name().filter(|node| !node.is_empty()) else {
            return refuse(format!(
                "could not determine node from user {:?}",
                request.user.name
            ));
        };
        self.check(NodeRequest {
            node,
            request,
            object,
            old,
        })
        .await
    }
}
