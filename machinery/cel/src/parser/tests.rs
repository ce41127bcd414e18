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
