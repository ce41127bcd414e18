//! Reviews: answered by the server's authorizers and authenticators, never stored.

use super::write::body_object;
use super::{Call, Endpoints};
use crate::body::Body;
use crate::error::ApiError;
use crate::{params, respond};
use apiserver_registry::{ObjectPart, Operation, RegistryError, managed_fields, metadata};
use http::{Response, StatusCode};
use machinery_schema::Tree;

pub(super) async fn review(this: Endpoints, mut call: Call) -> Result<Response<Body>, ApiError> {
    let showing = call.negotiate_without_views()?;
    let options = params::create(&call.query)?;
    let mut object = body_object(&mut call, options.field_validation).await?;
    metadata::validation::match_namespace(&mut object, call.row(), call.info.scope.namespace())?;
    metadata::wipe(&mut object);
    track(&call, &options.field_manager, &mut object)?;
    let mut attributes = call.attributes(Operation::Create, metadata::name(&object), options.dry_run);
    attributes.options = (&options).into();
    let mutated = this
        .door()
        .mutate(&call.ctx, attributes, &mut object, None)
        .await?;
    let admitted = mutated.validate(&call.ctx, &object, None).await?;
    let answered = this.0.hooks.review(&call.ctx, &admitted, object).await?;
    respond::tree(StatusCode::CREATED, showing.form, &answered)
}

/// Records the review's sender as field manager, as upstream does; a SelfSubjectRulesReview's answer is another object.
fn track(call: &Call, named: &str, object: &mut Tree) -> Result<(), RegistryError> {
    if call.row().gvk.kind == "SelfSubjectRulesReview" {
        managed_fields::forget(object);
        return Ok(());
    }
    let writer = call.store.writer(&call.ctx, named);
    let nothing = Tree::new(&call.row().schema, call.row().ty);
    managed_fields::track(call.store.subject(ObjectPart::Main), &writer, &nothing, object)
        .map_err(managed_fields::refusal)
}
