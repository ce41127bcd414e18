//! `serviceaccounts/token`: a token for the account of the address.

use super::write::sub_body;
use super::{Call, Endpoints};
use crate::body::Body;
use crate::error::ApiError;
use crate::request_info::RequestInfo;
use crate::{params, respond};
use apiserver_registry::managed_fields::Subject;
use apiserver_registry::options::RevisionMatch;
use apiserver_registry::{Operation, RegistryError, managed_fields, metadata};
use http::{Response, StatusCode};
use machinery_meta::{FieldError, FieldPath, GroupResource, GroupVersionKind};
use machinery_schema::Tree;
use std::sync::Arc;

/// Lifetime of a token whose request names none (upstream's default of TokenRequests).
const DEFAULT_EXPIRATION_SECONDS: i64 = 3_600;

pub(super) async fn token(this: Endpoints, mut call: Call) -> Result<Response<Body>, ApiError> {
    let showing = call.negotiate_object()?;
    let options = params::create(&call.query)?;
    let mut object = sub_body(&mut call, options.field_validation, defaults).await?;
    metadata::place(&mut object, call.info.scope.namespace())?;
    let mut attributes = call.attributes(Operation::Create, &call.info.name, options.dry_run);
    attributes.options = (&options).into();
    let writer = call.store.writer(&call.ctx, &options.field_manager);
    let nothing = Tree::new(object.schema(), object.ty());
    let (schema, ty) = (Arc::clone(object.schema()), object.ty());
    let subject = Subject::window(&schema, ty, &attributes.kind, "token");
    managed_fields::track(subject, &writer, &nothing, &mut object).map_err(managed_fields::refusal)?;
    let mutated = this
        .door()
        .mutate(&call.ctx, attributes, &mut object, None)
        .await?;
    names_account(&object, &call.info)?;
    let entry = call
        .store
        .get(&call.info.scope, &call.info.name, RevisionMatch::MostRecent)
        .await?;
    let account = call.store.decode(&entry)?;
    same_account(&mut object, &account)?;
    let object = this.0.hooks.complete(&call.ctx, object).await?;
    let admitted = mutated.validate(&call.ctx, &object, None).await?;
    let asked = object.clone();
    let mut answered = this.0.hooks.token(&call.ctx, &admitted, &account, object).await?;
    metadata::restore_field(&mut answered, &asked, "managedFields");
    respond::tree(StatusCode::CREATED, showing.form, &answered)
}

fn defaults(request: &mut Tree) {
    request.with(&["spec"], |mut spec| {
        spec.default("expirationSeconds", DEFAULT_EXPIRATION_SECONDS)
    });
}

/// A TokenRequest that names an account names that of the address.
fn names_account(request: &Tree, info: &RequestInfo) -> Result<(), RegistryError> {
    let own = metadata::name(request);
    if own.is_empty() || own == info.name {
        return Ok(());
    }
    let path = FieldPath::new("metadata").child("name");
    let detail = "must match the service account name if specified";
    Err(RegistryError::Invalid {
        kind: GroupVersionKind::new("authentication.k8s.io", "v1", "TokenRequest").group_kind(),
        name: info.name.clone(),
        errors: vec![FieldError::invalid(&path, own, detail)],
    })
}

/// The request is for this very account; what it leaves open of the account's identity is filled in.
fn same_account(request: &mut Tree, account: &Tree) -> Result<(), RegistryError> {
    let (own, uid) = (metadata::uid(request), metadata::uid(account));
    if !own.is_empty() && own != uid {
        let resource = GroupResource::new("authentication.k8s.io", "TokenRequest");
        let detail = format!(
            "the UID in the token request ({own}) does not match the UID of the service account ({uid})"
        );
        return Err(RegistryError::conflict(
            &resource,
            metadata::name(account),
            detail,
        ));
    }
    request.set_str(&["metadata", "uid"], uid);
    request.set_str(&["metadata", "name"], metadata::name(account));
    Ok(())
}
