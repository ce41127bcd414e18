//! Expressions that are built: calls, loops, literals and operators inside each other.

use machinery_fuzz::Random;
use std::fmt::Write as _;

const ATOMS: [&str; 16] = [
    "x",
    "x.a",
    "x.l",
    "x.s",
    "x.m",
    "x.objs",
    "e",
    "1",
    "-9223372036854775808",
    "1.5",
    "2u",
    "'abc'",
    "b'a'",
    "null",
    "true",
    "lists.range(100)",
];
const CALLS: [&str; 14] = [
    "size",
    "string",
    "int",
    "dyn",
    "type",
    "quantity",
    "url",
    "ip",
    "cidr",
    "semver",
    "isURL",
    "optional.of",
    "duration",
    "timestamp",
];
const METHODS: [&str; 22] = [
    "size", "map", "filter", "all", "exists", "sort", "distinct", "flatten", "reverse", "join", "split",
    "replace", "format", "matches", "find", "findAll", "contains", "sum", "max", "first", "value", "optMap",
];
const OPERATORS: [&str; 14] = [
    "+", "-", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||", "in", "? 1 :", "",
];

/// An expression, at times a deep or long one.
pub(super) fn expression(random: &mut Random) -> Vec<u8> {
    let mut out = String::new();
    match random.below(8) {
        0 => {
            let count = random.count();
            let (open, close) = [("(", ")"), ("[", "]"), ("{1: ", "}"), ("!(", ")")][random.below(4)];
            let _ = write!(out, "{}x{}", open.repeat(count), close.repeat(count));
        }
        1 => {
            let count = random.count();
            let part = [
                " + 1",
                ".a",
                "[0]",
                " && true",
                " || false",
                ".map(e, {e: e})",
                ".optMap(e, e)",
                ".filter(e, true)",
            ];
            let _ = write!(out, "[1]{}", part[random.below(8)].repeat(count));
        }
        _ => write(random, &mut out, 0),
    }
    out.into_bytes()
}

fn write(random: &mut Random, out: &mut String, depth: usize) {
    if depth > 5 {
        out.push_str(ATOMS[random.below(ATOMS.len())]);
        return;
    }
    match random.below(9) {
        0 | 1 => out.push_str(ATOMS[random.below(ATOMS.len())]),
        2 => {
            let _ = write!(out, "{}(", CALLS[random.below(CALLS.len())]);
            write(random, out, depth + 1);
            out.push(')');
        }
        3 | 4 => method(random, out, depth),
        5 => {
            out.push('[');
            for at in 0..random.below(4) {
                out.push_str(if at > 0 { ", " } else { "" });
                write(random, out, depth + 1);
            }
            out.push(']');
        }
        6 => {
            out.push_str("{'k': ");
            write(random, out, depth + 1);
            out.push('}');
        }
        _ => {
            out.push('(');
            write(random, out, depth + 1);
            let _ = write!(out, " {} ", OPERATORS[random.below(OPERATORS.len())]);
            write(random, out, depth + 1);
            out.push(')');
        }
    }
}

fn method(random: &mut Random, out: &mut String, depth: usize) {
    write(random, out, depth + 1);
    let name = METHODS[random.below(METHODS.len())];
    let _ = write!(out, ".{name}(");
    if matches!(name, "map" | "filter" | "all" | "exists" | "optMap") {
        out.push_str("e, ");
        write(random, out, depth + 1);
    } else {
        for at in 0..random.below(3) {
            out.push_str(if at > 0 { ", " } else { "" });
            write(random, out, depth + 1);
        }
    }
    out.push(')');
}

/// A schema, at times with what none may have.
pub(super) fn schema(random: &mut Random, depth: usize) -> String {
    let kinds = [
        "string", "integer", "number", "boolean", "object", "array", "", "strange",
    ];
    let kind = if depth > 6 {
        "string"
    } else {
        kinds[random.below(kinds.len())]
    };
    let mut out = format!(r#"{{"type":"{kind}","maxLength":{}"#, random.count());
    if random.below(3) == 0 {
        out += r#","nullable":true,"x-kubernetes-preserve-unknown-fields":true"#;
    }
    match kind {
        "array" => {
            let items = schema(random, depth + 1);
            let list = random.pick(&["set", "map", "atomic"]).to_owned();
            let _ = write!(
                out,
                r#","items":{items},"x-kubernetes-list-type":"{list}","x-kubernetes-list-map-keys":["a"],"maxItems":{}"#,
                random.count()
            );
        }
        "object" if random.below(2) == 0 => {
            let _ = write!(out, r#","additionalProperties":{}"#, schema(random, depth + 1));
        }
        "object" => {
            let names = ["a", "kind", "a-b", "in", "1x", "__a"];
            let mut fields = Vec::new();
            for name in names.iter().take(random.below(names.len())) {
                fields.push(format!(r#""{name}":{}"#, schema(random, depth + 1)));
            }
            let _ = write!(out, r#","properties":{{{}}},"required":["a"]"#, fields.join(","));
        }
        _ => {}
    }
    out.push('}');
    out
}
