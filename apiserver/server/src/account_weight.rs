//! Weight of the service account of a new pod: the plugin of that name reads all of it and copies a part into the pod, however
//! small the pod is.

use apiserver_registry::context::LARGE_BODY_BYTES;
use apiserver_registry::options::RevisionMatch;
use apiserver_registry::{Attributes, Operation, Registry, RegistryError, RequestContext, Scope};
use machinery_schema::Tree;

/// The account of a pod that names none.
const DEFAULT: &str = "default";

/// Lets a request that makes a pod of a large account go on in turn with other heavy work.
///
/// # Errors
/// As [`RequestContext::heavy`].
pub(crate) async fn weigh(
    ctx: &RequestContext,
    registry: &Registry,
    attributes: &Attributes,
    object: &Tree,
) -> Result<(), RegistryError> {
    let resource = &attributes.resource;
    let is_pod = resource.group.is_empty() && resource.resource == "pods";
    let is_read = match attributes.operation {
        Operation::Create => attributes.subresource.is_empty(),
        Operation::Update => attributes.subresource == "ephemeralcontainers",
        _ => false,
    };
    let Some(accounts) = registry
        .store("", "v1", "serviceaccounts")
        .filter(|_| is_pod && is_read)
    else {
        return Ok(());
    };
    let named = object.str_at(&["spec", "serviceAccountName"]);
    let name = if named.is_empty() { DEFAULT } else { named };
    let scope = Scope::of(&attributes.namespace);
    match accounts.get(&scope, name, RevisionMatch::Any).await {
        Ok(account) => ctx.heavy_from(account.record.len(), LARGE_BODY_BYTES).await,
        // The plugin says so.
        Err(_) => Ok(()),
    }
}
