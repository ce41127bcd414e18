//! Hostile expressions: whatever comes in, it is read, checked, estimated and evaluated within bounds that are counted.

mod build;

use crate::value::Data;
use crate::{Declared, Env, Limits, MAX_MEMORY, NoSizes, Type, Variables};
use machinery_fuzz::{cost, fuzz_built, in_proportion, lines};
use serde_json::json;

/// Expressions of the recorded answers, as a corpus.
fn corpus() -> Vec<String> {
    let recorded = include_str!("../../testdata/language.jsonl").lines();
    let expressions = recorded.map(|line| {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        case["expr"].as_str().unwrap().to_owned()
    });
    expressions.collect()
}

fn env() -> Env {
    Env::new().variable("x", Type::Dyn).with_mutation()
}

#[test]
fn expressions_compile_in_proportion_to_their_size() {
    fuzz_built(corpus(), build::expression, |input| {
        let text = String::from_utf8_lossy(input);
        let env = env();
        // A character can become a call with nodes of a loop, a pattern may take two megabytes, and macros copy a little.
        let (compiled, used) = cost(|| env.compile(&text));
        let most = 8_000 * input.len() + (24 << 20);
        assert!(used.peak <= most, "{} bytes, {most} are allowed", used.peak);
        if let Ok(compiled) = compiled {
            let (_, used) = cost(|| compiled.estimate(&NoSizes));
            assert!(used.peak <= most, "{} bytes, {most} are allowed", used.peak);
        }
    });
}

#[test]
fn evaluations_end_within_their_limits() {
    let object = json!({"a": 1, "l": [1, 2], "s": "abc", "m": {"k": "v"}, "objs": [{"n": "a"}, {"n": "b"}]});
    fuzz_built(corpus(), build::expression, |input| {
        let text = String::from_utf8_lossy(input);
        let Ok(compiled) = env().compile(&text) else {
            return;
        };
        let Ok(program) = compiled.program() else { return };
        let variables = Variables::new().with("x", Data::from(&object).value());
        let limits = Limits {
            cost: 100_000,
            ..Limits::default()
        };
        let (spent, used) = cost(|| program.evaluate(&variables, &limits).cost);
        // One call may cost more than what is left.
        assert!(spent <= limits.cost || program.evaluate(&variables, &limits).value.is_err());
        assert!(used.peak <= 4 * MAX_MEMORY, "{} bytes", used.peak);
    });
}

#[test]
fn schemas_are_declared_in_proportion_to_their_size() {
    let schema = r#"{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","maxLength":3}},"b":{"additionalProperties":{"type":"integer"},"type":"object"}},"required":["a"]}"#;
    let build = |random: &mut machinery_fuzz::Random| build::schema(random, 0).into_bytes();
    fuzz_built(lines(schema), build, |input| {
        let Ok(schema) = serde_json::from_slice::<serde_json::Value>(input) else {
            return;
        };
        let declared = in_proportion(input, 4_000, || Declared::from_schema(Data::from(&schema), true));
        let Some(declared) = declared else { return };
        let ty = declared.ty().expect("only declared types are made");
        let env = Env::new()
            .variable("self", ty)
            .types(std::sync::Arc::new(declared.clone()));
        let compiled = env.compile("self == self").expect("it is declared");
        let program = compiled.program().unwrap();
        let value = match declared.value(Data::from(&schema)) {
            Ok(own) => own,
            Err(_) => return,
        };
        let variables = Variables::new().with("self", value);
        let _ = program.evaluate(&variables, &Limits::default());
    });
}
