//! Applying a patch, and what upstream answers to one that cannot be applied.

use crate::negotiation::PatchType;
use apiserver_registry::options::FieldValidation;
use apiserver_registry::{RegistryError, RequestContext};
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
        PatchError::TooManyOperations { .. } => RegistryError::TooLargePatch(error.to_string()),
        PatchError::DoesNotApply(cause) => RegistryError::Unprocessable(cause.clone()),
        PatchError::Unmergeable(message) => RegistryError::Unclassified(message.clone()),
        PatchError::Result { error, document } => invalid(document, error.to_string()),
    }
}
