//! Policies and bindings, compiled once when they are written.

use crate::expressions::{Expression, Variables};
use crate::matching::{Constraints, selector};
use k8s_openapi::api::admissionregistration::v1::{
    AuditAnnotation, MatchCondition, MatchResources, ParamKind, ParamRef, Validation, Variable,
};
use machinery_cel::{AdmissionVariables, Composition, Env, Type, admission_env};
use machinery_meta::GroupVersionKind;
use machinery_meta::label_selector::LabelSelector;
use serde::Deserialize;

/// A policy or binding that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PolicyProblem(String);

#[derive(Debug, Deserialize)]
struct Written<S> {
    spec: S,
}

fn read<S: for<'de> Deserialize<'de>>(json: &[u8]) -> Result<S, PolicyProblem> {
    let written: Written<S> =
        serde_json::from_slice(json).map_err(|error| PolicyProblem(error.to_string()))?;
    Ok(written.spec)
}

/// Members that policies of both kinds have.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PolicySpec {
    #[serde(default)]
    param_kind: Option<ParamKind>,
    #[serde(default)]
    match_constraints: Option<MatchResources>,
    #[serde(default)]
    match_conditions: Option<Vec<MatchCondition>>,
    #[serde(default)]
    variables: Option<Vec<Variable>>,
    #[serde(default)]
    failure_policy: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ValidatingSpec {
    #[serde(flatten)]
    shared: PolicySpec,
    #[serde(default)]
    validations: Option<Vec<Validation>>,
    #[serde(default)]
    audit_annotations: Option<Vec<AuditAnnotation>>,
}

#[derive(Debug, Deserialize)]
struct WrittenExpression {
    #[serde(default)]
    expression: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMutation {
    #[serde(default)]
    patch_type: String,
    #[serde(default)]
    apply_configuration: Option<WrittenExpression>,
    #[serde(default)]
    json_patch: Option<WrittenExpression>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MutatingSpec {
    #[serde(flatten)]
    shared: PolicySpec,
    #[serde(default)]
    mutations: Option<Vec<WrittenMutation>>,
    #[serde(default)]
    reinvocation_policy: String,
}

/// Compiled members that policies of both kinds have.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) name: String,
    pub(crate) constraints: Option<Constraints>,
    pub(crate) param_kind: Option<GroupVersionKind>,
    pub(crate) conditions: Vec<Expression>,
    pub(crate) variables: Variables,
    /// Requests pass where it cannot be evaluated.
    pub(crate) ignores_failure: bool,
}

/// Environments of a policy's expressions, which know its variables once they are declared.
pub(crate) struct Environments {
    with_params: bool,
    composition: Composition,
}

impl Environments {
    /// The environment with these variables beside those that are declared.
    pub(crate) fn of(&self, variables: AdmissionVariables) -> Env {
        let params = self.with_params;
        let env = admission_env(AdmissionVariables { params, ..variables });
        self.composition.extend(env).for_stored()
    }

    /// The environment of most expressions.
    pub(crate) fn usual(&self) -> Env {
        self.of(AdmissionVariables {
            authorizer: true,
            ..AdmissionVariables::default()
        })
    }
}

impl Policy {
    fn compile(name: &str, spec: PolicySpec) -> (Self, Environments) {
        let environments = Environments {
            with_params: spec.param_kind.is_some(),
            composition: Composition::default(),
        };
        let env = environments.usual();
        let mut variables = Variables::default();
        for own in spec.variables.unwrap_or_default() {
            let (expression, ty) = Expression::compile(&env, &own.expression, &[]);
            environments.composition.declare(&own.name, ty.as_ref());
            variables.push(&own.name, expression);
        }
        let conditions = spec.match_conditions.unwrap_or_default().into_iter();
        let policy = Self {
            name: name.to_owned(),
            constraints: spec.match_constraints.map(Constraints::from),
            param_kind: spec.param_kind.map(|own| kind(&own)),
            conditions: conditions
                .map(|own| Expression::compile(&env, &own.expression, &[Type::Bool]).0)
                .collect(),
            variables,
            ignores_failure: spec.failure_policy.as_deref() == Some("Ignore"),
        };
        (policy, environments)
    }
}

fn kind(written: &ParamKind) -> GroupVersionKind {
    let version = written.api_version.as_deref().unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    GroupVersionKind::new(group, version, written.kind.as_deref().unwrap_or_default())
}

/// One validation of a policy.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) expression: Expression,
    pub(crate) message: String,
    pub(crate) message_expression: Option<Expression>,
    /// Of a `Status`.
    pub(crate) reason: String,
}

/// One annotation that a policy adds to audit events.
#[derive(Debug)]
pub(crate) struct Annotation {
    pub(crate) key: String,
    pub(crate) value: Expression,
}

/// A ValidatingAdmissionPolicy.
#[derive(Debug)]
pub struct ValidatingPolicy {
    pub(crate) policy: Policy,
    pub(crate) checks: Vec<Check>,
    pub(crate) annotations: Vec<Annotation>,
}

impl ValidatingPolicy {
    /// Compiles a policy, given as JSON.
    ///
    /// # Errors
    /// The JSON is no policy.
    pub fn compile(name: &str, json: &[u8]) -> Result<Self, PolicyProblem> {
        let spec: ValidatingSpec = read(json)?;
        let (policy, environments) = Policy::compile(name, spec.shared);
        let env = environments.usual();
        // Messages are made for the refused user, and may not reveal what others may do.
        let messages = environments.of(AdmissionVariables::default());
        let check = |own: Validation| Check {
            expression: Expression::compile(&env, &own.expression, &[Type::Bool]).0,
            message: own.message.unwrap_or_default(),
            message_expression: own
                .message_expression
                .filter(|text| !text.is_empty())
                .map(|text| Expression::compile(&messages, &text, &[Type::String]).0),
            reason: own.reason.unwrap_or_else(|| "Invalid".to_owned()),
        };
        let annotation = |own: AuditAnnotation| Annotation {
            key: own.key,
            value: Expression::compile(&env, &own.value_expression, &[Type::String, Type::Null]).0,
        };
        let (validations, annotations) = (spec.validations, spec.audit_annotations);
        Ok(Self {
            policy,
            checks: validations.into_iter().flatten().map(check).collect(),
            annotations: annotations.into_iter().flatten().map(annotation).collect(),
        })
    }
}

/// A change that an expression makes.
#[derive(Debug)]
pub(crate) enum Mutation {
    /// A configuration that is merged into the object, as server-side apply does.
    Apply(Expression),
    /// A list of operations.
    JsonPatch(Expression),
}

/// A MutatingAdmissionPolicy.
#[derive(Debug)]
pub struct MutatingPolicy {
    pub(crate) policy: Policy,
    pub(crate) mutations: Vec<Mutation>,
    pub(crate) wants_reinvocation: bool,
}

impl MutatingPolicy {
    /// Compiles a policy, given as JSON.
    ///
    /// # Errors
    /// The JSON is no policy.
    pub fn compile(name: &str, json: &[u8]) -> Result<Self, PolicyProblem> {
        let spec: MutatingSpec = read(json)?;
        let (policy, environments) = Policy::compile(name, spec.shared);
        let env = environments.of(AdmissionVariables {
            authorizer: true,
            mutation: true,
            params: false,
        });
        let mutation = |own: WrittenMutation| {
            let compiled = |own: WrittenExpression, ty| Expression::compile(&env, &own.expression, &[ty]).0;
            match own.patch_type.as_str() {
                "JSONPatch" => {
                    let ty = Type::list(Type::object("JSONPatch"));
                    own.json_patch.map(|own| Mutation::JsonPatch(compiled(own, ty)))
                }
                "ApplyConfiguration" => {
                    let configuration = own.apply_configuration;
                    configuration.map(|own| Mutation::Apply(compiled(own, Type::object("Object"))))
                }
                _ => None,
            }
        };
        let mutations = spec.mutations.into_iter().flatten();
        Ok(Self {
            policy,
            mutations: mutations.filter_map(mutation).collect(),
            wants_reinvocation: spec.reinvocation_policy == "IfNeeded",
        })
    }
}

/// The parameters that a binding names.
#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// Of the objects that are meant where there is no name.
    pub(crate) selector: Option<Result<LabelSelector, String>>,
    /// Requests are refused where there are none.
    pub(crate) denies_without: bool,
}

impl From<ParamRef> for Reference {
    fn from(written: ParamRef) -> Self {
        Self {
            name: written.name.unwrap_or_default(),
            namespace: written.namespace.unwrap_or_default(),
            selector: written.selector.as_ref().map(|own| selector(Some(own))),
            denies_without: written.parameter_not_found_action.as_deref() == Some("Deny"),
        }
    }
}

/// Consequence of a validation that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Deny,
    Warn,
    Audit,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BindingSpec {
    #[serde(default)]
    policy_name: String,
    #[serde(default)]
    param_ref: Option<ParamRef>,
    #[serde(default)]
    match_resources: Option<MatchResources>,
    #[serde(default)]
    validation_actions: Option<Vec<String>>,
}

/// A binding of either kind of policies.
#[derive(Debug)]
pub struct Binding {
    pub(crate) name: String,
    policy: String,
    pub(crate) params: Option<Reference>,
    pub(crate) constraints: Option<Constraints>,
    pub(crate) actions: Vec<Action>,
    /// The actions as they are written.
    pub(crate) action_names: Vec<String>,
}

impl Binding {
    /// Compiles a binding, given as JSON.
    ///
    /// # Errors
    /// The JSON is no binding.
    pub fn compile(name: &str, json: &[u8]) -> Result<Self, PolicyProblem> {
        let spec: BindingSpec = read(json)?;
        let action_names = spec.validation_actions.unwrap_or_default();
        let actions = action_names.iter().filter_map(|own| match own.as_str() {
            "Deny" => Some(Action::Deny),
            "Warn" => Some(Action::Warn),
            "Audit" => Some(Action::Audit),
            _ => None,
        });
        Ok(Self {
            name: name.to_owned(),
            policy: spec.policy_name,
            params: spec.param_ref.map(Reference::from),
            constraints: spec.match_resources.map(Constraints::from),
            actions: actions.collect(),
            action_names,
        })
    }

    /// The name of its policy.
    pub fn policy(&self) -> &str {
        &self.policy
    }
}
