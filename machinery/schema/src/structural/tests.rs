use super::{Patterns, check_structural, compile, validate, validate_embedded};
use crate::testing::pod_schema;
use crate::{Strictness, Tree, apply_defaults, decode_json};
use machinery_meta::FieldPath;
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    structural: Vec<Structural>,
    values: Vec<Schema>,
}

#[derive(Deserialize)]
struct Structural {
    schema: serde_json::Value,
    errors: Vec<String>,
}

#[derive(Deserialize)]
struct Schema {
    schema: serde_json::Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    r#in: String,
    #[serde(default)]
    old: Option<String>,
    #[serde(default)]
    out: Option<String>,
    #[serde(default)]
    strict: Vec<String>,
    #[serde(default)]
    errors: Vec<String>,
}

fn file() -> File {
    serde_saphyr::from_str(include_str!("../../testdata/structural.yaml")).unwrap()
}

fn text(errors: &[machinery_meta::FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn structural_violations_are_named() {
    for case in file().structural {
        let schema = Tree::from_json(&case.schema.to_string()).unwrap();
        let errors = check_structural(schema.root(), &FieldPath::new("schema"), &mut Patterns::default());
        assert_eq!(text(&errors), case.errors, "{}", case.schema);
    }
}

#[test]
fn custom_resources_are_pruned_defaulted_and_validated() {
    let table = pod_schema();
    let meta = table.type_named("v1.ObjectMeta").unwrap();
    for group in file().values {
        let schema = Tree::from_json(&group.schema.to_string()).unwrap();
        let compiled = compile(
            Some(schema.root()),
            (&table, meta),
            &FieldPath::new("schema"),
            &mut Patterns::default(),
        )
        .unwrap_or_else(|errors| panic!("{:?}", text(&errors)));
        let read = |text: &str| {
            let decoded = decode_json(&compiled.schema, compiled.ty, text.as_bytes(), Strictness::Report);
            let mut decoded = decoded.unwrap_or_else(|error| panic!("{text}: {error}"));
            apply_defaults(&mut decoded.tree);
            decoded
        };
        for case in group.cases {
            let decoded = read(&case.r#in);
            assert_eq!(
                decoded.tree.root().to_json(),
                case.out.unwrap_or_else(|| case.r#in.clone())
            );
            assert_eq!(decoded.strict_errors, case.strict, "{}", case.r#in);
            let old = case.old.map(|old| read(&old).tree);
            let mut errors = validate(decoded.tree.root(), old.as_ref().map(Tree::root));
            errors.extend(validate_embedded(decoded.tree.root(), &|_| Vec::new()));
            assert_eq!(text(&errors), case.errors, "{}", case.r#in);
        }
    }
}

/// A schema, or a value of its `spec` and what kube-apiserver 1.37 answered.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Recorded {
    schema: Option<serde_json::Value>,
    r#in: String,
    strict: Vec<String>,
    out: Option<String>,
    errors: Vec<String>,
    refused: Option<String>,
}

fn answer(compiled: &super::CompiledSchema, case: &Recorded) -> Recorded {
    let object = format!(r#"{{"spec":{}}}"#, case.r#in);
    let decoded = decode_json(
        &compiled.schema,
        compiled.ty,
        object.as_bytes(),
        Strictness::Report,
    );
    let decoded = match decoded {
        Ok(decoded) => decoded,
        Err(error) => {
            return Recorded {
                refused: Some(error.to_string()),
                ..Recorded::default()
            };
        }
    };
    let root = decoded.tree.root();
    let mut errors = text(&validate(root, None));
    errors.extend(text(&validate_embedded(root, &|_| Vec::new())));
    errors.sort();
    let mut strict = decoded.strict_errors;
    strict.sort();
    Recorded {
        strict,
        out: errors.is_empty().then(|| root.get("spec").unwrap().to_json()),
        errors,
        ..Recorded::default()
    }
}

#[test]
fn custom_values_are_answered_as_upstream_answers() {
    let (mut schema, mut wrong) = (None, Vec::new());
    for line in include_str!("../../testdata/custom_values.jsonl").lines() {
        let mut case: Recorded = serde_json::from_str(line).unwrap();
        if let Some(own) = case.schema {
            schema = Some(compiled(&own.to_string()));
            continue;
        }
        // Metadata are another crate's, and so are the words for those that cannot be read.
        case.errors.retain(|error| !error.contains(".metadata."));
        let of_metadata = |own: &&str| own.contains("metadata: Invalid value");
        if case.refused.as_deref().filter(of_metadata).is_some() {
            continue;
        }
        let found = answer(schema.as_ref().unwrap(), &case);
        let same =
            found.errors == case.errors && found.refused == case.refused && found.strict == case.strict;
        let same_out = case.out.is_none() || {
            let value = |own: &Option<String>| {
                own.as_ref()
                    .map(|own| serde_json::from_str::<serde_json::Value>(own).unwrap())
            };
            value(&found.out) == value(&case.out)
        };
        if !same || !same_out {
            let shown = (found.strict, found.out, found.errors, found.refused);
            wrong.push(format!("{line}\n  found {shown:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}\n{} in all", wrong.join("\n"), wrong.len());
}

/// A schema whose alternatives stand in alternatives asks 10,000 things of each item.
#[test]
fn validation_steps_are_counted() {
    let alternatives = |inner: &str| format!(r#"[{}]"#, vec![inner; 100].join(","));
    let leaf = r#"{"minLength":1}"#.to_owned();
    let nested = format!(r#"{{"allOf":{}}}"#, alternatives(&leaf));
    let schema = format!(
        r#"{{"type":"object","properties":{{"l":{{"type":"array","items":{{"type":"string","allOf":{}}}}}}}}}"#,
        alternatives(&nested)
    );
    let object = format!(r#"{{"l":[{}""]}}"#, r#""","#.repeat(10_000));
    let over = "<nil>: Forbidden: validation takes more steps or memory than is allowed, no further rules were checked";
    let errors = validated(&schema, &object);
    assert_eq!(text(&errors).last().map(String::as_str), Some(over));
    let bytes: usize = errors.iter().map(|error| error.detail.len()).sum();
    assert!(bytes < 8 << 20, "{bytes} bytes of errors");
}

/// An error for each item of a list below a long name: each would quote the name.
#[test]
fn validation_errors_of_long_paths_are_bounded() {
    let schema = r#"{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"array","items":{"type":"string","minLength":1}}}}}"#;
    let object = format!(
        r#"{{"m":{{"{}":[{}""]}}}}"#,
        "k".repeat(1 << 20),
        r#""","#.repeat(10_000)
    );
    let errors = validated(schema, &object);
    let bytes: usize = errors.iter().map(|error| error.path.as_str().len()).sum();
    assert!(bytes < 8 << 20, "{bytes} bytes of paths");
}

/// Paths below a long name are not written, so that the name costs once what it takes, as upstream's.
#[test]
fn validation_goes_on_below_a_long_name() {
    let schema = r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true}"#;
    let object = format!(r#"{{"{}":[{}1]}}"#, "k".repeat(1 << 20), "1,".repeat(100_000));
    let (errors, cost) = machinery_fuzz::cost(|| validated(schema, &object));
    assert_eq!(text(&errors), Vec::<String>::new());
    assert!(cost.total < 256 << 20, "{} bytes allocated", cost.total);
}

/// An error in each of many alternatives that come to nothing, below a long name.
#[test]
fn validation_counts_errors_of_alternatives() {
    let item = r#"{"type":"integer","anyOf":[{"minimum":2},{"minimum":1}]}"#;
    let list = format!(r#"{{"type":"array","items":{item}}}"#);
    let schema = format!(
        r#"{{"type":"object","properties":{{"m":{{"type":"object","additionalProperties":{list}}}}}}}"#
    );
    let object = format!(
        r#"{{"m":{{"{}":[{}1]}}}}"#,
        "k".repeat(1 << 20),
        "1,".repeat(100_000)
    );
    let (errors, cost) = machinery_fuzz::cost(|| validated(&schema, &object));
    assert!(errors.iter().any(|error| error.detail.contains("more steps")));
    assert!(cost.total < 5 << 30, "{} bytes allocated", cost.total);
}

/// Lists with keys are compared item by item, each found by its keys.
#[test]
fn validation_old_items_are_hashed() {
    let schema = r#"{"type":"object","properties":{"l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"integer"},"v":{"type":"string","minLength":1}}}}}}"#;
    let list = |items: std::ops::Range<usize>| {
        let items: Vec<String> = items.map(|at| format!(r#"{{"k":{at},"v":""}}"#)).collect();
        format!(r#"{{"l":[{}]}}"#, items.join(","))
    };
    let compiled = compiled(schema);
    let read = |text: &str| {
        decode_json(&compiled.schema, compiled.ty, text.as_bytes(), Strictness::Ignore)
            .unwrap()
            .tree
    };
    let (old, new) = (read(&list(0..20_000)), read(&list(1..20_002)));
    // What was there stays as wrong as it was; two are new.
    assert_eq!(validate(new.root(), Some(old.root())).len(), 2);
}

/// Each problem quotes the names above it: a long one above many fields took gigabytes.
#[test]
fn problems_of_a_schema_are_bounded_in_bytes() {
    let field = r#"{"uniqueItems":true,"items":{"type":"string"},"default":1,"type":"array"}"#;
    let untyped = r#"{"uniqueItems":true}"#;
    let fields = |own: &str| (0..500).map(|at| format!("\"f{at}\":{own}")).collect::<Vec<_>>();
    let schema = |own: &str| {
        let (name, fields) = ("k".repeat(50_000), fields(own).join(","));
        let long = format!("{{\"{name}\":{{\"type\":\"object\",\"properties\":{{{fields}}}}}}}");
        Tree::from_json(&format!("{{\"type\":\"object\",\"properties\":{long}}}")).unwrap()
    };
    let (typed, untyped, path) = (schema(field), schema(untyped), FieldPath::new("schema"));
    for found in [
        check_structural(untyped.root(), &path, &mut Patterns::default()),
        super::check_openapi(typed.root(), &path),
        super::check_defaults(typed.root(), &path),
    ] {
        let bytes: usize = text(&found).iter().map(String::len).sum();
        assert!((4 << 20..5 << 20).contains(&bytes), "{bytes}");
        let last = found.last().unwrap().to_string();
        assert!(last.ends_with("too many problems, the rest of the schema was not checked"));
    }
}

fn compiled(schema: &str) -> super::CompiledSchema {
    let table = pod_schema();
    let meta = table.type_named("v1.ObjectMeta").unwrap();
    let schema = Tree::from_json(schema).unwrap();
    compile(
        Some(schema.root()),
        (&table, meta),
        &FieldPath::new("schema"),
        &mut Patterns::default(),
    )
    .unwrap_or_else(|errors| panic!("{:?}", text(&errors)))
}

fn validated(schema: &str, object: &str) -> Vec<machinery_meta::FieldError> {
    let compiled = compiled(schema);
    let decoded = decode_json(
        &compiled.schema,
        compiled.ty,
        object.as_bytes(),
        Strictness::Ignore,
    );
    validate(decoded.unwrap().tree.root(), None)
}
