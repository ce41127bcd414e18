//! Applying a patch, and what upstream answers to one that cannot be applied.

use crate::bodies::{self, Expected};
use crate::negotiation::PatchType;
use apiserver_registry::options::FieldValidation;
use apiserver_registry::{RegistryError, RequestContext, metadata};
use machinery_meta::{FieldError, FieldPath, GroupKind};
use machinery_schema::{PatchError, Strictness, Tree, apply_patch};

/// Applies a patch of any type to an object; unknown and duplicate fields are refused, warned of or ignored.
pub(crate) fn apply(
    ctx: &RequestContext,
    kind: PatchType,
    live: &Tree,
    patch: &[u8],
    validation: FieldValidation,
) -> Result<Tree, RegistryError> {
    let how = match kind {
        PatchType::Json => machinery_schema::PatchType::Json,
        PatchType::Merge => machinery_schema::PatchType::Merge,
        PatchType::Strategic => machinery_schema::PatchType::StrategicMerge,
        PatchType::Apply(_) => return Err(RegistryError::Internal("apply is answered before".into())),
    };
    let strictness = if validation == FieldValidation::Ignore {
        Strictness::Ignore
    } else {
        Strictness::Report
    };
    let patched = apply_patch(live, how, patch, strictness).map_err(|error| answer(&error))?;
    match validation {
        FieldValidation::Strict if !patched.strict_errors.is_empty() => {
            let detail = format!("strict decoding error: {}", patched.strict_errors.join(", "));
            return Err(invalid(&patched.tree.root().to_json(), detail));
        }
        FieldValidation::Warn => {
            patched
                .strict_errors
                .into_iter()
                .for_each(|problem| ctx.warnings.add(problem));
        }
        _ => {}
    }
    Ok(patched.tree)
}

/// A patch may not make an object of another kind. The kind in a strategic merge patch is not looked at.
pub(crate) fn check_kind(
    expected: &Expected<'_>,
    kind: PatchType,
    live: &Tree,
    patch: &[u8],
    object: &Tree,
) -> Result<(), RegistryError> {
    let how = match kind {
        PatchType::Json => machinery_schema::PatchType::Json,
        PatchType::Merge => machinery_schema::PatchType::Merge,
        PatchType::Strategic | PatchType::Apply(_) => return Ok(()),
    };
    let wanted = &expected.gvk;
    let (api_version, own_kind) = (object.str_at(&["apiVersion"]), object.str_at(&["kind"]));
    if api_version == wanted.api_version() && own_kind == wanted.kind {
        return Ok(());
    }
    let quoted = |problem: &dyn Fn(&str) -> String| {
        let document =
            machinery_schema::patched_document(live, how, patch).map_err(|error| answer(&error))?;
        Err(invalid(&document, problem(&document)))
    };
    if expected.custom {
        return match (own_kind, api_version) {
            ("", _) => quoted(&|document| format!("Object 'Kind' is missing in '{document}'")),
            (_, "") => Err(RegistryError::Internal(
                "Object 'apiVersion' is missing in 'object has no apiVersion field'".into(),
            )),
            _ => Err(bodies::other_custom_kind(wanted, object)),
        };
    }
    if api_version.is_empty() {
        let name = metadata::name(live);
        return Err(RegistryError::BadRequest(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    match bodies::other_kind(wanted, api_version, own_kind) {
        Some(problem) => quoted(&|_| problem.clone()),
        None => Ok(()),
    }
}

fn invalid(document: &str, detail: String) -> RegistryError {
    let error = FieldError::invalid(&FieldPath::new("patch"), document, detail);
    RegistryError::Invalid {
        kind: GroupKind::default(),
        name: String::new(),
        errors: vec![error],
    }
}

fn answer(error: &PatchError) -> RegistryError {
    match error {
        PatchError::BadPatch(message) => RegistryError::BadRequest(message.clone()),
        PatchError::TooManyOperations { .. } | PatchError::TooLarge(_) => {
            RegistryError::TooLargePatch(error.to_string())
        }
        PatchError::DoesNotApply(cause) => RegistryError::Unprocessable(cause.clone()),
        PatchError::Unmergeable(message) => RegistryError::Unclassified(message.clone()),
        PatchError::Result { error, document } => invalid(document, error.to_string()),
    }
}
