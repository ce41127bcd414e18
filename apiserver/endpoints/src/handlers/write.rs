//! create, update, patch, delete.

use super::{Call, Endpoints, apply, unreadable};
use crate::bodies::{self, Expected};
use crate::body::Body;
use crate::error::ApiError;
use crate::negotiation::{self, Format, PatchType, SupportedFormats};
use crate::params::{self, RawDeleteOptions};
use crate::{patch_errors, respond, status};
use apiserver_registry::context::{LARGE_BODY_BYTES, LARGE_OBJECT_BYTES};
use apiserver_registry::managed_fields;
use apiserver_registry::options::{DeleteOptions, FieldValidation, UpdateOptions};
use apiserver_registry::{
    Deleted, Kind, ObjectPart, RegistryError, Replacement, RequestContext, ResourceRow, SubresourceRole,
    Target, UpdatedObject, Written, metadata,
};
use async_trait::async_trait;
use bytes::Bytes;
use http::{Response, StatusCode};
use machinery_meta::{SharedEvent, SharedEvents};
use machinery_schema::{Ref, Tree, apply_defaults};
use std::sync::Arc;

pub(crate) async fn create(this: Endpoints, mut call: Call) -> Result<Response<Body>, ApiError> {
    let showing = call.response_options()?;
    let options = params::create(&call.query)?;
    let object = body_object(&mut call, options.field_validation).await?;
    let written = call
        .store
        .create(&call.ctx, &call.info.scope, object, &options, this.door())
        .await?;
    warn_not_enforced(&call);
    let outcome = (&written, options.dry_run);
    written_answer(&this, &call, showing, StatusCode::CREATED, outcome).await
}

/// The answer to what was written, or would have been in a dry run.
async fn written_answer(
    this: &Endpoints,
    call: &Call,
    showing: respond::ResponseOptions,
    code: StatusCode,
    (written, is_dry_run): (&Written, bool),
) -> Result<Response<Body>, ApiError> {
    share(call, showing, written);
    let bytes = respond::copied_bytes(call.row(), showing.form, written);
    let answer = || respond::written(&call.store, showing, code, written);
    if bytes >= LARGE_BODY_BYTES {
        let memory = &this.0.list_memory;
        return memory
            .answer_in_turn(&call.ctx, (bytes, !is_dry_run), answer)
            .await;
    }
    let (memory, referred) = (&this.0.unread_memory, respond::written_bytes(written));
    let room = match is_dry_run {
        true => memory.admit(&call.ctx, referred)?,
        false => memory.admit_in_turn(&call.ctx, referred).await?,
    };
    Ok(room.with(answer()?))
}

/// Shares what was written with a client in this process. The answer has it too: audit reads it there.
fn share(call: &Call, showing: respond::ResponseOptions, written: &Written) {
    let Some(client) = call.request.extensions().get::<SharedEvents>() else {
        return;
    };
    if let Some(object) = respond::shared(call.row(), showing.form, written) {
        client.push(SharedEvent::Set(object));
    }
}

/// Warns of a kind that is stored and not enforced yet.
fn warn_not_enforced(call: &Call) {
    let row = call.row();
    if let Some(warning) = row.built_in.and_then(Kind::not_enforced_warning) {
        call.ctx.warnings.add(warning);
    }
}

async fn take_body(call: &mut Call) -> Result<Bytes, RegistryError> {
    let asks = !call.row().has_store || call.info.subresource == "token";
    let limit = match asks {
        true => bodies::MAX_QUESTION_BYTES,
        false => bodies::MAX_BODY_BYTES,
    };
    bodies::read_within(std::mem::take(call.request.body_mut()), limit).await
}

/// The object in the body, defaulted.
pub(super) async fn body_object(call: &mut Call, validation: FieldValidation) -> Result<Tree, ApiError> {
    let bytes = take_body(call).await?;
    let format = negotiation::content(call.request.headers(), call.offer())?;
    if bodies::is_heavy(format, &bytes) {
        call.ctx.heavy().await?;
    }
    Ok(decoded(&call.ctx, call.row(), format, &bytes, validation)?)
}

fn decoded(
    ctx: &RequestContext,
    row: &ResourceRow,
    format: Format,
    bytes: &[u8],
    validation: FieldValidation,
) -> Result<Tree, RegistryError> {
    let mut object = bodies::decode_as(ctx, format, bytes, &Expected::of(row), validation)?;
    apply_defaults(&mut object);
    row.strategy.defaults(&mut object);
    ctx.record(&object);
    Ok(object)
}

fn part(call: &Call) -> ObjectPart {
    match call
        .row()
        .subresource(&call.info.subresource)
        .map(|sub| &sub.role)
    {
        Some(SubresourceRole::Status) => ObjectPart::Status,
        Some(SubresourceRole::Whole(name)) => ObjectPart::Other(name),
        _ => ObjectPart::Main,
    }
}

pub(crate) async fn update(this: Endpoints, mut call: Call) -> Result<Response<Body>, ApiError> {
    let showing = call.response_options()?;
    let options = params::update(&call.query, "UpdateOptions")?;
    let object = body_object(&mut call, options.field_validation).await?;
    bodies::check_identity(call.row(), &object, &call.info.name, call.info.scope.namespace())?;
    write(&this, &call, &Replacement(object), &options, showing).await
}

async fn write(
    this: &Endpoints,
    call: &Call,
    change: &dyn UpdatedObject,
    options: &UpdateOptions,
    showing: respond::ResponseOptions,
) -> Result<Response<Body>, ApiError> {
    let written = carry_out(this, call, part(call), change, options).await?;
    let code = if written.created() {
        warn_not_enforced(call);
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    written_answer(this, call, showing, code, (&written, options.dry_run)).await
}

/// Changes a part of the object.
pub(super) async fn carry_out(
    this: &Endpoints,
    call: &Call,
    part: ObjectPart,
    change: &dyn UpdatedObject,
    options: &UpdateOptions,
) -> Result<Written, RegistryError> {
    let target = Target {
        scope: &call.info.scope,
        name: &call.info.name,
        part,
    };
    let authorized = apply::Authorized {
        change,
        info: &call.info,
        hooks: this.0.hooks.as_ref(),
    };
    call.store
        .update(&call.ctx, target, &authorized, options, this.door())
        .await
}

/// Longest patch that is searched for the record of owners.
const MAX_SEARCHED_BYTES: usize = 16 << 10;

/// A patch under way: applied to the live object in every attempt.
struct Patch {
    row: Arc<ResourceRow>,
    kind: PatchType,
    bytes: Bytes,
    validation: FieldValidation,
    name: String,
    namespace: String,
}

pub(crate) async fn patch(this: Endpoints, mut call: Call) -> Result<Response<Body>, ApiError> {
    let kind = negotiation::patch(call.request.headers(), call.row().custom)?;
    let showing = call.response_options()?;
    let options = params::patch(&call.query, matches!(kind, PatchType::Apply(_)))?;
    let bytes = take_body(&mut call).await?;
    if let PatchType::Apply(_) = kind {
        return apply_configuration(&this, &call, bytes, &options, showing).await;
    }
    call.ctx.record_patch(|| String::from_utf8_lossy(&bytes));
    let change = Patch {
        row: Arc::clone(&call.store.row),
        kind,
        bytes,
        validation: options.field_validation,
        name: call.info.name.clone(),
        namespace: call.info.scope.namespace().to_owned(),
    };
    write(&this, &call, &change, &options, showing).await
}

/// Server-side apply.
async fn apply_configuration(
    this: &Endpoints,
    call: &Call,
    bytes: Bytes,
    options: &UpdateOptions,
    showing: respond::ResponseOptions,
) -> Result<Response<Body>, ApiError> {
    let validation = options.field_validation;
    let configuration = apply::configuration(&call.ctx, &call.row().gvk, &bytes, validation).await?;
    let change = apply::Apply {
        store: call.store.clone(),
        part: part(call),
        configuration,
        writer: call.store.writer(&call.ctx, &options.field_manager),
        force: options.force,
        name: call.info.name.clone(),
        namespace: call.info.scope.namespace().to_owned(),
    };
    write(this, call, &change, options, showing).await
}

#[async_trait]
impl UpdatedObject for Patch {
    async fn apply(&self, ctx: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let Some(live) = live else {
            return Err(RegistryError::not_found(&self.row.group_resource(), &self.name));
        };
        if self.bytes.len() >= LARGE_BODY_BYTES || live.arena_bytes() >= LARGE_OBJECT_BYTES {
            ctx.heavy().await?;
        }
        self.patched(ctx, live)
    }
}

/// An object as a patch sees it that says nothing of owners: the record is as long as all the rest.
fn without_owners(live: &Tree) -> Tree {
    let mut object = live.clone();
    managed_fields::forget(&mut object);
    object
}

impl Patch {
    /// Reports whether a merge cannot touch the record of owners: the body has neither its name nor an escape that
    /// could spell it.
    fn leaves_owners(&self) -> bool {
        let merges = matches!(self.kind, PatchType::Merge | PatchType::Strategic);
        let has = |word: &[u8]| self.bytes.windows(word.len()).any(|part| part == word);
        merges && self.bytes.len() < MAX_SEARCHED_BYTES && !has(b"managedFields") && !has(b"\\u")
    }

    fn patched(&self, ctx: &RequestContext, live: &Tree) -> Result<Tree, RegistryError> {
        let short = self.leaves_owners().then(|| without_owners(live));
        let live = short.as_ref().unwrap_or(live);
        let mut object = patch_errors::apply(ctx, self.kind, live, &self.bytes, self.validation)?;
        patch_errors::check_kind(&Expected::of(&self.row), self.kind, live, &self.bytes, &object)?;
        object.set_str(&["kind"], &self.row.gvk.kind);
        object.set_str(&["apiVersion"], &self.row.gvk.api_version());
        apply_defaults(&mut object);
        self.row.strategy.defaults(&mut object);
        bodies::check_identity(&self.row, &object, &self.name, &self.namespace)?;
        Ok(object)
    }
}

/// Options from the body, or from the query when there is none.
pub(super) async fn delete_options(call: &mut Call) -> Result<DeleteOptions, ApiError> {
    let bytes = take_body(call).await?;
    if bytes.is_empty() {
        return Ok(RawDeleteOptions::from_query(&call.query)?.check()?);
    }
    let (schema, ty) = machinery_api::schema_for("", "v1", "DeleteOptions")
        .ok_or_else(|| RegistryError::Internal("the table has no DeleteOptions".into()))?;
    let format = negotiation::content(call.request.headers(), SupportedFormats::ALL)?;
    if bodies::is_heavy(format, &bytes) {
        call.ctx.heavy().await?;
    }
    let tree = bodies::decode_options(format, &bytes, schema, ty)?;
    check_options_kind(&tree)?;
    record_delete_options(&call.ctx, &tree);
    Ok(raw_delete_options(&tree).check()?)
}

/// Kinds beside the options that upstream's scheme of options knows.
const KNOWN_BESIDE_OPTIONS: [&str; 5] = [
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
    "Status",
];

/// Options may name any version; another kind is refused before anything is deleted.
fn check_options_kind(tree: &Tree) -> Result<(), RegistryError> {
    let (version, kind) = (tree.str_at(&["apiVersion"]), tree.str_at(&["kind"]));
    if kind.is_empty() || kind == "DeleteOptions" {
        return Ok(());
    }
    if KNOWN_BESIDE_OPTIONS.contains(&kind) {
        return Err(RegistryError::BadRequest(format!(
            "converting (v1.{kind}) to (v1.DeleteOptions): unknown conversion"
        )));
    }
    let version = if version.is_empty() {
        "meta.k8s.io/v1"
    } else {
        version
    };
    Err(RegistryError::BadRequest(format!(
        "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )))
}

/// Upstream's log has options in the internal version that they are decoded to.
fn record_delete_options(ctx: &RequestContext, tree: &Tree) {
    if ctx.recorder.is_none() {
        return;
    }
    let mut named = tree.clone();
    named.set_str(&["kind"], "DeleteOptions");
    named.set_str(&["apiVersion"], "meta.k8s.io/__internal");
    ctx.record(&named);
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
        has_preconditions: tree.get("preconditions").is_some_and(|own| !own.is_null()),
        ignore_store_read_error: tree
            .get("ignoreStoreReadErrorWithClusterBreakingPotential")
            .and_then(Ref::as_bool),
    }
}

pub(crate) async fn delete(this: Endpoints, mut call: Call) -> Result<Response<Body>, ApiError> {
    let showing = call.response_options()?;
    let options = delete_options(&mut call).await?;
    if options.unreadable {
        return unreadable::delete(&this, &call, showing, options.dry_run).await;
    }
    for warning in call.row().strategy.delete_warnings(&options) {
        call.ctx.warnings.add(warning);
    }
    let deleted = call
        .store
        .delete(
            &call.ctx,
            &call.info.scope,
            &call.info.name,
            &options,
            this.door(),
        )
        .await?;
    match deleted {
        Deleted::Waiting(written) => {
            let code = match options.orphan_dependents {
                Some(false) => StatusCode::ACCEPTED,
                _ => StatusCode::OK,
            };
            let outcome = (&written, options.dry_run);
            written_answer(&this, &call, showing, code, outcome).await
        }
        Deleted::Removed(object) if call.row().strategy.returns_deleted_object() => {
            let shown = Written::Shown {
                object,
                created: false,
            };
            let outcome = (&shown, options.dry_run);
            written_answer(&this, &call, showing, StatusCode::OK, outcome).await
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
    showing: respond::ResponseOptions,
    status: &status::Status,
) -> Result<Response<Body>, ApiError> {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::OK);
    let (schema, ty) = machinery_api::schema_for("", "v1", "Status")
        .ok_or_else(|| RegistryError::Internal("the table has no Status".into()))?;
    let tree = bodies::decode_options(Format::Json, status.to_json().as_bytes(), schema, ty)?;
    let mut response = respond::tree(code, showing.form, &tree)?;
    response.extensions_mut().insert(status.clone());
    Ok(response)
}

/// The body of a subresource that has a kind of its own.
pub(super) async fn sub_body(
    call: &mut Call,
    validation: FieldValidation,
    defaults: fn(&mut Tree),
) -> Result<Tree, ApiError> {
    let bytes = take_body(call).await?;
    let gvk = call
        .row()
        .subresource(&call.info.subresource)
        .map_or_else(|| call.row().gvk.clone(), |sub| sub.gvk.clone());
    let (schema, ty) = machinery_api::schema_for(&gvk.group, &gvk.version, &gvk.kind)
        .ok_or_else(|| RegistryError::Internal(format!("the table has no {}", gvk.kind)))?;
    let expected = Expected {
        gvk,
        schema,
        ty,
        custom: false,
        defaults,
    };
    bodies::decode(
        &call.ctx,
        call.request.headers(),
        bytes,
        &expected,
        SupportedFormats::ALL,
        validation,
    )
    .await
}
