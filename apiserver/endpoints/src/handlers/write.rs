//! create, update, patch, delete; reviews and tokens.

use super::{Call, Endpoints};
use crate::bodies::{self, Expected};
use crate::body::Body;
use crate::negotiation::{self, Format, Offer, PatchType};
use crate::params::{self, RawDeleteOptions};
use crate::{respond, status};
use apiserver_registry::options::{DeleteOptions, FieldValidation, RevisionMatch, UpdateOptions};
use apiserver_registry::{
    Deleted, Part, RegistryError, Replacement, RequestContext, ResourceRow, SubresourceRole, Target,
    UpdatedObject, metadata,
};
use async_trait::async_trait;
use bytes::Bytes;
use http::{Response, StatusCode};
use machinery_schema::{Ref, Tree, apply_defaults};
use std::sync::Arc;

pub(crate) async fn create(this: Endpoints, mut call: Call) -> Result<Response<Body>, RegistryError> {
    let showing = call.showing()?;
    let options = params::create(&call.query)?;
    let object = body_object(&mut call, options.field_validation).await?;
    let written = call
        .store
        .create(
            &call.ctx,
            &call.info.namespace,
            object,
            &options,
            this.0.admission.as_ref(),
        )
        .await?;
    warn_not_enforced(&call);
    respond::written(&call.store, showing, StatusCode::CREATED, &written)
}

/// What is stored but does nothing yet says so.
fn warn_not_enforced(call: &Call) {
    let row = call.row();
    if !row.custom
        && let Some(warning) = apiserver_registry::not_enforced::warning(&row.gvk.group, &row.plural)
    {
        call.ctx.warnings.add(warning);
    }
}

async fn take_body(call: &mut Call) -> Result<Bytes, RegistryError> {
    bodies::read(std::mem::take(call.request.body_mut())).await
}

/// The object in the body, defaulted.
async fn body_object(call: &mut Call, validation: FieldValidation) -> Result<Tree, RegistryError> {
    let bytes = take_body(call).await?;
    let expected = Expected::of(call.row());
    let offer = call.offer();
    let mut object = bodies::decode(
        &call.ctx,
        call.request.headers(),
        &bytes,
        &expected,
        offer,
        validation,
    )?;
    clean(call.row(), &mut object);
    Ok(object)
}

/// Defaults only the kind knows; managed fields are not taken from clients.
fn clean(row: &ResourceRow, object: &mut Tree) {
    row.strategy.defaults(object);
    object.remove(&["metadata", "managedFields"]);
}

fn part(call: &Call) -> Part {
    match call
        .row()
        .subresource(&call.info.subresource)
        .map(|sub| &sub.role)
    {
        Some(SubresourceRole::Status) => Part::Status,
        Some(SubresourceRole::Whole(name)) => Part::Other(name),
        _ => Part::Main,
    }
}

pub(crate) async fn update(this: Endpoints, mut call: Call) -> Result<Response<Body>, RegistryError> {
    let showing = call.showing()?;
    let options = params::update(&call.query, "UpdateOptions")?;
    let object = body_object(&mut call, options.field_validation).await?;
    check_name(&call, &object)?;
    write(&this, &call, &Replacement(object), &options, showing).await
}

/// The body names the object the address names.
fn check_name(call: &Call, object: &Tree) -> Result<(), RegistryError> {
    let info = &call.info;
    let (name, namespace) = (metadata::name(object), metadata::namespace(object));
    if name.is_empty() {
        return Err(RegistryError::BadRequest("name must be provided".into()));
    }
    if name != info.name {
        let message = format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            info.name
        );
        return Err(RegistryError::BadRequest(message));
    }
    if call.row().namespaced && !namespace.is_empty() && namespace != info.namespace {
        let message = format!(
            "the namespace of the object ({namespace}) does not match the namespace on the request ({})",
            info.namespace
        );
        return Err(RegistryError::BadRequest(message));
    }
    Ok(())
}

async fn write(
    this: &Endpoints,
    call: &Call,
    change: &dyn UpdatedObject,
    options: &UpdateOptions,
    showing: respond::Showing,
) -> Result<Response<Body>, RegistryError> {
    let target = Target {
        namespace: object_namespace(call),
        name: &call.info.name,
        part: part(call),
    };
    let written = call
        .store
        .update(&call.ctx, target, change, options, this.0.admission.as_ref())
        .await?;
    let code = if written.created() {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    respond::written(&call.store, showing, code, &written)
}

/// The namespace of the object itself; a namespace has none although its address names one.
pub(super) fn object_namespace(call: &Call) -> &str {
    if call.row().namespaced {
        &call.info.namespace
    } else {
        ""
    }
}

/// A patch under way: applied to the live object in every attempt.
struct Patch {
    row: Arc<ResourceRow>,
    kind: PatchType,
    bytes: Bytes,
    validation: FieldValidation,
    name: String,
    namespace: String,
}

pub(crate) async fn patch(this: Endpoints, mut call: Call) -> Result<Response<Body>, RegistryError> {
    let kind = negotiation::patch(call.request.headers(), call.row().custom)?;
    let showing = call.showing()?;
    let options = params::update(&call.query, "PatchOptions")?;
    if let PatchType::Apply(_) = kind {
        // Issue 3 leaves managed fields to the next step; answering otherwise would lose their owners.
        let supported = [
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ];
        return Err(RegistryError::UnsupportedMediaType(
            supported.map(str::to_owned).to_vec(),
        ));
    }
    let bytes = take_body(&mut call).await?;
    let change = Patch {
        row: Arc::clone(&call.store.row),
        kind,
        bytes,
        validation: options.field_validation,
        name: call.info.name.clone(),
        namespace: object_namespace(&call).to_owned(),
    };
    write(&this, &call, &change, &options, showing).await
}

#[async_trait]
impl UpdatedObject for Patch {
    async fn apply(&self, ctx: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let Some(live) = live else {
            return Err(RegistryError::not_found(&self.row.group_resource(), &self.name));
        };
        let mut object = crate::patch_errors::apply(ctx, self.kind, live, &self.bytes, self.validation)?;
        apply_defaults(&mut object);
        clean(&self.row, &mut object);
        self.check_identity(&object)?;
        Ok(object)
    }
}

impl Patch {
    fn check_identity(&self, object: &Tree) -> Result<(), RegistryError> {
        let (name, namespace) = (metadata::name(object), metadata::namespace(object));
        if name != self.name {
            let message = format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                self.name
            );
            return Err(RegistryError::BadRequest(message));
        }
        if self.row.namespaced && !namespace.is_empty() && namespace != self.namespace {
            let message = format!(
                "the namespace of the object ({namespace}) does not match the namespace on the request ({})",
                self.namespace
            );
            return Err(RegistryError::BadRequest(message));
        }
        Ok(())
    }
}

/// Options from the body, or from the query when there is none.
pub(super) async fn delete_options(call: &mut Call) -> Result<DeleteOptions, RegistryError> {
    let bytes = take_body(call).await?;
    if bytes.is_empty() {
        return RawDeleteOptions::from_query(&call.query)?.check();
    }
    let (schema, ty) = machinery_api::schema_for("", "v1", "DeleteOptions")
        .ok_or_else(|| RegistryError::Internal("the table has no DeleteOptions".into()))?;
    let format = negotiation::content(call.request.headers(), Offer::ALL)?;
    let tree = bodies::decode_options(format, &bytes, schema, ty)?;
    raw_delete_options(&tree).check()
}

fn raw_delete_options(tree: &Tree) -> RawDeleteOptions {
    let text = |path: &[&str]| tree.at(path).and_then(Ref::as_str).map(str::to_owned);
    let dry_run = tree
        .root()
        .list("dryRun")
        .filter_map(Ref::as_str)
        .map(str::to_owned);
    RawDeleteOptions {
        dry_run: dry_run.collect(),
        grace_period_seconds: tree.get("gracePeriodSeconds").and_then(Ref::as_i64),
        propagation_policy: text(&["propagationPolicy"]),
        orphan_dependents: tree.get("orphanDependents").and_then(Ref::as_bool),
        uid: text(&["preconditions", "uid"]),
        resource_version: text(&["preconditions", "resourceVersion"]),
    }
}

pub(crate) async fn delete(this: Endpoints, mut call: Call) -> Result<Response<Body>, RegistryError> {
    let showing = call.whole()?;
    let options = delete_options(&mut call).await?;
    for warning in call.row().strategy.delete_warnings(&options) {
        call.ctx.warnings.add(warning);
    }
    let namespace = object_namespace(&call);
    let deleted = call
        .store
        .delete(
            &call.ctx,
            namespace,
            &call.info.name,
            &options,
            this.0.admission.as_ref(),
        )
        .await?;
    match deleted {
        Deleted::Waiting(written) => {
            let code = match options.orphan_dependents {
                Some(false) => StatusCode::ACCEPTED,
                _ => StatusCode::OK,
            };
            respond::written(&call.store, showing, code, &written)
        }
        Deleted::Removed(object) if call.row().strategy.returns_deleted_object() => {
            respond::tree_answer(&call.store, showing, StatusCode::OK, &object)
        }
        Deleted::Removed(object) => {
            let details = status::Details {
                name: call.info.name.clone(),
                group: call.row().gvk.group.clone(),
                kind: call.row().plural.clone(),
                uid: metadata::uid(&object).to_owned(),
                ..status::Details::default()
            };
            status_answer(showing, &status::Status::success(Some(details)))
        }
    }
}

/// A `Status` that is no failure, in the negotiated form.
pub(super) fn status_answer(
    showing: respond::Showing,
    status: &status::Status,
) -> Result<Response<Body>, RegistryError> {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::OK);
    let (schema, ty) = machinery_api::schema_for("", "v1", "Status")
        .ok_or_else(|| RegistryError::Internal("the table has no Status".into()))?;
    let tree = bodies::decode_options(Format::Json, status.to_json().as_bytes(), schema, ty)?;
    respond::tree(code, showing.form, &tree)
}

/// Reviews: answered by the server's authorizers and authenticators, never stored.
pub(crate) async fn review(this: Endpoints, mut call: Call) -> Result<Response<Body>, RegistryError> {
    let showing = call.whole()?;
    let options = params::create(&call.query)?;
    let object = body_object(&mut call, options.field_validation).await?;
    let kind = call.row().gvk.kind.clone();
    let answered = this
        .0
        .hooks
        .review(&call.ctx, &kind, &call.info.namespace, object)
        .await?;
    respond::tree(StatusCode::CREATED, showing.form, &answered)
}

/// `serviceaccounts/token`.
pub(crate) async fn token(this: Endpoints, mut call: Call) -> Result<Response<Body>, RegistryError> {
    let showing = call.whole()?;
    let options = params::create(&call.query)?;
    let entry = call
        .store
        .get(&call.info.namespace, &call.info.name, RevisionMatch::MostRecent)
        .await?;
    let service_account = call.store.decode(&entry)?;
    let object = sub_body(&mut call, options.field_validation).await?;
    let answered = this.0.hooks.token(&call.ctx, &service_account, object).await?;
    respond::tree(StatusCode::CREATED, showing.form, &answered)
}

/// The body of a subresource that has a kind of its own.
pub(super) async fn sub_body(call: &mut Call, validation: FieldValidation) -> Result<Tree, RegistryError> {
    let bytes = take_body(call).await?;
    let gvk = call
        .row()
        .subresource(&call.info.subresource)
        .map_or_else(|| call.row().gvk.clone(), |sub| sub.gvk.clone());
    let (schema, ty) = machinery_api::schema_for(&gvk.group, &gvk.version, &gvk.kind)
        .ok_or_else(|| RegistryError::Internal(format!("the table has no {}", gvk.kind)))?;
    let expected = Expected { gvk, schema, ty };
    bodies::decode(
        &call.ctx,
        call.request.headers(),
        &bytes,
        &expected,
        Offer::ALL,
        validation,
    )
}
