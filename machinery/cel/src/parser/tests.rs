//! Tests of the parser.

use super::{Syntax, parse};

#[test]
fn operators_of_logic_are_balanced() {
    let parsed = parse(&["a"; 9].join(" && "), Syntax::default()).unwrap();
    let mut depth = 0;
    let mut pending = vec![(&parsed.expr, 1)];
    while let Some((expr, own)) = pending.pop() {
        depth = depth.max(own);
        expr.children(|child| pending.push((child, own + 1)));
    }
    assert_eq!(depth, 5);
}

#[test]
fn signs_stand_before_numbers_alone() {
    for (text, column, input) in [
        ("-!true", 1, "-!"),
        ("--!a", 2, "-!"),
        ("!-true", 2, "-true"),
        ("!-'a'", 2, "-'a'"),
    ] {
        let issues = parse(text, Syntax::default()).unwrap_err().to_string();
        let wanted = format!(
            "ERROR: <input>:1:{}: Syntax error: no viable alternative at input '{input}'",
            column + 1
        );
        assert!(issues.contains(&wanted), "{text}: {issues}");
    }
    for text in ["-1", "!-1", "--1", "-(1)", "-a", "!!a"] {
        assert!(parse(text, Syntax::default()).is_ok(), "{text}");
    }
}
