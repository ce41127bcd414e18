//! Results of Go's `regexp` for the same patterns: `testdata/patterns.jsonl`, texts first, then a pattern a line with
//! the error, or with a digit for each text that distinguishes a match from none.

use super::{MAX_PATTERN_BYTES, Patterns, parse};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    p: String,
    #[serde(default)]
    e: String,
    #[serde(default)]
    m: String,
}

/// Patterns that Go takes and we refuse: deeper than the engines' recursion is allowed.
const DEEPER: &str = "expression nests too deeply";

#[test]
fn patterns_mean_what_they_mean_in_go() {
    let mut lines = include_str!("../../../testdata/patterns.jsonl").lines();
    let texts: Vec<String> = serde_json::from_str(lines.next().unwrap()).unwrap();
    let mut wrong = Vec::new();
    for line in lines {
        let case: Case = serde_json::from_str(line).unwrap();
        let mut patterns = Patterns::default();
        let got = match parse(&case.p) {
            Err(error) => error.to_string(),
            Ok(_) => match patterns.get(&case.p) {
                None => "1".repeat(texts.len()),
                Some(pattern) => {
                    let digit = |text: &String| if pattern.is_match(text) { '1' } else { '0' };
                    texts.iter().map(digit).collect()
                }
            },
        };
        let expected = if case.e.is_empty() { case.m } else { case.e };
        if got != expected && !got.starts_with(DEEPER) {
            wrong.push(format!("{:?}: {got} instead of {expected}", case.p));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn patterns_of_a_definition_have_a_budget() {
    let mut patterns = Patterns::default();
    for at in 0..200 {
        patterns.get(&format!(r"^(\pL{{200}}|x{at})$"));
    }
    assert!(patterns.is_over());
    assert!(
        patterns.bytes < MAX_PATTERN_BYTES + (10 << 20),
        "{}",
        patterns.bytes
    );
    let mut patterns = Patterns::default();
    for _ in 0..20_000 {
        assert!(patterns.get("^[a-z]([-a-z0-9]*[a-z0-9])?$").is_some());
    }
    assert!(!patterns.is_over() && patterns.known.len() == 1);
    let mut patterns = Patterns::default();
    assert!(patterns.get(r"((\pL{100}){10}|a)").is_none() && patterns.is_over());
}
