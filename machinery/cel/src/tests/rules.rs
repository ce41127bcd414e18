//! Rules of custom kinds with upstream's answers: problems, greatest costs, costs and values by declared types.

use crate::value::Data;
use crate::{Declared, Env, Limits, Type, Value, Variables};
use serde_json::Value as Json;
use std::sync::Arc;

const RULES: &str = include_str!("../../testdata/rules.json");

fn env(declared: &Declared, optional: bool) -> Env {
    let ty = declared.ty().expect("a declared type");
    let old = if optional {
        Type::optional(ty.clone())
    } else {
        ty.clone()
    };
    let env = Env::new().variable("self", ty).variable("oldSelf", old);
    env.types(Arc::new(declared.clone()))
}

fn value<'a>(declared: &'a Declared, case: &'a Json, optional: bool) -> Variables<'a> {
    let read = |own: &'a Json| declared.value(Data::from(own));
    let mut variables = Variables::new();
    if let Ok(own) = read(&case["obj"]) {
        variables = variables.with("self", own);
    }
    match (optional, &case["oldObj"]) {
        (true, Json::Null) => variables.with("oldSelf", Value::Optional(None)),
        (_, Json::Null) => variables,
        (false, old) => variables.with("oldSelf", read(old).expect("the old object fits")),
        (true, old) => {
            let own = read(old).expect("the old object fits");
            variables.with("oldSelf", Value::Optional(Some(Arc::new(own))))
        }
    }
}

fn answers(schema: &Json, case: &Json) -> (String, String) {
    let field = |name: &str| case[name].as_str().unwrap_or_default().to_owned();
    let root = case["root"] == Json::Bool(true);
    let Some(declared) = Declared::from_schema(Data::from(schema), root) else {
        return ("a declared type".to_owned(), "none".to_owned());
    };
    let optional = case["optionalOldSelf"] == Json::Bool(true);
    let compiled = match env(&declared, optional).compile(case["rule"].as_str().expect("a rule")) {
        Ok(own) => own,
        Err(issues) => return (field("errors"), format!("compilation failed: {issues}")),
    };
    if *compiled.ty() != Type::Bool {
        return (
            field("errors"),
            "cel expression must evaluate to a bool".to_owned(),
        );
    }
    let program = match compiled.program() {
        Ok(own) => own,
        Err(problem) => {
            return (
                field("errors"),
                format!("program instantiation failed: {problem}"),
            );
        }
    };
    let (mut wanted, mut own) = (
        format!("{}max {}", field("errors"), case["maxCost"]),
        format!("max {}", compiled.estimate(&declared).max),
    );
    if let Some(cardinality) = case["cardinality"].as_u64() {
        wanted += &format!(" of {cardinality}");
        own += &format!(" of {}", declared.max_cardinality());
    }
    if case["cost"].is_null() {
        return (wanted, own);
    }
    let variables = value(&declared, case, optional);
    let done = program.evaluate(&variables, &Limits::default());
    wanted += &format!(" cost {} {}{}", case["cost"], field("value"), field("error"));
    let shown = match done.value {
        Ok(value) => format!("{:?}", value.as_bool().expect("a bool")),
        Err(error) => error.to_string(),
    };
    own += &format!(" cost {} {shown}", done.cost);
    (wanted, own)
}

#[test]
fn rules_are_answered_as_upstream_answers() {
    let data: Json = serde_json::from_str(RULES).expect("JSON");
    let (mut wrong, mut all) = (Vec::new(), 0);
    for case in data["cases"].as_array().expect("cases") {
        let at = usize::try_from(case["schema"].as_u64().expect("a schema")).expect("a place");
        let (wanted, own) = answers(&data["schemas"][at], case);
        all += 1;
        if wanted != own {
            wrong.push(format!(
                "{} (schema {at})\n  upstream {wanted}\n  ours     {own}",
                case["rule"]
            ));
        }
    }
    let shown = wrong.join("\n");
    assert!(wrong.is_empty(), "{} of {all} differ:\n{shown}", wrong.len());
}
