use super::{check_structural, compile, validate};
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
fn what_is_not_structural_is_named() {
    for case in file().structural {
        let schema = Tree::from_json(&case.schema.to_string()).unwrap();
        let errors = check_structural(schema.root(), &FieldPath::new("schema"));
        assert_eq!(text(&errors), case.errors, "{}", case.schema);
    }
}

#[test]
fn custom_resources_are_pruned_defaulted_and_validated() {
    let table = pod_schema();
    let meta = table.type_named("v1.ObjectMeta").unwrap();
    for group in file().values {
        let schema = Tree::from_json(&group.schema.to_string()).unwrap();
        let compiled = compile(Some(schema.root()), (&table, meta), &FieldPath::new("schema"))
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
            let errors = validate(decoded.tree.root(), old.as_ref().map(Tree::root));
            assert_eq!(text(&errors), case.errors, "{}", case.r#in);
        }
    }
}
