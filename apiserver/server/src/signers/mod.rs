//! Rights on signers: approval, signing and attestation (upstream's admission plugins CertificateApproval,
//! CertificateSigning, CertificateSubjectRestriction and ClusterTrustBundleAttest, the part of NodeRestriction that
//! reads requests, and the strategy of PodCertificateRequests).
//!
//! Writing the object is one right, acting for the signer it names another: a verb on `signers` by the signer's name,
//! or by its domain with `/*`. No user gets the certificate of a cluster's master by a request for it.

use apiserver_auth::authz::attributes::ResourceTarget;
use apiserver_auth::authz::{Attributes as AuthzAttributes, AttributesTarget, AuthorizerChain, Busy};
use apiserver_registry::kinds::certificates::{common_name, organizations};
use apiserver_registry::{Attributes, Operation, RegistryError, RequestContext};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery_meta::{FieldError, FieldPath, UserInfo};
use machinery_schema::Tree;

const GROUP: &str = "certificates.k8s.io";
/// Signs certificates that the API server takes for users.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Sign certificates of kubelets.
const KUBELET_SIGNERS: [&str; 2] = [
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/kube-apiserver-client-kubelet",
];
const MASTERS: &str = "system:masters";
const SIGNER: [&str; 2] = ["spec", "signerName"];

/// Refuses a write by a user who may not speak for the signer.
///
/// # Errors
/// [`RegistryError::Forbidden`], of PodCertificateRequests [`RegistryError::Invalid`]; too busy to decide.
pub(crate) async fn check(
    authorizers: &AuthorizerChain,
    ctx: &RequestContext,
    attributes: &Attributes,
    object: &Tree,
    old: Option<&Tree>,
) -> Result<(), RegistryError> {
    if attributes.resource.group != GROUP {
        return Ok(());
    }
    if let Some(why) = masters(attributes, object) {
        return Err(forbidden(attributes, object, why));
    }
    let Some(right) = required_right(attributes, object, old) else {
        return Ok(());
    };
    // The permission of a request is decided by what it was created with.
    let signer = old.unwrap_or(object).str_at(&SIGNER);
    let allowed = may(authorizers, &ctx.user, right.verb, signer).await;
    if allowed.map_err(|Busy| RegistryError::busy())? {
        return Ok(());
    }
    Err(not_permitted(attributes, object, &ctx.user, &right, signer))
}

/// Refuses a node's request for the certificate of another node. Upstream's NodeRestriction looks before validation does.
///
/// # Errors
/// [`RegistryError::Forbidden`].
pub(crate) fn check_node(
    ctx: &RequestContext,
    attributes: &Attributes,
    object: &Tree,
) -> Result<(), RegistryError> {
    if attributes.resource.group != GROUP {
        return Ok(());
    }
    let refused = other_node(&ctx.user, attributes, object);
    refused.map_or(Ok(()), |why| Err(forbidden(attributes, object, why)))
}

/// The right on the signer's name that a write requires.
struct Right {
    verb: &'static str,
    /// Verb in the message about a user without the right, as in "user not permitted to approve requests with
    /// signerName".
    words: &'static str,
}

impl Right {
    const fn new(verb: &'static str, words: &'static str) -> Self {
        Self { verb, words }
    }
}

/// The refusal: of most kinds admission's, of PodCertificateRequests their validation's.
fn not_permitted(
    attributes: &Attributes,
    object: &Tree,
    user: &UserInfo,
    right: &Right,
    signer: &str,
) -> RegistryError {
    let Right { verb, words } = right;
    if attributes.resource.resource != "podcertificaterequests" {
        let why = format!("user not permitted to {words} signerName {signer:?}");
        return forbidden(attributes, object, why);
    }
    let path = FieldPath::new("spec").child("signerName");
    let detail = format!(
        "User {:?} is not permitted to {verb:?} for signer {signer:?}",
        user.name
    );
    RegistryError::Invalid {
        kind: attributes.kind.group_kind(),
        name: object.str_at(&["metadata", "name"]).to_owned(),
        errors: vec![FieldError::forbidden(&path, detail)],
    }
}

fn forbidden(attributes: &Attributes, object: &Tree, why: String) -> RegistryError {
    let name = object.str_at(&["metadata", "name"]);
    RegistryError::forbidden(&attributes.resource.group_resource(), name, why)
}

/// The right that a write needs, and what it is for.
fn required_right(attributes: &Attributes, object: &Tree, old: Option<&Tree>) -> Option<Right> {
    let changed = |path: &[&str]| old.is_none_or(|old| old.at(path) != object.at(path));
    let resource = attributes.resource.resource.as_str();
    match (resource, attributes.subresource.as_str()) {
        ("certificatesigningrequests", "approval") => Some(Right::new("approve", "approve requests with")),
        ("certificatesigningrequests", "status")
            if changed(&["status", "certificate"]) || changed(&["status", "conditions"]) =>
        {
            Some(Right::new("sign", "sign requests with"))
        }
        ("podcertificaterequests", "status") if changed(&["status"]) => Some(Right::new("sign", "sign for")),
        ("clustertrustbundles", "")
            if !object.str_at(&SIGNER).is_empty() && !old.is_some_and(|old| is_collected(object, old)) =>
        {
            Some(Right::new("attest", "attest for"))
        }
        _ => None,
    }
}

/// Nothing but what garbage collection writes differs.
fn is_collected(object: &Tree, old: &Tree) -> bool {
    let rest = |tree: &Tree| {
        let mut rest = tree.clone();
        for name in ["ownerReferences", "finalizers", "managedFields"] {
            rest.remove(&["metadata", name]);
        }
        rest
    };
    rest(object) == rest(old)
}

/// The reason for which a request is refused to every user: it is for the group `system:masters`, or cannot be read.
fn masters(attributes: &Attributes, object: &Tree) -> Option<String> {
    let is_request = attributes.resource.resource == "certificatesigningrequests"
        && attributes.subresource.is_empty()
        && matches!(attributes.operation, Operation::Create | Operation::Update);
    if !is_request || object.str_at(&SIGNER) != CLIENT_SIGNER {
        return None;
    }
    // What is no request at all is refused by its validation.
    let text = STANDARD.decode(object.str_at(&["spec", "request"])).ok()?;
    let groups = organizations(&text);
    if groups.iter().any(Option::is_none) {
        return Some("unable to read the organizations of the request".to_owned());
    }
    groups
        .iter()
        .any(|group| group.as_deref() == Some(MASTERS))
        .then(|| format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"))
}

/// The reason for which a node's request for the certificate of another node is refused (upstream's NodeRestriction).
fn other_node(user: &UserInfo, attributes: &Attributes, object: &Tree) -> Option<String> {
    let node = user.node_name()?;
    let is_request = attributes.resource.resource == "certificatesigningrequests"
        && attributes.subresource.is_empty()
        && attributes.operation == Operation::Create;
    if !is_request || !KUBELET_SIGNERS.contains(&object.str_at(&SIGNER)) {
        return None;
    }
    let text = STANDARD
        .decode(object.str_at(&["spec", "request"]))
        .unwrap_or_default();
    let own = format!("system:node:{node}");
    match common_name(&text) {
        Err(why) => Some(format!("unable to parse csr: {why}")),
        Ok(name) if name != own => Some(format!("can only create a node CSR with CN={own}")),
        Ok(_) => None,
    }
}

async fn may(authorizers: &AuthorizerChain, user: &UserInfo, verb: &str, signer: &str) -> Result<bool, Busy> {
    let domain = signer.split('/').next().unwrap_or_default();
    for name in [signer, &format!("{domain}/*")] {
        let target = AttributesTarget::Resource(ResourceTarget {
            group: GROUP,
            version: "*",
            resource: "signers",
            name,
            ..ResourceTarget::default()
        });
        if authorizers
            .allows(&AuthzAttributes {
                asker: None,
                user,
                verb,
                target,
            })
            .await?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
