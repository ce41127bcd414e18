//! Answers of Go for the same texts, printed by `conformance/tools/formats`.

use super::{KNOWN, is_valid, normalised, of_type};
use serde::Deserialize;

#[derive(Deserialize)]
struct Line {
    format: String,
    yes: Vec<String>,
    no: Vec<String>,
}

fn lines() -> Vec<Line> {
    let lines = include_str!("../../../testdata/formats.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn formats_are_checked_as_upstream_checks_them() {
    let mut wrong = Vec::new();
    for Line { format, yes, no } in lines() {
        let expected = yes
            .iter()
            .map(|text| (text, true))
            .chain(no.iter().map(|text| (text, false)));
        let others = expected.filter(|(text, valid)| is_valid(&format, text) != *valid);
        wrong.extend(others.map(|(text, valid)| format!("{format} {text:?}: {valid}")));
    }
    assert!(wrong.is_empty(), "{}\n{} in all", wrong.join("\n"), wrong.len());
}

#[test]
fn formats_all_have_recorded_answers_and_are_known_without_dashes() {
    let recorded: Vec<String> = lines()
        .iter()
        .map(|line| normalised(&line.format).into_owned())
        .collect();
    assert_eq!(recorded, KNOWN);
    for (ty, format, known) in [
        ("string", "date-time", true),
        ("", "u-uid", true),
        ("string", "int64", false),
        ("integer", "int64", true),
        ("integer", "date", false),
        ("number", "float", true),
        ("boolean", "byte", false),
    ] {
        assert_eq!(of_type(ty, format) == format, known, "{ty} {format}");
    }
    assert!(is_valid("unheard-of", "anything"));
}
