//! Variables of expressions about requests: match conditions, admission policies (upstream's `plugin/cel`).

use crate::env::{Env, ObjectTypes};
use crate::types::Type;
use std::sync::Arc;

/// Cost of all match conditions of one webhook or policy (upstream's `RuntimeCELCostBudgetMatchConditions`).
pub const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;

/// Variables beside those that all such expressions have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionVariables {
    pub params: bool,
    pub authorizer: bool,
}

/// The environment of expressions about requests.
pub fn admission_env(variables: AdmissionVariables) -> Env {
    let mut env = Env::new()
        .types(Arc::new(types()))
        .variable("object", Type::Dyn)
        .variable("oldObject", Type::Dyn)
        .variable("namespaceObject", Type::object("kubernetes.Namespace"))
        .variable("request", Type::object("kubernetes.AdmissionRequest"));
    if variables.params {
        env = env.variable("params", Type::Dyn);
    }
    if variables.authorizer {
        let of = |name: &str| Type::object(&format!("kubernetes.authorization.{name}"));
        env = env
            .variable("authorizer", of("Authorizer"))
            .variable("authorizer.requestResource", of("ResourceCheck"));
    }
    env
}

fn types() -> ObjectTypes {
    let (text, texts) = (Type::String, Type::list(Type::String));
    let labels = Type::map(Type::String, Type::String);
    let named = |names: &'static [&'static str]| names.iter().map(|name| (*name, Type::String));
    let fields = |names, more: &[(&'static str, Type)]| -> Vec<(&'static str, Type)> {
        named(names).chain(more.iter().cloned()).collect()
    };
    let request = fields(
        &[
            "subResource",
            "requestSubResource",
            "name",
            "namespace",
            "operation",
        ],
        &[
            ("kind", Type::object("kubernetes.GroupVersionKind")),
            ("resource", Type::object("kubernetes.GroupVersionResource")),
            ("requestKind", Type::object("kubernetes.GroupVersionKind")),
            ("requestResource", Type::object("kubernetes.GroupVersionResource")),
            ("userInfo", Type::object("kubernetes.UserInfo")),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    );
    let metadata = fields(
        &["name", "generateName", "namespace", "UID", "resourceVersion"],
        &[
            ("labels", labels.clone()),
            ("annotations", labels),
            ("creationTimestamp", Type::Timestamp),
            ("deletionTimestamp", Type::Timestamp),
            ("deletionGracePeriodSeconds", Type::Int),
            ("generation", Type::Int),
            ("finalizers", texts.clone()),
        ],
    );
    let condition = fields(
        &["status", "type", "message", "reason"],
        &[("lastTransitionTime", Type::Timestamp)],
    );
    let conditions = Type::list(Type::object("kubernetes.NamespaceCondition"));
    let user = fields(
        &["username", "uid"],
        &[
            ("groups", texts.clone()),
            ("extra", Type::map(Type::String, texts.clone())),
        ],
    );
    let namespace = [
        ("metadata", Type::object("kubernetes.NamespaceMetadata")),
        ("spec", Type::object("kubernetes.NamespaceSpec")),
        ("status", Type::object("kubernetes.NamespaceStatus")),
    ];
    ObjectTypes::new()
        .with(
            "kubernetes.GroupVersionKind",
            &fields(&["group", "version", "kind"], &[]),
        )
        .with(
            "kubernetes.GroupVersionResource",
            &fields(&["group", "version", "resource"], &[]),
        )
        .with("kubernetes.UserInfo", &user)
        .with("kubernetes.AdmissionRequest", &request)
        .with("kubernetes.NamespaceMetadata", &metadata)
        .with("kubernetes.NamespaceSpec", &[("finalizers", texts)])
        .with("kubernetes.NamespaceCondition", &condition)
        .with(
            "kubernetes.NamespaceStatus",
            &[("conditions", conditions), ("phase", text)],
        )
        .with("kubernetes.Namespace", &namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<Type, &str>) {
        let env = admission_env(AdmissionVariables {
            params: false,
            authorizer: true,
        });
        match (env.compile(text), expected) {
            (Ok(compiled), Ok(ty)) => assert_eq!(*compiled.ty(), ty, "{text}"),
            (Err(issues), Err(why)) => assert!(issues.to_string().contains(why), "{text}: {issues}"),
            (found, _) => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn admission_expressions_have_upstreams_variables() {
        check("object.metadata.name == 'x' || oldObject == null", Ok(Type::Bool));
        check("request.userInfo.groups.exists(own, own == 'a')", Ok(Type::Bool));
        check("request.userInfo.extra['a'][0]", Ok(Type::String));
        check("request.options.dryRun[0] == 'All'", Ok(Type::Bool));
        check("namespaceObject.metadata.labels.size()", Ok(Type::Int));
        check(
            "authorizer.requestResource.check('create').allowed()",
            Ok(Type::Bool),
        );
        check(
            "authorizer.group('').resource('pods').check('get').allowed()",
            Ok(Type::Bool),
        );
        check("params.x", Err("undeclared reference to 'params'"));
        check("request.nothing", Err("undefined field 'nothing'"));
    }
}
