//! Variables of expressions about requests: match conditions, admission policies (upstream's `plugin/cel`).

use crate::env::{Env, ObjectTypes, Provider};
use crate::types::Type;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Cost of all match conditions of one webhook or policy (upstream's `RuntimeCELCostBudgetMatchConditions`).
pub const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;

/// Variables beside those that all such expressions have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AdmissionVariables {
    pub params: bool,
    pub authorizer: bool,
    /// The expression makes what changes an object (mutating policies).
    pub mutation: bool,
}

/// The name of the variable that has a policy's variables.
const VARIABLES: &str = "variables";
const VARIABLES_TYPE: &str = "kubernetes.variables";

static TYPES: LazyLock<Arc<ObjectTypes>> = LazyLock::new(|| Arc::new(types()));

/// The environment of expressions about requests.
pub fn admission_env(variables: AdmissionVariables) -> Env {
    let mut env = Env::new()
        .types(TYPES.clone())
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
    match variables.mutation {
        true => env.with_mutation(),
        false => env,
    }
}

/// The variables of a policy: each is declared once the ones before it are, and what follows may use it.
#[derive(Debug, Clone, Default)]
pub struct Composition(Arc<Composed>);

#[derive(Debug, Default)]
struct Composed(RwLock<HashMap<String, Type>>);

impl Composition {
    /// Declares a variable with the type of its expression; one that does not compile may have any.
    pub fn declare(&self, name: &str, ty: Option<&Type>) {
        let ty = ty.map_or(Type::Dyn, declared);
        self.0.0.write().insert(name.to_owned(), ty);
    }

    /// The environment with these variables beside the others.
    #[must_use]
    pub fn extend(&self, env: Env) -> Env {
        env.types(self.0.clone())
            .variable(VARIABLES, Type::object(VARIABLES_TYPE))
    }
}

impl Provider for Composed {
    fn has_type(&self, name: &str) -> bool {
        name == VARIABLES_TYPE
    }

    fn field(&self, type_name: &str, field: &str) -> Option<Type> {
        let known = self.0.read();
        known.get(field).filter(|_| type_name == VARIABLES_TYPE).cloned()
    }
}

/// The type of a variable by that of its expression (upstream's `convertCelTypeToDeclType`).
fn declared(ty: &Type) -> Type {
    match ty {
        Type::Any
        | Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => ty.clone(),
        Type::List(item) => Type::list(declared(item)),
        Type::Map(own) => Type::map(declared(&own.0), declared(&own.1)),
        _ => Type::Dyn,
    }
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
            authorizer: true,
            ..AdmissionVariables::default()
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

    #[test]
    fn policies_variables_have_the_types_of_their_expressions() {
        let composition = Composition::default();
        let env = composition.extend(admission_env(AdmissionVariables::default()));
        let of = |text: &str| env.compile(text).map(|own| own.ty().clone());
        let issue = |text: &str| of(text).unwrap_err().to_string();
        assert!(issue("variables.a").contains("undefined field 'a'"));
        for (name, text) in [
            ("a", "[1]"),
            ("b", "variables.a[0]"),
            ("c", "object.x"),
            ("d", "request"),
        ] {
            composition.declare(name, of(text).ok().as_ref());
        }
        composition.declare("e", None);
        assert_eq!(of("variables.b").unwrap(), Type::Int);
        for any in ["c", "d.x", "e"] {
            assert_eq!(of(&format!("variables.{any}")).unwrap(), Type::Dyn, "{any}");
        }
        assert!(issue("variables.a == 'x'").contains("found no matching overload"));
    }
}
