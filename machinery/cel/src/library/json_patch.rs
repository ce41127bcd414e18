//! JSON patches that expressions make.

use super::{Function, text};
use crate::env::JSON_PATCH;
use crate::value::{EvalError, Value};
use std::sync::Arc;

pub(super) fn function(name: &str) -> Option<Function> {
    match name {
        "jsonpatch.escapeKey" => Some(|meter, args| match args {
            [Value::String(own)] => Some(text(own.as_str().replace('~', "~0").replace('/', "~1"), meter)),
            _ => None,
        }),
        _ => None,
    }
}

/// Checks the fields of an object that is made.
pub(crate) fn check(type_name: &str, fields: &[(Arc<str>, Value<'_>)]) -> Result<(), EvalError> {
    if type_name != JSON_PATCH {
        return Ok(());
    }
    for (name, value) in fields {
        match &**name {
            "op" | "path" | "from" if value.as_str().is_none() => {
                let ty = value.ty();
                let message = format!("unexpected type {} for JSONPatchType '{name}' field", ty.name());
                return Err(EvalError::new(message));
            }
            "op" | "path" | "from" | "value" => {}
            _ => return Err(EvalError::new(format!("unexpected JSONPatchType field: {name}"))),
        }
    }
    Ok(())
}
