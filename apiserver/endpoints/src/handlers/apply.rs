//! Server-side apply: the configuration in the body.

use crate::bodies;
use crate::hooks::Hooks;
use crate::request_info::RequestInfo;
use apiserver_registry::context::{LARGE_BODY_BYTES, LARGE_OBJECT_BYTES};
use apiserver_registry::managed_fields::{self, ApplyError, Subject, Writer};
use apiserver_registry::options::{FieldValidation, Preconditions};
use apiserver_registry::{ObjectPart, RegistryError, RequestContext, Store, UpdatedObject, metadata};
use async_trait::async_trait;
use machinery_meta::{GroupVersion, GroupVersionKind};
use machinery_schema::yaml::{Document, decode_document, decode_short_document};
use machinery_schema::{DecodeError, Kind, Tree, apply_defaults};

/// Any change; making a missing object takes the right to create.
pub(super) struct Authorized<'a> {
    pub(super) change: &'a dyn UpdatedObject,
    pub(super) info: &'a RequestInfo,
    pub(super) hooks: &'a dyn Hooks,
}

#[async_trait]
impl UpdatedObject for Authorized<'_> {
    async fn apply(&self, ctx: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        // A patch of nothing ends here, without a word on rights to create.
        let object = self.change.apply(ctx, live).await?;
        if live.is_none() {
            self.hooks.authorize(ctx, "create", self.info).await?;
        }
        Ok(object)
    }

    fn has_field_owners(&self) -> bool {
        self.change.has_field_owners()
    }

    fn kind(&self) -> Option<GroupVersionKind> {
        self.change.kind()
    }

    fn window(&self) -> Option<Subject<'_>> {
        self.change.window()
    }

    fn stored(&self, candidate: Tree, live: &Tree) -> Result<Tree, RegistryError> {
        self.change.stored(candidate, live)
    }

    fn view(&self, stored: &Tree) -> Result<Option<Tree>, RegistryError> {
        self.change.view(stored)
    }

    fn preconditions(&self) -> Preconditions {
        self.change.preconditions()
    }
}

/// An apply under way.
pub(super) struct Apply {
    pub(super) store: Store,
    pub(super) part: ObjectPart,
    pub(super) configuration: Tree,
    pub(super) writer: Writer,
    pub(super) force: bool,
    pub(super) name: String,
    pub(super) namespace: String,
}

#[async_trait]
impl UpdatedObject for Apply {
    async fn apply(&self, ctx: &RequestContext, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let size = live
            .map_or(0, Tree::arena_bytes)
            .max(self.configuration.arena_bytes());
        ctx.heavy_from(size, LARGE_OBJECT_BYTES).await?;
        self.applied(live)
    }

    fn has_field_owners(&self) -> bool {
        true
    }
}

impl Apply {
    fn applied(&self, live: Option<&Tree>) -> Result<Tree, RegistryError> {
        let uid = metadata::uid(&self.configuration);
        if live.is_none() && !uid.is_empty() {
            let detail = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(RegistryError::conflict(
                &self.store.row.group_resource(),
                &self.name,
                detail,
            ));
        }
        let subject = self.store.subject(self.part);
        let made = managed_fields::apply(subject, &self.writer, live, &self.configuration, self.force);
        let mut object = made.map_err(refusal)?;
        apply_defaults(&mut object);
        self.store.row.strategy.defaults(&mut object);
        // The configuration need not name the object that it is merged into.
        bodies::check_identity(&self.store.row, &object, &self.name, &self.namespace)?;
        Ok(object)
    }
}

pub(super) fn refusal(error: ApplyError) -> RegistryError {
    let message = error.to_string();
    match error {
        ApplyError::TooLong(_)
        | ApplyError::TooManyOwners
        | ApplyError::Result(DecodeError::TooManyValues | DecodeError::TooLarge { .. }) => {
            RegistryError::TooLargePatch(message)
        }
        ApplyError::Misfit { .. } | ApplyError::Record(_) | ApplyError::Result(_) => {
            RegistryError::Unclassified(message)
        }
        ApplyError::Conflicts(conflicts) => RegistryError::ApplyConflict {
            message,
            causes: conflicts
                .into_iter()
                .map(|conflict| apiserver_registry::error::Cause {
                    reason: "FieldManagerConflict".into(),
                    message: format!("conflict with {}", conflict.manager),
                    field: conflict.path,
                })
                .collect(),
        },
    }
}

/// Reads the document in a body; a long one, and one that may grow, among the heavy work.
async fn document(ctx: &RequestContext, bytes: &[u8]) -> Result<Document, RegistryError> {
    let short = match bytes.len() < LARGE_BODY_BYTES {
        true => decode_short_document(bytes),
        false => None,
    };
    let read = match short {
        Some(read) => read,
        None => {
            ctx.heavy().await?;
            decode_document(bytes)
        }
    };
    read.map_err(|error| unreadable(&error.to_string()))
}

fn unreadable(problem: &str) -> RegistryError {
    RegistryError::BadRequest(format!("error decoding patch: {problem}"))
}

/// Reads a configuration: an object of the kind without managed fields.
pub(super) async fn configuration(
    ctx: &RequestContext,
    gvk: &GroupVersionKind,
    bytes: &[u8],
    validation: FieldValidation,
) -> Result<Tree, RegistryError> {
    let document = document(ctx, bytes).await?;
    refuse_duplicate(ctx, document.duplicate, validation)?;
    let tree = document.tree;
    ctx.record_patch(|| tree.root().to_json().into());
    match tree.root().kind() {
        Kind::Map | Kind::Null => {}
        other => {
            let found = match other {
                Kind::List => "array",
                Kind::String => "string",
                Kind::Bool => "bool",
                _ => "number",
            };
            return Err(unreadable(&format!(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
            )));
        }
    }
    check_kind(gvk, &tree)?;
    if tree
        .at(&["metadata", "managedFields"])
        .is_some_and(|list| !list.is_null())
    {
        return Err(RegistryError::BadRequest(
            "metadata.managedFields must be nil".into(),
        ));
    }
    Ok(tree)
}

fn check_kind(gvk: &GroupVersionKind, tree: &Tree) -> Result<(), RegistryError> {
    let (api_version, kind) = (tree.str_at(&["apiVersion"]), tree.str_at(&["kind"]));
    if api_version == gvk.api_version() && kind == gvk.kind {
        return Ok(());
    }
    let found: GroupVersion = api_version.parse().unwrap_or_default();
    Err(RegistryError::BadRequest(format!(
        "invalid object type: {}/{}, Kind={kind}",
        found.group, found.version
    )))
}

/// Keys that occur twice, in the words of upstream's YAML reader.
fn refuse_duplicate(
    ctx: &RequestContext,
    duplicate: Option<(u64, String)>,
    validation: FieldValidation,
) -> Result<(), RegistryError> {
    let Some((line, key)) = duplicate.filter(|_| validation != FieldValidation::Ignore) else {
        return Ok(());
    };
    let problem = format!("line {line}: key {key:?} already set in map");
    if validation == FieldValidation::Strict {
        return Err(RegistryError::BadRequest(format!(
            "error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  {problem}"
        )));
    }
    ctx.warnings.add(problem);
    Ok(())
}
