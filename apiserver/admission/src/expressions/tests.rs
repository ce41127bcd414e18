use super::{Expression, Inputs, Matched, Variables, evaluate, matched};
use crate::matching::{Objects, Selection, request};
use crate::webhooks::tests::{OneNamespace, deployments, request as asked};
use machinery_cel::{AdmissionVariables, Composition, RUNTIME_BUDGET, Type, admission_env};
use machinery_meta::UserInfo;
use machinery_schema::Tree;

const OBJECT: &str = r#"{"metadata": {"name": "name", "labels": {"on": "yes"}}, "list": [1, 2, 3]}"#;

fn variables(all: &[(&str, &str)]) -> (Variables, machinery_cel::Env) {
    let composition = Composition::default();
    let env = composition.extend(admission_env(AdmissionVariables {
        authorizer: true,
        ..AdmissionVariables::default()
    }));
    let mut variables = Variables::default();
    for (name, text) in all {
        let (expression, ty) = Expression::compile(&env, text, &[]);
        composition.declare(name, ty.as_ref());
        variables.push(name, expression);
    }
    (variables, env)
}

/// Values of expressions (as texts) with these variables, or the reason why there are none.
async fn values(all: &[(&str, &str)], texts: &[&str], budget: u64) -> Result<(Vec<String>, u64), String> {
    let user = UserInfo::named("anna", ["staff"]);
    let host = deployments("");
    let request = asked(&user, &host, "ns");
    let selection = Selection::new(&request, &OneNamespace).unwrap();
    let object = Tree::from_json(OBJECT).unwrap();
    let json = request::json(&selection, &selection.own_version());
    let (variables, env) = variables(all);
    let inputs = Inputs {
        selection: &selection,
        objects: Objects {
            new: Some(&object),
            old: None,
        },
        request: &json,
        namespace: None,
        params: None,
        variables: Some(&variables),
        runtime: None,
    };
    let expressions: Vec<_> = texts
        .iter()
        .map(|text| Expression::compile(&env, text, &[]).0)
        .collect();
    let expressions: Vec<_> = expressions.iter().map(Some).collect();
    let take = |value: &machinery_cel::Value<'_>| {
        Ok(match value {
            machinery_cel::Value::Int(own) => own.to_string(),
            other => format!("{:?}", other.as_bool()),
        })
    };
    let done = evaluate(&expressions, &inputs, budget, take).await?;
    let each = done.values.into_iter().flatten();
    let texts = each.map(|own| own.result.unwrap_or_else(|why| why)).collect();
    Ok((texts, budget - done.left))
}

#[track_caller]
fn check(all: &[(&str, &str)], text: &str, expected: &str) {
    let found = futures::executor::block_on(values(all, &[text], RUNTIME_BUDGET));
    assert_eq!(found.unwrap().0, [expected], "{text}");
}

#[test]
fn variables_are_evaluated_where_they_are_used_once() {
    check(
        &[("a", "1"), ("b", "variables.a + 1")],
        "variables.b + variables.a",
        "3",
    );
    check(&[("a", "object.gone")], "has(object.gone) ? variables.a : 7", "7");
    check(
        &[("a", "object.gone")],
        "variables.a == 1",
        "expression 'variables.a == 1' resulted in error: composited variable \"a\" fails to evaluate: no such key: gone",
    );
    check(&[("a", "object.")], "variables.a == 1 || true", "Some(true)");
    // The last one of a name counts, and one that asks for itself has no value.
    check(&[("a", "1"), ("a", "2")], "variables.a", "2");
    check(
        &[("a", "1"), ("a", "variables.a + 1")],
        "variables.a",
        "expression 'variables.a' resulted in error: composited variable \"a\" fails to evaluate: variable \"a\" refers to itself",
    );
    // Its cost counts once.
    let all = [("a", "object.list.map(e, e * 2)")];
    let (once, cost) =
        futures::executor::block_on(values(&all, &["variables.a.size()"], RUNTIME_BUDGET)).unwrap();
    let (twice, both) = futures::executor::block_on(values(
        &all,
        &["variables.a.size()", "variables.a.size()"],
        RUNTIME_BUDGET,
    ))
    .unwrap();
    assert_eq!((once, twice), (vec!["3".to_owned()], vec!["3".to_owned(); 2]));
    assert!(both < 2 * cost, "{cost} {both}");
}

#[test]
fn variables_that_wait_for_each_other_are_shallow() {
    // The deepest that is allowed, so that the stack is used.
    let deep = |count: usize, inner: &str| format!("{}{inner}{}", "(1 + ".repeat(count), ")".repeat(count));
    let names: Vec<String> = (0..50).map(|at| format!("v{at}")).collect();
    let texts: Vec<String> = (0..50)
        .map(|at| match at {
            0 => deep(200, "1"),
            _ => format!("variables.v{} + 1", at - 1),
        })
        .collect();
    let all: Vec<(&str, &str)> = names
        .iter()
        .map(String::as_str)
        .zip(texts.iter().map(String::as_str))
        .collect();
    let whole = deep(200, "variables.v5");
    let found = futures::executor::block_on(values(&all, &["variables.v49", &whole], RUNTIME_BUDGET));
    let found = found.unwrap().0;
    assert!(
        found[0].ends_with("variables that wait for each other have more than 500 nested nodes"),
        "{}",
        found[0]
    );
    let found = futures::executor::block_on(values(&all, &[&whole], RUNTIME_BUDGET));
    assert_eq!(found.unwrap().0, ["406"]);
}

#[test]
fn budget_is_for_all_expressions() {
    let loops = "object.list.all(a, object.list.all(b, object.list.all(c, a + b + c > 0)))";
    let found = futures::executor::block_on(values(&[], &[loops; 3], 100));
    assert_eq!(
        found.unwrap_err(),
        "validation failed due to running out of cost budget, no further validation rules will be run"
    );
    // Variables are paid for by the expression that asks for them.
    let found = futures::executor::block_on(values(&[("a", loops)], &["variables.a"], 100));
    assert!(found.unwrap_err().starts_with("validation failed"));
}

#[test]
fn authorizer_that_answers_later_is_asked() {
    let text = "authorizer.group('apps').resource('deployments').check('breakglass').allowed() && \
                !authorizer.group('apps').resource('pods').check('breakglass').allowed()";
    check(&[], text, "Some(true)");
    check(
        &[("may", "authorizer.requestResource.check('breakglass').allowed()")],
        "variables.may",
        "Some(true)",
    );
    let user = UserInfo::named("anna", ["staff"]);
    let mut host = deployments("");
    host.answers_later = true;
    let request = asked(&user, &host, "ns");
    let selection = Selection::new(&request, &OneNamespace).unwrap();
    let json = request::json(&selection, &selection.own_version());
    let inputs = Inputs {
        selection: &selection,
        objects: Objects { new: None, old: None },
        request: &json,
        namespace: None,
        params: None,
        variables: None,
        runtime: None,
    };
    let env = admission_env(AdmissionVariables {
        authorizer: true,
        ..AdmissionVariables::default()
    });
    let condition = [Expression::compile(&env, text, &[Type::Bool]).0];
    let found = futures::executor::block_on(matched(&condition, &inputs));
    assert_eq!(found, Matched::Yes);
}
