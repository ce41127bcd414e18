//! Type checks of expressions (upstream's `TypeChecker`).

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicySpec;
use machinery_cel::{AdmissionVariables, Composition, Declared, Env, Type, admission_env};
use machinery_meta::GroupVersionKind;
use std::sync::Arc;

/// Bytes of all warnings: the object that they are written into has a bound.
const MAX_BYTES: usize = 256 << 10;

/// Types of what a policy is for, and of its parameters.
#[derive(Debug, Default)]
pub(super) struct Types {
    pub(super) objects: Vec<(GroupVersionKind, Arc<Declared>)>,
    pub(super) params: Option<Arc<Declared>>,
}

/// A problem of an expression.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Warning {
    pub(super) field: String,
    pub(super) text: String,
}

/// The environment of a policy's expressions for one kind.
struct Checked<'a> {
    kind: &'a GroupVersionKind,
    env: Env,
}

/// Problems of a policy's validations and their messages.
pub(super) fn warnings(spec: &ValidatingAdmissionPolicySpec, types: &Types) -> Vec<Warning> {
    let kinds: Vec<_> = types
        .objects
        .iter()
        .map(|(kind, declared)| checked(spec, kind, declared, types.params.as_ref()))
        .collect();
    let (mut found, mut bytes) = (Vec::new(), 0);
    for (at, validation) in spec.validations.iter().flatten().enumerate() {
        let message = validation.message_expression.as_deref().unwrap_or_default();
        for (name, text) in [
            ("expression", validation.expression.as_str()),
            ("messageExpression", message),
        ] {
            let text = if text.is_empty() {
                String::new()
            } else {
                problems(text, &kinds)
            };
            bytes += text.len();
            if !text.is_empty() && bytes <= MAX_BYTES {
                let field = format!("spec.validations[{at}].{name}");
                found.push(Warning { field, text });
            }
        }
    }
    found
}

fn checked<'a>(
    spec: &ValidatingAdmissionPolicySpec,
    kind: &'a GroupVersionKind,
    declared: &Arc<Declared>,
    params: Option<&Arc<Declared>>,
) -> Checked<'a> {
    let ty = |own: Option<&Arc<Declared>>| own.and_then(|own| own.ty()).unwrap_or(Type::Dyn);
    let mut env = admission_env(AdmissionVariables {
        params: spec.param_kind.is_some(),
        authorizer: true,
        mutation: false,
    });
    let object = ty(Some(declared));
    env = env
        .variable("object", object.clone())
        .variable("oldObject", object)
        .types(declared.clone());
    if let Some(params) = params {
        env = env.variable("params", ty(Some(params))).types(params.clone());
    }
    let composition = Composition::default();
    let env = composition.extend(env).for_stored();
    for own in spec.variables.iter().flatten() {
        let compiled = env.compile(&own.expression).ok();
        composition.declare(&own.name, compiled.as_ref().map(machinery_cel::Compiled::ty));
    }
    Checked { kind, env }
}

/// Problems of an expression as upstream words them: each kind that it has problems for is on lines of its own.
fn problems(text: &str, kinds: &[Checked<'_>]) -> String {
    let of = |own: &Checked<'_>| {
        let issues = own.env.compile(text).err()?;
        let GroupVersionKind { group, version, kind } = own.kind;
        Some(format!("{group}/{version}, Kind={kind}: {issues}\n"))
    };
    let all: Vec<_> = kinds.iter().filter_map(of).collect();
    all.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_cel::Data;
    use serde_json::json;

    #[test]
    fn types_of_objects_are_checked_as_upstreams() {
        let schema = json!({"type": "object", "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}},
            "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}});
        let declared = Declared::named_from_schema(Data::from(&schema), true, "Deployment").unwrap();
        let kind = GroupVersionKind::new("apps", "v1", "Deployment");
        let types = Types {
            objects: vec![(kind, Arc::new(declared))],
            params: None,
        };
        let spec: ValidatingAdmissionPolicySpec = serde_json::from_value(json!({
            "variables": [{"name": "n", "expression": "object.spec.replicas"}, {"name": "wrong", "expression": "object.nope"}],
            "validations": [
                {"expression": "object.spec.replicas > 1 && variables.n > 1 && variables.wrong == 'x'"},
                {"expression": "object.spec.replicas > '1'", "messageExpression": "'wants replicas > 1, got ' + object.spec.replicas"},
                {"expression": "variables.n == 'x'"},
                {"expression": "authorizer.requestResource.check('get').allowed() && request.userInfo.username != '' && oldObject.spec.gone"},
            ],
        }))
        .unwrap();
        let found = warnings(&spec, &types);
        let fields: Vec<_> = found.iter().map(|own| own.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "spec.validations[1].expression",
                "spec.validations[1].messageExpression",
                "spec.validations[2].expression",
                "spec.validations[3].expression",
            ]
        );
        assert_eq!(
            found[0].text,
            "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'\n | object.spec.replicas > '1'\n | .....................^\n"
        );
        assert!(
            found[1]
                .text
                .contains("found no matching overload for '_+_' applied to '(string, int)'")
        );
        assert!(
            found[3].text.contains("undefined field 'gone'"),
            "{}",
            found[3].text
        );
    }
}
