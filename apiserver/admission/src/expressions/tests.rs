use super::{
    Expression, Inputs, MAX_WORK_OF_OBJECT, MAX_WORK_OF_REQUEST, Matched, Unevaluated, Variables, evaluate,
    matched,
};
use crate::matching::{Objects, Selection, request};
use crate::webhooks::tests::{OneNamespace, deployments, request as asked};
use machinery_cel::{AdmissionVariables, Composition, RUNTIME_BUDGET, Type, admission_env};
use machinery_meta::UserInfo;
use machinery_schema::Tree;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
    values_of(&selection, &object, (all, texts), budget).await
}

/// The same for an object of a request.
async fn values_of(
    selection: &Selection<'_>,
    object: &Tree,
    (all, texts): (&[(&str, &str)], &[&str]),
    budget: u64,
) -> Result<(Vec<String>, u64), String> {
    let json = request::json(selection, &selection.own_version());
    let (variables, env) = variables(all);
    let inputs = Inputs {
        selection,
        objects: Objects {
            new: Some(object),
            old: None,
        },
        request: &json,
        namespace: None,
        params: None,
        variables: Some(&variables),
        runtime: None,
        work: &AtomicU64::new(0),
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
    let done = evaluate(&expressions, &inputs, budget, take).await;
    let done = done.map_err(|why| match why {
        Unevaluated::OutOfBudget(why) => why,
        Unevaluated::Request(error) => format!("{error:?}"),
    })?;
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
    // The last one of a name counts, and one that refers to itself has no value.
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
    // Variables are paid for by the expression that requests them.
    let found = futures::executor::block_on(values(&[("a", loops)], &["variables.a"], 100));
    assert!(found.unwrap_err().starts_with("validation failed"));
}

/// Steps that costs do not count are bounded for all expressions of a request, those of variables included, for every user.
#[test]
fn work_of_all_expressions_of_a_request_is_bounded() {
    let (user, host) = (UserInfo::named("anna", ["staff"]), deployments(""));
    let request = asked(&user, &host, "ns");
    let list = vec!["a".repeat(1_000); 20];
    let object = Tree::from_json(&serde_json::json!({ "list": list }).to_string()).unwrap();
    let text = "object.list.all(e, size(e.findAll('a|x{500}y')) == 1000)";
    let all = [("a", text), ("b", text), ("c", text)];
    let asks = "variables.a && variables.b && variables.c";
    let selection = Selection::new(&request, &OneNamespace).unwrap();
    let of = |texts: &[&str]| {
        let found = values_of(&selection, &object, (&all, texts), RUNTIME_BUDGET);
        futures::executor::block_on(found)
    };
    let (found, cost) = of(&[text, asks]).unwrap();
    assert_eq!(found, ["Some(true)"; 2]);
    assert!(cost < RUNTIME_BUDGET / 4, "{cost}");
    let refused = (0..20).find_map(|_| of(&[asks]).err()).unwrap();
    assert!(
        refused.starts_with("Forbidden"),
        "no failure policy decides: {refused}"
    );
    assert!(of(&["true"]).is_err(), "nothing is left");
}

/// Each question that has no answer at once has the expressions evaluated again.
#[test]
fn work_that_is_done_again_for_an_answer_counts_once() {
    let user = UserInfo::named("anna", ["staff"]);
    let object = Tree::from_json(OBJECT).unwrap();
    let resource = |name: &str| format!("authorizer.group('apps').resource('{name}')");
    let asks = ["a", "b", "c"].map(|name| format!("!{}.check('get').allowed()", resource(name)));
    // A question costs a third of what an expression may.
    let texts = [format!("variables.all && {}", asks[0]), asks[1..].join(" && ")];
    let texts = texts.each_ref().map(String::as_str);
    let all = [("all", "object.list.all(e, 'aaaa'.findAll('a|x{9}y').size() == 4)")];
    let work = [false, true].map(|answers_later| {
        let mut host = deployments("");
        host.answers_later = answers_later;
        let request = asked(&user, &host, "ns");
        let selection = Selection::new(&request, &OneNamespace).unwrap();
        let found = values_of(&selection, &object, (&all, &texts), RUNTIME_BUDGET);
        let found = futures::executor::block_on(found).unwrap().0;
        assert_eq!(found, ["Some(true)"; 2], "{answers_later}");
        selection.work(0)
    });
    assert!(work[0] > 0 && work[0] == work[1], "{work:?}");
}

/// The failure policy decides about what a policy did by itself, however many of its expressions did it, and others go on.
#[test]
fn work_of_one_policy_is_its_own_failure() {
    let (user, host) = (UserInfo::named("anna", ["staff"]), deployments(""));
    let request = asked(&user, &host, "ns");
    let selection = Selection::new(&request, &OneNamespace).unwrap();
    let (env, json) = (
        variables(&[]).1,
        request::json(&selection, &selection.own_version()),
    );
    let expression = Expression::compile(&env, "object.list.all(e, true)", &[Type::Bool]).0;
    let object = Tree::from_json(OBJECT).unwrap();
    let evaluated = |work: &AtomicU64| {
        let inputs = Inputs {
            selection: &selection,
            objects: Objects {
                new: Some(&object),
                old: None,
            },
            request: &json,
            namespace: None,
            params: None,
            variables: None,
            runtime: None,
            work,
        };
        let expressions = [Some(&expression)];
        let found = evaluate(&expressions, &inputs, RUNTIME_BUDGET, |_| Ok(()));
        futures::executor::block_on(found).map(|_| selection.work(0))
    };
    let (one, other) = (AtomicU64::new(0), AtomicU64::new(0));
    let steps = evaluated(&one).unwrap();
    assert!(steps > 0 && one.load(Ordering::Relaxed) == steps);
    one.store(MAX_WORK_OF_OBJECT, Ordering::Relaxed);
    for counted in [2 * steps, 2 * steps] {
        assert!(matches!(evaluated(&one), Err(Unevaluated::OutOfBudget(_))));
        assert_eq!(selection.work(0), counted, "nothing more of it is evaluated");
    }
    evaluated(&other).unwrap();
    selection.work(MAX_WORK_OF_REQUEST);
    assert!(
        matches!(evaluated(&other), Err(Unevaluated::Request(_))),
        "nothing is left"
    );
}

#[test]
fn expressions_end_where_nobody_waits_for_the_request() {
    let (user, mut host) = (UserInfo::named("anna", ["staff"]), deployments(""));
    let end = Arc::new(AtomicBool::new(false));
    host.interrupt = Some(Arc::clone(&end) as Arc<dyn machinery_cel::Interrupt>);
    let request = asked(&user, &host, "ns");
    let selection = Selection::new(&request, &OneNamespace).unwrap();
    let object = Tree::from_json(OBJECT).unwrap();
    let found = || {
        let (all, texts) = (
            [("a", "object.list.all(e, true)")],
            ["object.list.all(e, true)", "variables.a"],
        );
        let found = values_of(&selection, &object, (&all, &texts), RUNTIME_BUDGET);
        futures::executor::block_on(found).unwrap().0
    };
    assert_eq!(found(), ["Some(true)"; 2]);
    end.store(true, Ordering::Relaxed);
    for own in found() {
        assert!(own.ends_with("operation interrupted"), "{own}");
    }
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
        work: &AtomicU64::new(0),
    };
    let env = admission_env(AdmissionVariables {
        authorizer: true,
        ..AdmissionVariables::default()
    });
    let condition = [Expression::compile(&env, text, &[Type::Bool]).0];
    let (found, cost) = futures::executor::block_on(matched(&condition, &inputs)).unwrap();
    assert_eq!(found, Matched::Yes);
    assert!(cost > 0);
}

/// No decision is no refusal: an expression that denies what the authorizer does not allow has no value by it.
#[test]
fn authorizer_that_has_not_decided_ends_the_request() {
    let user = UserInfo::named("anna", ["staff"]);
    for answers_later in [false, true] {
        let mut host = deployments("");
        (host.answers_later, host.is_busy) = (answers_later, true);
        let request = asked(&user, &host, "ns");
        let selection = Selection::new(&request, &OneNamespace).unwrap();
        let object = Tree::from_json(OBJECT).unwrap();
        let text = "!authorizer.group('apps').resource('pods').check('breakglass').allowed()";
        let (all, texts) = ([("a", text)], ["variables.a"]);
        let found = values_of(&selection, &object, (&all, &texts), RUNTIME_BUDGET);
        let ended = futures::executor::block_on(found).unwrap_err();
        assert_eq!(ended, "Busy", "{answers_later}");
    }
}
