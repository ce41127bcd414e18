//! OwnerReferencesPermissionEnforcement: a user changes the owners of an object with the right to delete it, and sets a
//! reference that keeps its owner from being deleted with the right to set the owner's finalizers. Off by default, as upstream's.

use crate::{AdmissionError, Host, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use machinery_cel::{Check, Decision};
use machinery_schema::{Ref, Tree};

const OWNERS: [&str; 2] = ["metadata", "ownerReferences"];

pub(super) struct OwnerReferencesPermissionEnforcement;

fn owners(object: &Tree) -> impl Iterator<Item = Ref<'_>> {
    object.at(&OWNERS).into_iter().flat_map(Ref::items)
}

fn blocks(owner: Ref<'_>) -> bool {
    owner.get("blockOwnerDeletion").and_then(Ref::as_bool) == Some(true)
}

/// References that block from now on.
fn newly_blocking<'a>(object: &'a Tree, old: Option<&Tree>) -> Vec<Ref<'a>> {
    // The last of several with one uid counts, as in upstream's index.
    let old: std::collections::HashMap<&str, bool> = old
        .into_iter()
        .flat_map(owners)
        .map(|owner| (owner.str("uid"), blocks(owner)))
        .collect();
    let blocking = owners(object).filter(|owner| blocks(*owner));
    blocking
        .filter(|owner| old.get(owner.str("uid")) != Some(&true))
        .collect()
}

/// The end of a refusal, as Go prints reason and error.
fn why(decision: &Decision) -> String {
    let error = decision.error.as_deref().unwrap_or("<nil>");
    format!("{}, {error}", decision.reason)
}

async fn check_delete(request: &Request<'_>, host: &dyn Host) -> Result<(), AdmissionError> {
    let check = Check {
        group: request.group.to_owned(),
        resource: request.resource.to_owned(),
        subresource: request.subresource.to_owned(),
        namespace: request.namespace.to_owned(),
        name: request.name.to_owned(),
        ..Check::default()
    };
    let decision = host.authorize(None, &check, "delete").await?;
    match decision.allowed {
        true => Ok(()),
        false => Err(AdmissionError::forbidden(format!(
            "cannot set an ownerRef on a resource you can't delete: {}",
            why(&decision)
        ))),
    }
}

fn finalizers(group: &str, resource: &str, namespace: &str, name: &str) -> Check {
    Check {
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: "finalizers".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Check::default()
    }
}

/// Group and version of a reference.
fn group_version(api_version: &str) -> Result<(&str, &str), String> {
    match *api_version.split('/').collect::<Vec<_>>().as_slice() {
        [version] => Ok(("", version)),
        [group, version] => Ok((group, version)),
        _ => Err(format!("unexpected GroupVersion string: {api_version}")),
    }
}

async fn check_finalizers(
    request: &Request<'_>,
    host: &dyn Host,
    owner: Ref<'_>,
) -> Result<(), AdmissionError> {
    let (api_version, kind) = (owner.str("apiVersion"), owner.str("kind"));
    let unknown = |why: String| {
        AdmissionError::forbidden(format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind \
             {kind}: {why}"
        ))
    };
    let (group, version) = group_version(api_version).map_err(unknown)?;
    let resources = host.resources_of_kind(group, version, kind);
    if resources.is_empty() {
        return Err(unknown(format!(
            "no matches for kind {kind:?} in version {api_version:?}"
        )));
    }
    for (resource, is_namespaced) in resources {
        let namespace = if is_namespaced { request.namespace } else { "" };
        let check = finalizers(&resource.group, &resource.resource, namespace, owner.str("name"));
        let decision = host.authorize(None, &check, "update").await?;
        if !decision.allowed {
            return Err(AdmissionError::forbidden(format!(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {}",
                why(&decision)
            )));
        }
    }
    Ok(())
}

#[async_trait]
impl Plugin for OwnerReferencesPermissionEnforcement {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Create, Operation::Update]
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        // A pod's status changes no owners.
        let is_status = (request.group, request.resource, request.subresource) == ("", "pods", "status");
        matches!(request.operation, Operation::Create | Operation::Update) && !is_status
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let (Some(object), Some(host)) = (object, request.host) else {
            return Ok(());
        };
        let had = old.into_iter().flat_map(owners);
        if owners(object).eq(had) {
            return Ok(());
        }
        if request.operation != Operation::Create {
            check_delete(request, host).await?;
        }
        let blocking = newly_blocking(object, old);
        if blocking.is_empty() {
            return Ok(());
        }
        let everywhere = finalizers("*", "*", "", "*");
        if host.authorize(None, &everywhere, "update").await?.allowed {
            return Ok(());
        }
        for owner in blocking {
            check_finalizers(request, host, owner).await?;
        }
        Ok(())
    }
}
