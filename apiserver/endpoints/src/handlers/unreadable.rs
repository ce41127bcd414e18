//! Deletes of objects that cannot be read (`ignoreStoreReadErrorWithClusterBreakingPotential`).

use super::write::status_answer;
use super::{Call, Endpoints};
use crate::body::Body;
use crate::error::ApiError;
use crate::respond::ResponseOptions;
use crate::status::{Details, Status};
use apiserver_registry::RegistryError;
use http::{Response, StatusCode};

/// Verb that such a delete takes beside `delete`.
const VERB: &str = "unsafe-delete-ignore-read-errors";
const ANNOTATION: &str = "apiserver.k8s.io/unsafe-delete-ignore-read-error";

/// Kinds whose storage upstream wraps: it has no such delete of them.
const NOT_OFFERED: [(&str, &str); 5] = [
    ("", "namespaces"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
];

pub(super) async fn delete(
    this: &Endpoints,
    call: &Call,
    showing: ResponseOptions,
    dry_run: bool,
) -> Result<Response<Body>, ApiError> {
    call.ctx.audit.add(ANNOTATION, "");
    let row = call.row();
    if NOT_OFFERED.contains(&(&*row.gvk.group, &*row.plural)) {
        let why =
            "no unsafe deleter provided, can not honor ignoreStoreReadErrorWithClusterBreakingPotential";
        return Err(RegistryError::Internal(why.to_owned()).into());
    }
    authorize(this, call).await?;
    let (scope, name) = (&call.info.scope, call.info.name.as_str());
    call.store
        .delete_unreadable(&call.ctx, (scope, name), dry_run, this.door())
        .await?;
    let details = Details {
        name: name.to_owned(),
        kind: call.row().gvk.kind.clone(),
        ..Details::default()
    };
    let mut status = Status::success(Some(details));
    status.code = StatusCode::OK.as_u16();
    status_answer(showing, &status)
}

async fn authorize(this: &Endpoints, call: &Call) -> Result<(), RegistryError> {
    let refused = match this.0.hooks.authorize(&call.ctx, VERB, &call.info).await {
        Ok(()) => return Ok(()),
        Err(refused) => refused,
    };
    match refused {
        RegistryError::Forbidden { resource, name, .. } => {
            // The authorizer's own reason stays in its log: it names rules of others.
            let detail = format!("not permitted to do {VERB:?}, reason: ");
            Err(RegistryError::forbidden(&resource, &name, detail))
        }
        other => Err(other),
    }
}
