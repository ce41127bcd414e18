//! Members of a policy: the kind of its parameters, what it is for, conditions and variables.

use super::binding::match_resources;
use crate::kinds::admissionregistration::expressions::{
    Declared, Known, Written, expression, match_conditions,
};
use crate::shared::validation::{Errors, Path, one_of, present};
use machinery_cel::{AdmissionVariables, Composition, Type, is_reserved};
use machinery_meta::syntax;
use machinery_schema::Ref;

/// Compiles the expressions of one policy, in the order of their fields.
#[derive(Debug)]
pub(in crate::kinds::admissionregistration) struct Compiler {
    params: bool,
    /// `None` where the policy may have no variables, or has none.
    composition: Option<Composition>,
}

impl Compiler {
    /// `composes` says that the policy's variables are declared even where there are none.
    pub(in crate::kinds::admissionregistration) fn new(spec: Ref<'_>, composes: bool) -> Self {
        let has_variables = spec.list("variables").len() > 0;
        Self {
            params: present(spec, "paramKind").is_some(),
            composition: (composes || has_variables).then(Composition::default),
        }
    }

    fn declared(&self, variables: AdmissionVariables) -> Declared<'_> {
        Declared {
            variables: AdmissionVariables {
                params: self.params,
                ..variables
            },
            composition: self.composition.as_ref(),
        }
    }

    /// Checks an expression that may ask the authorizer.
    pub(in crate::kinds::admissionregistration) fn usual(
        &self,
        errors: &mut Errors,
        path: &Path<'_>,
        own: Written<'_>,
        types: &[Type],
    ) -> Option<Type> {
        let variables = AdmissionVariables {
            authorizer: true,
            ..AdmissionVariables::default()
        };
        expression(errors, path, own, self.declared(variables), types)
    }

    /// Checks an expression that makes a message.
    pub(in crate::kinds::admissionregistration) fn message(
        &self,
        errors: &mut Errors,
        path: &Path<'_>,
        own: Written<'_>,
    ) {
        let declared = self.declared(AdmissionVariables::default());
        expression(errors, path, own, declared, &[Type::String]);
    }

    /// Checks an expression that makes a change.
    pub(in crate::kinds::admissionregistration) fn mutation(
        &self,
        errors: &mut Errors,
        path: &Path<'_>,
        own: Written<'_>,
        ty: &Type,
    ) {
        let variables = AdmissionVariables {
            authorizer: true,
            mutation: true,
            params: false,
        };
        let declared = self.declared(variables);
        expression(errors, path, own, declared, std::slice::from_ref(ty));
    }

    fn variable(&self, errors: &mut Errors, path: &Path<'_>, own: Ref<'_>, known: &Known<'_>) {
        let (name, text) = (own.str("name"), own.str("expression"));
        if name.trim().is_empty() {
            errors.required(&path.child("name"), "name is not specified");
        } else if !is_identifier(name) {
            errors.invalid(&path.child("name"), name, "must be a valid CEL identifier");
        }
        let at = path.child("expression");
        if text.trim().is_empty() {
            return errors.required(&at, "expression is not specified");
        }
        let ty = self.usual(errors, &at, Written::of(text, known), &[]);
        if let Some(composition) = &self.composition {
            composition.declare(name, ty.as_ref());
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    let begins = letters
        .next()
        .is_some_and(|own| own == '_' || own.is_ascii_alphabetic());
    begins && letters.all(|own| own == '_' || own.is_ascii_alphanumeric()) && !is_reserved(name)
}

/// Reports whether nothing has changed that match conditions depend on.
pub(in crate::kinds::admissionregistration) fn same_conditions(new: Ref<'_>, old: Ref<'_>) -> bool {
    ["paramKind", "matchConditions"].iter().all(|name| {
        let of = |own| {
            let own = present(own, name)?;
            (!own.is_empty()).then(|| own.to_json())
        };
        of(new) == of(old)
    })
}

/// Expressions of a stored policy, by what they are for.
pub(in crate::kinds::admissionregistration) struct Stored<'a> {
    pub(in crate::kinds::admissionregistration) conditions: Known<'a>,
    pub(in crate::kinds::admissionregistration) usual: Known<'a>,
    /// Nothing has changed that conditions depend on.
    pub(in crate::kinds::admissionregistration) same_conditions: bool,
}

/// Members before those that are of one kind of policies.
pub(in crate::kinds::admissionregistration) fn spec(
    errors: &mut Errors,
    path: &Path<'_>,
    spec: Ref<'_>,
    compiler: &Compiler,
    stored: &Stored<'_>,
    constraints: impl FnOnce(&mut Errors, Ref<'_>),
) {
    one_of(errors, path, spec, "failurePolicy", &["Fail", "Ignore"], Some(""));
    if let Some(kind) = present(spec, "paramKind") {
        param_kind(errors, &path.child("paramKind"), kind);
    }
    let at = path.child("matchConstraints");
    match present(spec, "matchConstraints") {
        None => errors.required(&at, ""),
        Some(own) => {
            match_resources(errors, &at, own);
            if own.list("resourceRules").len() == 0 {
                errors.required(&at.child("resourceRules"), "");
            }
            constraints(errors, own);
        }
    }
    if !stored.same_conditions {
        let at = path.child("matchConditions");
        match_conditions(errors, &at, spec, compiler.params, &stored.conditions);
    }
    let at = path.child("variables");
    for (index, own) in spec.list("variables").enumerate() {
        compiler.variable(errors, &at.index(index), own, &stored.usual);
    }
}

fn param_kind(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>) {
    let (whole, at) = (own.str("apiVersion"), path.child("apiVersion"));
    let invalid = |errors: &mut Errors, value: &str, problems: Vec<String>| {
        if !problems.is_empty() {
            errors.invalid(&path.child("apiVersion"), value, problems.join(","));
        }
    };
    let (group, version) = match whole {
        "/" => ("", ""),
        own => own.split_once('/').unwrap_or(("", own)),
    };
    if whole.is_empty() {
        errors.required(&at, "");
    } else if version.contains('/') {
        errors.invalid(&at, whole, format!("unexpected GroupVersion string: {whole}"));
    } else {
        if !group.is_empty() {
            invalid(errors, group, syntax::dns1123_subdomain(group));
        }
        match version {
            "" => errors.invalid(&at, whole, "version must be specified"),
            own => invalid(errors, own, syntax::dns1035_label(own)),
        }
    }
    let kind = own.str("kind");
    if kind.is_empty() {
        return errors.required(&path.child("kind"), "");
    }
    let problems = syntax::dns1035_label(&kind.to_lowercase());
    if !problems.is_empty() {
        let detail = format!(
            "may have mixed case, but should otherwise match: {}",
            problems.join(",")
        );
        errors.invalid(&path.child("kind"), kind, detail);
    }
}
