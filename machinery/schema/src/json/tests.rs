use crate::testing::{pod_schema, pod_type};
use crate::{Strictness, Tree, decode_json, encode_json, encode_split};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    r#in: String,
    #[serde(default)]
    out: String,
    #[serde(default)]
    strict: Vec<String>,
    #[serde(default)]
    error: String,
}

fn json(tree: &Tree) -> String {
    let mut out = Vec::new();
    encode_json(tree, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn documents_decode_as_upstream_decodes_them() {
    let schema = pod_schema();
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("../../testdata/decode.yaml")).unwrap();
    for case in cases {
        let got = decode_json(
            &schema,
            pod_type(&schema),
            case.r#in.as_bytes(),
            Strictness::Report,
        );
        match got {
            Ok(decoded) => {
                assert_eq!(json(&decoded.tree), case.out, "{}", case.name);
                assert_eq!(decoded.strict_errors, case.strict, "{}", case.name);
                let again = decode_json(
                    &schema,
                    pod_type(&schema),
                    case.out.as_bytes(),
                    Strictness::Report,
                )
                .unwrap();
                assert!(
                    again.tree == decoded.tree,
                    "{}: the normal form is stable",
                    case.name
                );
            }
            Err(error) => assert_eq!(error.to_string(), case.error, "{}", case.name),
        }
    }
}

#[test]
fn json_three_slices_make_the_object() {
    let schema = pod_schema();
    let text = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7","generation":2},"spec":{"containers":null},"status":{}}"#;
    let tree = decode_json(&schema, pod_type(&schema), text.as_bytes(), Strictness::Ignore)
        .unwrap()
        .tree;
    let split = encode_split(&tree);
    assert_eq!(split.type_meta, r#""kind":"Pod","apiVersion":"v1","#);
    assert_eq!(split.head, r#""metadata":{"name":"a","resourceVersion":"#);
    assert_eq!(
        String::from_utf8(split.join(42)).unwrap(),
        text.replace("\"7\"", "\"42\"")
    );
    let bare = Tree::from_json("{}").unwrap();
    assert_eq!(
        encode_split(&bare).join(1),
        br#"{"metadata":{"resourceVersion":"1"}}"#
    );
    let free =
        Tree::from_json(r#"{"apiVersion":"a/v1","kind":"K","metadata":{"name":"x","uid":"u"},"spec":1}"#)
            .unwrap();
    let expected = r#"{"kind":"K","apiVersion":"a/v1","metadata":{"name":"x","resourceVersion":"1","uid":"u"},"spec":1}"#;
    assert_eq!(String::from_utf8(encode_split(&free).join(1)).unwrap(), expected);
}

/// Opaque and unknown values count as any others.
#[test]
fn nesting_bound_is_the_same_everywhere() {
    let schema = pod_schema();
    let ty = pod_type(&schema);
    for (before, around) in [
        (r#"{"spec":{"overhead":"#, 2),
        (r#"{"what":"#, 1),
        (r#"{"spec":{"what":"#, 2),
    ] {
        let nested = |depth: usize| {
            let (open, close) = ("[".repeat(depth - around), "]".repeat(depth - around));
            let text = format!("{before}{open}{close}{}", "}".repeat(around));
            decode_json(&schema, ty, text.as_bytes(), Strictness::Ignore).err()
        };
        assert_eq!(nested(crate::MAX_DEPTH), None, "{before}");
        assert_eq!(
            nested(crate::MAX_DEPTH + 1),
            Some(crate::DecodeError::TooDeep),
            "{before}"
        );
    }
}

#[test]
fn nesting_is_bounded() {
    for text in [
        "[".repeat(100_000),
        r#"{"a":"#.repeat(100_000),
        format!(r#"{{"x":{}"#, "[".repeat(100_000)),
    ] {
        assert_eq!(
            Tree::from_json(&text).unwrap_err().to_string(),
            "exceeded max depth"
        );
    }
}

/// Unknown members and opaque JSON are checked to their end though they are not opened: they are stored and served as
/// they stand.
#[test]
fn opaque_json_is_read_to_its_end() {
    let schema = pod_schema();
    let ty = pod_type(&schema);
    for (value, problem) in [
        (r#"{"a":"\q"}"#, "invalid character 'q' in string escape code"),
        (
            r#"["\u12"]"#,
            "invalid character '\"' in \\u hexadecimal character escape",
        ),
        (
            r#""\u12g4""#,
            "invalid character 'g' in \\u hexadecimal character escape",
        ),
        ("{\"\\\u{e4}\":1}", "invalid character 'Ã' in string escape code"),
        ("[01]", "invalid character '1' after array element"),
        ("\"\u{1}\"", "invalid character '\\x01' in string literal"),
        (
            "{\"a\":1,}",
            "invalid character '}' looking for beginning of object key string",
        ),
    ] {
        for place in [r#"{"what":VALUE}"#, r#"{"spec":{"overhead":VALUE}}"#] {
            let text = place.replace("VALUE", value);
            let error = decode_json(&schema, ty, text.as_bytes(), Strictness::Ignore).unwrap_err();
            assert_eq!(error.to_string(), problem, "{text}");
        }
    }
    for value in [r#""\u00e4\ud800\/\b""#, r#"{"\\":"\""}"#] {
        let text = format!(r#"{{"spec":{{"containers":null,"overhead":{value}}}}}"#);
        let tree = decode_json(&schema, ty, text.as_bytes(), Strictness::Ignore)
            .unwrap()
            .tree;
        assert_eq!(tree.at(&["spec", "overhead"]).unwrap().to_json(), value);
    }
}

/// The last of a field's values counts, however many there are.
#[test]
fn fields_that_repeat_cost_one_look_each() {
    let schema = pod_schema();
    let many = r#""name":"x","generation":5,"#.repeat(50_000);
    let text = format!(r#"{{"metadata":{{{many}"name":"last","generation":0}}}}"#);
    let tree = decode_json(&schema, pod_type(&schema), text.as_bytes(), Strictness::Ignore)
        .unwrap()
        .tree;
    assert_eq!(tree.get("metadata").unwrap().to_json(), r#"{"name":"last"}"#);
}
