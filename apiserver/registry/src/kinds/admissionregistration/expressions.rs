//! Expressions about requests: they must compile before they are stored.

use crate::shared::validation::{Errors, Path};
use machinery_cel::{AdmissionVariables, Composition, Env, ExpressionProblem, Type, admission_env};
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;
use std::collections::HashSet;

const MAX_CONDITIONS: usize = 64;

/// Expressions that the stored object has: they may use what is too new for others.
pub(super) type Known<'a> = HashSet<&'a str>;

/// The environment that an expression is compiled in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Declared<'a> {
    pub(super) variables: AdmissionVariables,
    /// The policy's variables, where they may be used.
    pub(super) composition: Option<&'a Composition>,
}

impl Declared<'_> {
    fn env(self, is_known: bool) -> Env {
        let env = admission_env(self.variables);
        let env = match self.composition {
            Some(composition) => composition.extend(env),
            None => env,
        };
        match is_known {
            true => env.for_stored(),
            false => env,
        }
    }
}

/// An expression as it is compiled, as it is shown, and whether the stored object has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written<'a> {
    pub(super) text: &'a str,
    pub(super) shown: &'a str,
    pub(super) is_known: bool,
}

impl<'a> Written<'a> {
    pub(super) fn of(text: &'a str, known: &Known<'_>) -> Self {
        Self {
            text,
            shown: text,
            is_known: known.contains(text),
        }
    }
}

/// Checks an expression whose value has one of these types, and returns which.
pub(super) fn expression(
    errors: &mut Errors,
    path: &Path<'_>,
    own: Written<'_>,
    declared: Declared<'_>,
    types: &[Type],
) -> Option<Type> {
    match declared.env(own.is_known).compile_as(own.text, types) {
        Ok((_, ty)) => return Some(ty),
        Err(ExpressionProblem::Invalid(why)) => errors.invalid(path, own.shown, why),
        Err(ExpressionProblem::Internal(why)) => errors.note(|| FieldError::internal(&path.to_path(), why)),
    }
    None
}

/// The match conditions of a webhook or policy.
pub(super) fn match_conditions(
    errors: &mut Errors,
    path: &Path<'_>,
    own: Ref<'_>,
    params: bool,
    known: &Known<'_>,
) {
    let count = own.list("matchConditions").len();
    if count > MAX_CONDITIONS {
        errors.too_many(path, count, MAX_CONDITIONS);
    }
    let declared = Declared {
        variables: AdmissionVariables {
            params,
            authorizer: true,
            mutation: false,
        },
        composition: None,
    };
    let mut names = HashSet::new();
    for (index, condition) in own.list("matchConditions").enumerate() {
        let path = path.index(index);
        let at = path.child("expression");
        match condition.str("expression").trim() {
            "" => errors.required(&at, ""),
            text => {
                expression(errors, &at, Written::of(text, known), declared, &[Type::Bool]);
            }
        }
        let name = condition.str("name");
        if name.is_empty() {
            errors.required(&path.child("name"), "");
            continue;
        }
        errors.all_invalid(&path.child("name"), name, syntax::qualified_name(name));
        if !names.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
    }
}

/// Expressions of the match conditions of a webhook or policy.
pub(super) fn conditions_of<'a>(own: Ref<'a>) -> impl Iterator<Item = &'a str> {
    own.list("matchConditions")
        .map(|condition| condition.str("expression"))
}
