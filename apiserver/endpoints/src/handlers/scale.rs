//! `scale`: a window of autoscaling/v1 on an object's replicas.

use super::{Call, Endpoints, apply, write};
use crate::bodies::{self, Expected};
use crate::body::Body;
use crate::error::ApiError;
use crate::negotiation::{self, PatchType, SupportedFormats};
use crate::respond::{self, ResponseOptions};
use crate::{params, patch_errors};
use apiserver_registry::columns;
use apiserver_registry::context::LARGE_BODY_BYTES;
use apiserver_registry::managed_fields::{self, Subject, Writer};
use apiserver_registry::options::{FieldValidation, RevisionMatch, UpdateOptions};
use apiserver_registry::validation::parse_label_selector;
use apiserver_registry::{
    ObjectPart, RegistryError, RequestContext, ScalePaths, Store, UpdatedObject, Written, metadata,
};
use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use machinery_meta::label_selector::LabelSelector;
use machinery_meta::{FieldError, FieldPath, GroupResource, GroupVersionKind};
use machinery_schema::{Ref, Schema, Step, Tree, TypeId, Value};
use std::sync::{Arc, LazyLock};

fn scale_type() -> Result<(&'static Arc<Schema>, TypeId), RegistryError> {
    machinery_api::schema_for("autoscaling", "v1", "Scale")
        .ok_or_else(|| RegistryError::Internal("the table has no Scale".into()))
}

fn at<'a>(object: &'a Tree, path: &[String]) -> Option<Ref<'a>> {
    path.iter().try_fold(object.root(), |at, name| at.get(name))
}

/// Replicas in the scale of a custom object that has none, as a patch sees it; upstream's number.
const UNSET: i64 = i32::MIN as i64;

/// The scale an object shows.
fn scale_of(object: &Tree, paths: &ScalePaths) -> Result<Tree, RegistryError> {
    if is_unset(object, paths) {
        let path = paths.spec_replicas.join(".");
        return Err(RegistryError::Internal(format!(
            "the spec replicas field \".{path}\" does not exist"
        )));
    }
    scale_or_unset(object, paths)
}

fn is_unset(object: &Tree, paths: &ScalePaths) -> bool {
    paths.custom && at(object, &paths.spec_replicas).is_none()
}

fn scale_or_unset(object: &Tree, paths: &ScalePaths) -> Result<Tree, RegistryError> {
    let (schema, ty) = scale_type()?;
    let mut scale = Tree::new(schema, ty);
    scale.set_str(&["kind"], "Scale");
    scale.set_str(&["apiVersion"], "autoscaling/v1");
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.at(&["metadata", field]) {
            scale.set(&[Step::Name("metadata"), Step::Name(field)], value);
        }
    }
    let wanted = at(object, &paths.spec_replicas).and_then(Ref::as_i64);
    let wanted = wanted.or(is_unset(object, paths).then_some(UNSET));
    if let Some(replicas) = wanted.filter(|replicas| *replicas != 0) {
        scale.set_i64(&["spec", "replicas"], replicas);
    }
    let replicas = at(object, &paths.status_replicas)
        .and_then(Ref::as_i64)
        .unwrap_or(0);
    scale.set_i64(&["status", "replicas"], replicas);
    let selector = paths
        .selector
        .as_ref()
        .and_then(|path| at(object, path))
        .map(selector_text)
        .unwrap_or_default();
    if !selector.is_empty() {
        scale.set_str(&["status", "selector"], &selector);
    }
    Ok(scale)
}

/// A label selector as the text of a query: objects are written out, text stays. A map of labels is a selector, too.
fn selector_text(selector: Ref<'_>) -> String {
    if let Some(text) = selector.as_str() {
        return text.to_owned();
    }
    let is_object = selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some();
    let parsed = match is_object {
        true => parse_label_selector(Some(selector)).unwrap_or_default(),
        false => LabelSelector::from_pairs(
            selector
                .entries()
                .filter_map(|(key, value)| Some((key, value.as_str()?))),
        ),
    };
    parsed.to_string()
}

pub(crate) async fn get(call: &Call, paths: &ScalePaths) -> Result<Response<Body>, ApiError> {
    let showing = call.response_options()?;
    let entry = call
        .store
        .get(&call.info.scope, &call.info.name, RevisionMatch::MostRecent)
        .await?;
    let object = call.store.decode(&entry)?;
    answer(showing, &scale_of(&object, paths)?)
}

fn answer(showing: ResponseOptions, scale: &Tree) -> Result<Response<Body>, ApiError> {
    respond::tree_answer(&columns::scale(), showing, StatusCode::OK, scale)
}

/// The requested change of the scale.
enum Wanted {
    Whole(Tree),
    Patched { kind: PatchType, bytes: Bytes },
    Applied(Configuration),
}

/// An apply under way.
struct Configuration {
    scale: Tree,
    writer: Writer,
    force: bool,
}

struct ScaleChange {
    store: Store,
    paths: ScalePaths,
    wanted: Wanted,
    name: String,
    namespace: String,
    validation: FieldValidation,
}

pub(crate) async fn change(
    this: Endpoints,
    mut call: Call,
    paths: ScalePaths,
) -> Result<Response<Body>, ApiError> {
    let showing = call.response_options()?;
    let (wanted, options) = if *call.request.method() == Method::PATCH {
        patch(&mut call).await?
    } else {
        let options = params::update(&call.query, "UpdateOptions")?;
        let whole = Wanted::Whole(body(&mut call, options.field_validation).await?);
        (whole, options)
    };
    let change = ScaleChange {
        store: call.store.clone(),
        paths: paths.clone(),
        wanted,
        name: call.info.name.clone(),
        namespace: call.info.scope.namespace().to_owned(),
        validation: options.field_validation,
    };
    let written = write::carry_out(&this, &call, ObjectPart::Other("scale"), &change, &options).await?;
    let object = match &written {
        Written::Stored { entry, .. } => call.store.decode(entry)?,
        Written::Shown { object, .. } => object.clone(),
    };
    answer(showing, &scale_of(&object, &paths)?)
}

async fn patch(call: &mut Call) -> Result<(Wanted, UpdateOptions), ApiError> {
    let kind = negotiation::patch(call.request.headers(), call.row().custom)?;
    let options = params::patch(&call.query, matches!(kind, PatchType::Apply(_)))?;
    let bytes = bodies::read(std::mem::take(call.request.body_mut())).await?;
    let PatchType::Apply(_) = kind else {
        call.ctx.record_patch(|| String::from_utf8_lossy(&bytes));
        return Ok((Wanted::Patched { kind, bytes }, options));
    };
    let applied = Configuration {
        scale: apply::configuration(&call.ctx, &SCALE, &bytes, options.field_validation).await?,
        writer: call.store.writer(&call.ctx, &options.field_manager),
        force: options.force,
    };
    Ok((Wanted::Applied(applied), options))
}

fn expected() -> Result<Expected<'static>, RegistryError> {
    let (schema, ty) = scale_type()?;
    Ok(Expected {
        gvk: scale_kind(),
        schema,
        ty,
        custom: false,
        defaults: |_| {},
    })
}

async fn body(call: &mut Call, validation: FieldValidation) -> Result<Tree, ApiError> {
    let bytes = bodies::read(std::mem::take(call.request.body_mut())).await?;
    bodies::decode(
        &call.ctx,
        call.request.headers(),
        bytes,
        &expected()?,
        SupportedFormats::ALL,
        validation,
    )
    .await
}

/// A scale with a patch.
async fn patched(
    ctx: &RequestContext,
    kind: PatchType,
    shown: Tree,
    bytes: Bytes,
    validation: FieldValidation,
) -> Result<Tree, RegistryError> {
    ctx.heavy_from(bytes.len(), LARGE_BODY_BYTES).await?;
    let patched = patch_errors::apply(ctx, kind, &shown, &bytes, validation)?;
    patch_errors::check_kind(&expected()?, kind, &shown, &bytes, &patched)?;
    Ok(patched)
}

#[async_trait]
impl UpdatedObject for ScaleChange {
    async fn apply(&self, ctx: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let Some(live) = live else {
            return Err(RegistryError::not_found(
                &self.store.row.group_resource(),
                &self.name,
            ));
        };
        let scale = match &self.wanted {
            Wanted::Whole(scale) => scale.clone(),
            Wanted::Patched { kind, bytes } => {
                let shown = scale_or_unset(live, &self.paths)?;
                patched(ctx, *kind, shown, bytes.clone(), self.validation).await?
            }
            Wanted::Applied(configuration) => self.applied(live, configuration)?,
        };
        self.check_name(&scale)?;
        Ok(scale)
    }

    fn has_field_owners(&self) -> bool {
        matches!(self.wanted, Wanted::Applied(_))
    }

    fn kind(&self) -> Option<GroupVersionKind> {
        Some(scale_kind())
    }

    fn window(&self) -> Option<Subject<'_>> {
        window().ok()
    }

    fn stored(&self, scale: Tree, live: &Tree) -> Result<Tree, RegistryError> {
        self.check(&scale, live)?;
        let mut object = live.clone();
        managed_fields::from_scale(self.store.subject(ObjectPart::Main), &scale, &mut object);
        let steps: Vec<Step<'_>> = self
            .paths
            .spec_replicas
            .iter()
            .map(|name| Step::Name(name))
            .collect();
        object.set(&steps, Value::Int(replicas(&scale)));
        // As upstream: a custom object's scale without a revision is of whichever is live.
        let revision = metadata::resource_version(&scale);
        if !(self.paths.custom && revision.is_empty()) {
            object.set_str(&["metadata", "resourceVersion"], revision);
        }
        Ok(object)
    }

    fn view(&self, stored: &Tree) -> Result<Option<Tree>, RegistryError> {
        scale_or_unset(stored, &self.paths).map(Some)
    }
}

static SCALE: LazyLock<GroupVersionKind> =
    LazyLock::new(|| GroupVersionKind::new("autoscaling", "v1", "Scale"));

fn scale_kind() -> GroupVersionKind {
    SCALE.clone()
}

/// The subject under which owners of a scale's fields are recorded.
fn window() -> Result<Subject<'static>, RegistryError> {
    let (schema, ty) = scale_type()?;
    Ok(Subject::window(schema, ty, &SCALE, "scale"))
}

fn replicas(scale: &Tree) -> i64 {
    scale.at(&["spec", "replicas"]).and_then(Ref::as_i64).unwrap_or(0)
}

impl ScaleChange {
    /// The scale that a configuration makes of the one that the live object shows.
    fn applied(&self, live: &Tree, configuration: &Configuration) -> Result<Tree, RegistryError> {
        let window = window()?;
        let mut shown = scale_or_unset(live, &self.paths)?;
        managed_fields::to_scale(self.store.subject(ObjectPart::Main), window, live, &mut shown);
        let Configuration { scale, writer, force } = configuration;
        let made = managed_fields::apply(window, writer, Some(&shown), scale, *force);
        made.map_err(apply::refusal)
    }

    /// The body is of the object of the address.
    fn check_name(&self, scale: &Tree) -> Result<(), RegistryError> {
        let namespace = metadata::namespace(scale);
        if self.store.row.namespaced && !namespace.is_empty() {
            metadata::same_namespace(namespace, &self.namespace)?;
        }
        bodies::check_name(scale, &self.name)
    }

    fn check(&self, scale: &Tree, live: &Tree) -> Result<(), RegistryError> {
        let replicas = replicas(scale);
        if replicas == UNSET && self.paths.custom {
            let path = self.paths.spec_replicas.join(".");
            return Err(RegistryError::BadRequest(format!(
                "the spec replicas field \".{path}\" cannot be empty"
            )));
        }
        if replicas < 0 {
            return Err(self.negative(replicas));
        }
        let (wanted, uid) = (metadata::uid(scale), metadata::uid(live));
        if wanted.is_empty() || wanted == uid {
            return Ok(());
        }
        let resource = GroupResource::new(
            &self.store.row.gvk.group,
            format!("{}/scale", self.store.row.plural),
        );
        let detail = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}");
        Err(RegistryError::conflict(&resource, &self.name, detail))
    }

    /// The error for negative replicas. Of a custom object upstream looks at the object that the scale would make.
    fn negative(&self, replicas: i64) -> RegistryError {
        let (kind, path, detail) = if self.paths.custom {
            let path = FieldPath::new(&format!(".{}", self.paths.spec_replicas.join(".")));
            (
                self.store.row.gvk.group_kind(),
                path,
                "should be a non-negative integer",
            )
        } else {
            let kind = scale_kind().group_kind();
            let path = FieldPath::new("spec").child("replicas");
            (kind, path, "must be greater than or equal to 0")
        };
        RegistryError::Invalid {
            kind,
            name: self.name.clone(),
            errors: vec![FieldError::invalid(&path, replicas, detail)],
        }
    }
}
