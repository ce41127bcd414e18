//! Reviews: answered by the server's authorizers and authenticators, never stored.

use super::write::body_object;
use super::{Call, Endpoints};
use crate::body::Body;
use crate::{params, respond};
use apiserver_registry::{Operation, RegistryError, metadata};
use http::{Response, StatusCode};

pub(super) async fn review(this: Endpoints, mut call: Call) -> Result<Response<Body>, RegistryError> {
    let showing = call.viewless()?;
    let options = params::create(&call.query)?;
    let mut object = body_object(&mut call, options.field_validation).await?;
    metadata::match_namespace(&mut object, call.row(), call.info.scope.namespace())?;
    let attributes = call.attributes(Operation::Create, metadata::name(&object), options.dry_run);
    let mutated = this
        .door()
        .mutate(&call.ctx, attributes, &mut object, None)
        .await?;
    let admitted = mutated.validate(&call.ctx, &object, None).await?;
    let answered = this.0.hooks.review(&call.ctx, &admitted, object).await?;
    respond::tree(StatusCode::CREATED, showing.form, &answered)
}
