//! Work that is bounded whatever it costs.

use crate::value::Data;
use crate::{Env, ErrorKind, Limits, Rules, Type, Variables};
use serde_json::{Value as Json, json};

#[track_caller]
fn evaluated(text: &str, object: &Json) -> Result<String, ErrorKind> {
    let env = Env::new().variable("x", Type::Dyn);
    let program = env.compile(text).unwrap().program().unwrap();
    let variables = Variables::new().with("x", Data::from(object).value());
    let done = program.evaluate(&variables, &Limits::default());
    done.value.map(|own| own.shown()).map_err(|error| error.kind)
}

/// A loop over a long text ends at its work, though each turn costs one.
#[track_caller]
fn check_ends(turn: &str, long: &str) {
    let object = json!({"s": long, "l": vec![1; 2_000]});
    let found = evaluated(&format!("x.l.all(e, {turn})"), &object);
    assert_eq!(found, Err(ErrorKind::ResourceLimit), "{turn}");
}

#[test]
fn functions_of_long_texts_end_at_their_work() {
    let query = format!("/?{}", "a=%41&".repeat(2_000));
    for turn in ["url(x.s).getQuery().size() > 0", "isURL(x.s)"] {
        check_ends(turn, &query);
    }
    // The URL is read once, so that the cost of reading it does not end the loop.
    let path = format!("/{}", "%41".repeat(4_000));
    for (turn, long) in [("u == u", query), ("u.getEscapedPath() != ''", path)] {
        let object = json!({"s": long, "l": vec![1; 2_000]});
        let text = format!("[url(x.s)].all(u, x.l.all(e, {turn}))");
        assert_eq!(evaluated(&text, &object), Err(ErrorKind::ResourceLimit), "{turn}");
    }
    let long = "é".repeat(400_000);
    for turn in ["x.s.size() > 0", "x.s.charAt(399999) != ''", "[[x.s]] == [[x.s]]"] {
        check_ends(turn, &long);
    }
}

#[test]
fn versions_end_at_their_work() {
    let version = format!("1.0.0-{}", vec!["1"; 30_000].join("."));
    let object = json!({"s": version, "l": vec![1; 30_000]});
    let text = "[semver(x.s)].all(v, x.l.all(e, v.compareTo(v) == 0))";
    assert_eq!(evaluated(text, &object), Err(ErrorKind::ResourceLimit));
}

/// Problems of an object that a rule is run over.
fn problems(schema: &Json, object: &Json) -> Vec<String> {
    let rules = Rules::compile(schema).unwrap();
    let verdict = rules.check(Data::from(object), None, None);
    verdict.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn bytes_are_work_at_each_mention() {
    let schema = json!({"type": "object", "properties": {"b": {"type": "string", "format": "byte"},
        "l": {"type": "array", "items": {"type": "integer"}}},
        "x-kubernetes-validations": [{"rule": "self.l.all(e, self.b.size() > 0)"}]});
    let object = json!({"b": "AAAA".repeat(200_000), "l": vec![1; 3_000]});
    let found = problems(&schema, &object);
    assert!(
        found.len() == 1 && found[0].contains("takes more work"),
        "{found:?}"
    );
}

#[test]
fn greatest_work_counts_what_functions_read() {
    let work = |rule: &str| {
        let text = json!({"type": "string", "maxLength": 10_000});
        let nested = json!({"type": "array", "maxItems": 100, "items":
            {"type": "array", "maxItems": 100, "items": {"type": "integer"}}});
        let schema = json!({"type": "object", "properties": {"t": text, "m": nested.clone(), "n": nested,
            "short": {"type": "string", "maxLength": 64}, "any": {"type": "string"},
            "l": {"type": "array", "maxItems": 100, "items": {"type": "integer"}}},
            "x-kubernetes-validations": [{"rule": rule}]});
        Rules::compile(&schema).unwrap().greatest_work()
    };
    for rule in [
        "self.l.all(e, url(self.t).getQuery().size() > 0)",
        "self.l.all(e, self.t.size() > e)",
        "self.l.all(e, self.m == self.n)",
        "self.any.size() > 0",
    ] {
        assert!(work(rule) > 20_000, "{rule}: {}", work(rule));
    }
    for rule in [
        "self.any == 'a'",
        "self.short.size() > 0",
        "self.l.all(e, e > 0)",
        "self.any.startsWith('a')",
    ] {
        assert!(work(rule) < 2_000, "{rule}: {}", work(rule));
    }
}
