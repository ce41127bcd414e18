//! Managed fields and conflicts of a real API server of 1.37 for the same objects.

use super::{FieldSet, ShownBytes, Steps, Typed, UnownedMembers, edited};
use crate::json::{Strictness, decode_json};
use crate::patch::to_untyped;
use crate::table::{FieldSpec, ListType, MapType, Schema, SchemaBuilder, Shape, TypeId};
use crate::tree::Tree;
use std::sync::Arc;

/// `spec` with an atomic selector, ports by port and protocol, a set of texts and a list as a whole; `data` as a map.
fn schema() -> (Arc<Schema>, TypeId) {
    let mut b = SchemaBuilder::new();
    let string = b.leaf(Shape::Str, "string");
    let int32 = b.leaf(Shape::Int32, "int32");
    let strings = b.map(string);
    let list = b.list(string);
    let port = b.declare("Port", "v1.Port");
    let mut protocol = FieldSpec::optional("protocol", string);
    protocol.default = "\"TCP\"".to_owned();
    let name = FieldSpec::optional("name", string);
    b.define_struct(port, vec![name, protocol, FieldSpec::always("port", int32)], &[]);
    let spec = b.declare("Spec", "v1.Spec");
    let mut selector = FieldSpec::optional("selector", strings);
    selector.map_type = MapType::Atomic;
    let port_list = b.list(port);
    let mut ports = FieldSpec::optional("ports", port_list);
    (ports.list_type, ports.map_keys) = (ListType::Map, vec!["port".to_owned(), "protocol".to_owned()]);
    let mut finalizers = FieldSpec::optional("finalizers", list);
    finalizers.list_type = ListType::Set;
    let args = FieldSpec::optional("args", list);
    b.define_struct(spec, vec![selector, ports, finalizers, args], &[]);
    let root = b.declare("Thing", "v1.Thing");
    b.define_struct(
        root,
        vec![
            FieldSpec::optional("spec", spec),
            FieldSpec::optional("data", strings),
        ],
        &[],
    );
    (Arc::new(b.finish().unwrap()), root)
}

fn document(json: &str) -> Tree {
    Tree::from_json(json).unwrap()
}

/// Calls `test` with a document of the type above.
fn with<T>(json: &str, test: impl FnOnce(Typed<'_>) -> T) -> T {
    let (schema, ty) = schema();
    let document = document(json);
    test(Typed {
        schema: &schema,
        ty,
        document: &document,
    })
}

#[track_caller]
fn check_fields(json: &str, expected: &str) {
    let found = with(json, |own| own.fields());
    assert_eq!(found.to_json(), expected);
    assert_eq!(FieldSet::from_json(expected).unwrap(), found, "reading it back");
}

#[test]
fn field_set_of_a_document() {
    check_fields(
        r#"{"data":{"k":"v","l":"w"}}"#,
        r#"{"f:data":{"f:k":{},"f:l":{}}}"#,
    );
    check_fields(
        r#"{"spec":{"selector":{"a":"b"},"ports":[{"port":80}],"args":["x","y"],"finalizers":["f"]}}"#,
        r#"{"f:spec":{"f:args":{},"f:finalizers":{"v:\"f\"":{}},"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},"f:selector":{}}}"#,
    );
    check_fields(r#"{"data":{},"spec":null}"#, r#"{"f:data":{},"f:spec":{}}"#);
}

#[track_caller]
fn check_merge(live: &str, configuration: &str, expected: &str) {
    let merged = with(live, |live| live.merge(&document(configuration)).unwrap());
    assert_eq!(merged.root().to_json(), document(expected).root().to_json());
}

#[test]
fn apply_configuration_is_merged() {
    check_merge(
        r#"{"data":{"a":"1","b":"2"}}"#,
        r#"{"data":{"b":"3","c":"4"}}"#,
        r#"{"data":{"a":"1","b":"3","c":"4"}}"#,
    );
    check_merge(
        r#"{"spec":{"selector":{"a":"b"},"args":["x"]}}"#,
        r#"{"spec":{"selector":{"c":"d"},"args":["y"]}}"#,
        r#"{"spec":{"selector":{"c":"d"},"args":["y"]}}"#,
    );
    check_merge(
        r#"{"spec":{"ports":[{"port":1,"protocol":"TCP","name":"one"},{"port":2,"protocol":"UDP"}]}}"#,
        r#"{"spec":{"ports":[{"port":3},{"port":1,"name":"first"}]}}"#,
        r#"{"spec":{"ports":[{"port":3},{"name":"first","port":1,"protocol":"TCP"},{"port":2,"protocol":"UDP"}]}}"#,
    );
    check_merge(
        r#"{"spec":{"finalizers":["a","b"]}}"#,
        r#"{"spec":{"finalizers":["x","b"]}}"#,
        r#"{"spec":{"finalizers":["a","x","b"]}}"#,
    );
    check_merge(
        r#"{"data":{"a":"1"}}"#,
        r#"{"data":null}"#,
        r#"{"data":{"a":"1"}}"#,
    );
}

#[track_caller]
fn check_comparison(before: &str, after: &str, expected: [&str; 3]) {
    let found = with(before, |before| before.compare(&document(after)));
    let shown = [&found.added, &found.modified, &found.removed].map(FieldSet::to_json);
    assert_eq!(shown, expected);
}

#[test]
fn documents_are_compared() {
    check_comparison(
        r#"{"data":{"a":"1","b":"2"}}"#,
        r#"{"data":{"b":"3","c":"4"}}"#,
        [
            r#"{"f:data":{"f:c":{}}}"#,
            r#"{"f:data":{"f:b":{}}}"#,
            r#"{"f:data":{"f:a":{}}}"#,
        ],
    );
    check_comparison(
        "{}",
        r#"{"data":{"c":"4"}}"#,
        [r#"{"f:data":{".":{},"f:c":{}}}"#, "{}", "{}"],
    );
    check_comparison(
        r#"{"spec":{"ports":[{"port":1,"protocol":"TCP"},{"port":2,"protocol":"TCP"}]}}"#,
        r#"{"spec":{"ports":[{"port":2,"protocol":"TCP","name":"x"}]}}"#,
        [
            r#"{"f:spec":{"f:ports":{"k:{\"port\":2,\"protocol\":\"TCP\"}":{"f:name":{}}}}}"#,
            "{}",
            r#"{"f:spec":{"f:ports":{"k:{\"port\":1,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:protocol":{}}}}}"#,
        ],
    );
}

/// Values of a field without a schema (`x-kubernetes-preserve-unknown-fields`), by structured-merge-diff's
/// `typed/compare.go`: scalars and lists are leaves, maps are taken apart, null takes the other side's form.
#[test]
fn comparison_of_values_of_other_kinds() {
    let below = r#"{"f:free":{"f:y":{}}}"#;
    let own = r#"{"f:free":{}}"#;
    let none = "{}";
    for (before, after, expected) in [
        ("1", "2", [none, own, none]),
        ("1", r#"{"y":1}"#, [below, own, none]),
        (r#"{"y":1}"#, "1", [none, own, below]),
        ("1", "{}", [none, own, none]),
        ("{}", "1", [none, own, none]),
        ("1", "[1]", [none, own, none]),
        ("[1]", "1", [none, own, none]),
        ("[1]", r#"{"y":1}"#, [below, own, none]),
        (r#"{"y":1}"#, "[1]", [none, own, below]),
        ("[]", r#"{"y":1}"#, [below, own, none]),
        (r#"{"y":1}"#, "[]", [none, own, below]),
        ("[]", "{}", [none, own, none]),
        ("null", r#"{"y":1}"#, [below, none, none]),
        (r#"{"y":1}"#, "null", [none, none, below]),
        ("{}", r#"{"y":1}"#, [below, none, none]),
        (r#"{"y":1}"#, "{}", [none, none, below]),
        ("null", "1", [none, own, none]),
        ("1", "null", [none, own, none]),
        ("null", "[1]", [none, own, none]),
        ("[1]", "null", [none, own, none]),
        ("null", "{}", [none, own, none]),
        ("null", "null", [none, none, none]),
    ] {
        let [before, after] = [before, after].map(|value| format!(r#"{{"free":{value}}}"#));
        check_comparison(&before, &after, expected);
    }
}

#[test]
fn fields_are_removed() {
    let fields = FieldSet::from_json(
        r#"{"f:data":{"f:a":{}},"f:spec":{"f:ports":{"k:{\"port\":1,\"protocol\":\"TCP\"}":{".":{}}},"f:finalizers":{"v:\"x\"":{}}}}"#,
    )
    .unwrap();
    let left = with(
        r#"{"data":{"a":"1","b":"2"},"spec":{"ports":[{"port":1},{"port":2}],"finalizers":["x","y"]}}"#,
        |own| own.remove(&fields).unwrap(),
    );
    let expected = r#"{"data":{"b":"2"},"spec":{"ports":[{"port":2}],"finalizers":["y"]}}"#;
    assert_eq!(left.root().to_json(), document(expected).root().to_json());
}

#[track_caller]
fn check_problems(json: &str, expected: &[&str]) {
    assert_eq!(with(json, |own| own.problems()), expected);
}

#[test]
fn apply_configuration_must_match_schema() {
    check_problems(r#"{"data":{"k":"v"},"spec":{"ports":[{"port":80}]}}"#, &[]);
    check_problems(r#"{"bogus":1}"#, &[".bogus: field not declared in schema"]);
    check_problems(
        r#"{"data":{"k":3}}"#,
        &[".data.k: expected string, got &value.valueUnstructured{Value:3}"],
    );
    check_problems(
        r#"{"spec":{"ports":[{"port":80},{"port":80,"protocol":"TCP"}]}}"#,
        &[r#".spec.ports: duplicate entries for key [port=80,protocol="TCP"]"#],
    );
    check_problems(
        r#"{"spec":{"ports":[{"port":81,"name":true}]}}"#,
        &[
            r#".spec.ports[port=81,protocol="TCP"].name: expected string, got &value.valueUnstructured{Value:true}"#,
        ],
    );
}

#[test]
fn sets_are_calculated_with() {
    let set = |json: &str| FieldSet::from_json(json).unwrap();
    let (one, two) = (
        set(r#"{"f:a":{},"f:b":{".":{},"f:c":{}}}"#),
        set(r#"{"f:b":{"f:c":{}},"f:d":{}}"#),
    );
    let steps = Steps::default();
    assert_eq!(
        steps.union(&one, &two).unwrap().to_json(),
        r#"{"f:a":{},"f:b":{".":{},"f:c":{}},"f:d":{}}"#
    );
    assert_eq!(
        steps.intersection(&one, &two).unwrap().to_json(),
        r#"{"f:b":{"f:c":{}}}"#
    );
    assert_eq!(one.difference(&two).to_json(), r#"{"f:a":{},"f:b":{}}"#);
    assert_eq!(one.paths(&mut ShownBytes::default()), [".a", ".b", ".b.c"]);
    let mut forgotten = one.clone();
    forgotten.forget(&["b", "c"]);
    assert_eq!(forgotten.to_json(), r#"{"f:a":{},"f:b":{}}"#);
}

#[test]
fn parts_are_there_for_what_they_hold() {
    let own = with("{}", |own| {
        let fields = FieldSet::from_json(r#"{"f:spec":{"f:args":{}},"f:data":{"f:k":{}}}"#).unwrap();
        own.with_named_parents(&fields)
    });
    assert_eq!(
        own.to_json(),
        r#"{"f:data":{".":{},"f:k":{}},"f:spec":{".":{},"f:args":{}}}"#
    );
}

/// Few fields below long names: a difference is written once, and shown within bounds.
#[test]
fn fields_below_long_names_are_shown_within_bounds() {
    let leaves: Vec<String> = (0..2_000).map(|at| format!(r#""k{at}":1"#)).collect();
    let deep = format!(r#"{{"{}":{{{}}}}}"#, "n".repeat(1 << 18), leaves.join(","));
    let (before, after) = (Tree::from_json("{}").unwrap(), Tree::from_json(&deep).unwrap());
    let schema = crate::tree::untyped_schema();
    let typed = Typed {
        schema: &schema,
        ty: crate::TypeId::ANY,
        document: &before,
    };
    let added = typed.compare(&after).added;
    let paths = added.paths(&mut ShownBytes::default());
    assert!(!paths.is_empty());
    let bytes: usize = paths.iter().map(String::len).sum();
    assert!(bytes <= 2 << 20, "{bytes} bytes");
}

#[test]
fn field_set_operations_take_steps() {
    let set = FieldSet::from_json(r#"{"f:a":{".":{},"f:b":{}},"f:c":{}}"#).unwrap();
    assert_eq!(set.size(), 3);
    let steps = Steps::new(10);
    steps.union(&set, &set).unwrap();
    assert_eq!(steps.left(), 4);
    steps.difference(&set, &set).unwrap();
    steps.intersection(&set, &set).unwrap_err();
    assert_eq!(steps.left(), 0);
}

#[test]
fn fields_v1_that_is_none_is_refused() {
    let deep = format!("{}{{}}{}", r#"{"f:a":"#.repeat(300), "}".repeat(300));
    for text in [
        "1",
        r#"{"a":{}}"#,
        r#"{"f:a":1}"#,
        r#"{"k:[]":{}}"#,
        r#"{"k:{":{}}"#,
        r#"{"i:x":{}}"#,
        r#"{"ab:c":{}}"#,
        &deep,
    ] {
        FieldSet::from_json(text).unwrap_err();
    }
    let read = |text: &str| FieldSet::from_json(text).unwrap().to_json();
    assert_eq!(read(r#"{"x:y":{},"f:a":null}"#), r#"{"f:a":{}}"#);
}

#[test]
fn elements_are_in_upstreams_order() {
    let set = FieldSet::from_json(
        r#"{"f:l":{"k:{\"p\":443}":{},"k:{\"p\":80}":{},"v:\"a\"":{},"v:true":{},"v:9":{},"v:10":{}}}"#,
    )
    .unwrap();
    assert_eq!(
        set.to_json(),
        r#"{"f:l":{"k:{\"p\":80}":{},"k:{\"p\":443}":{},"v:9":{},"v:10":{},"v:\"a\"":{},"v:true":{}}}"#
    );
    assert_eq!(
        set.to_json_by_text(),
        r#"{"f:l":{"k:{\"p\":443}":{},"k:{\"p\":80}":{},"v:\"a\"":{},"v:10":{},"v:9":{},"v:true":{}}}"#
    );
}

#[test]
fn items_that_cannot_be_told_apart_are_compared_as_one() {
    let ports = |ports: &str| format!(r#"{{"spec":{{"ports":[{ports}]}}}}"#);
    let twice = r#"{"port":1,"protocol":"TCP","name":"a"},{"port":1,"protocol":"TCP","name":"b"}"#;
    let once = r#"{"port":1,"protocol":"TCP","name":"a"}"#;
    let element = r#"{"f:spec":{"f:ports":{"k:{\"port\":1,\"protocol\":\"TCP\"}":{}}}}"#;
    check_comparison(&ports(twice), &ports(twice), ["{}", "{}", "{}"]);
    let other = twice.replace("\"b\"", "\"c\"");
    check_comparison(&ports(twice), &ports(&other), ["{}", element, "{}"]);
    let fields = r#"{"f:spec":{"f:ports":{"k:{\"port\":1,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}}}}}"#;
    check_comparison(&ports(once), &ports(twice), [element, "{}", fields]);
    check_comparison(&ports(twice), &ports(once), [fields, "{}", element]);
    check_fields(&ports(twice), element);
}

/// A generator of sets and documents.
struct Sets(u64);

impl Sets {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn text(&mut self, depth: usize) -> String {
        let elements = [
            "f:a",
            "f:b",
            r#"f:c\"d"#,
            r#"k:{\"p\":80}"#,
            r#"k:{\"p\":443}"#,
            r#"v:\"x\""#,
            "i:2",
        ];
        let mut members = Vec::new();
        if self.below(3) == 0 {
            members.push(r#"".":{}"#.to_owned());
        }
        for element in elements {
            match self.below(3) {
                0 if depth < 3 => members.push(format!(r#""{element}":{}"#, self.text(depth + 1))),
                1 => members.push(format!(r#""{element}":{{}}"#)),
                _ => {}
            }
        }
        format!("{{{}}}", members.join(","))
    }

    /// A document of the type at the top of this file, with each member now and then.
    fn document(&mut self) -> String {
        let mut spec = Vec::new();
        if self.below(3) > 0 {
            spec.push(format!(r#""selector":{{{}}}"#, self.texts()));
        }
        if self.below(3) > 0 {
            let ports = ["1", r#"2,"name":"n""#, r#"2,"protocol":"UDP""#, r#"3,"name":"m""#];
            let ports = ports.map(|port| match self.below(2) {
                0 => String::new(),
                _ => format!(r#"{{"port":{port}}}"#),
            });
            spec.push(format!(r#""ports":[{}]"#, joined(&ports)));
        }
        if self.below(3) > 0 {
            let finalizers = ["\"a\"", r#""b\"<""#].map(|own| match self.below(2) {
                0 => String::new(),
                _ => own.to_owned(),
            });
            spec.push(format!(r#""finalizers":[{}]"#, joined(&finalizers)));
        }
        let data = self.texts();
        match self.below(3) {
            0 => format!(r#"{{"spec":{{{}}}}}"#, spec.join(",")),
            1 => format!(r#"{{"data":{{{data}}}}}"#),
            _ => format!(r#"{{"spec":{{{}}},"data":{{{data}}}}}"#, spec.join(",")),
        }
    }

    fn texts(&mut self) -> String {
        let texts = ["a", "b", "c<", "d"].map(|name| match self.below(3) {
            0 => String::new(),
            _ => format!(r#""{name}":"{}""#, self.below(2)),
        });
        joined(&texts)
    }

    fn set(&mut self) -> FieldSet {
        let text = self.text(0);
        FieldSet::from_json(&text).unwrap()
    }
}

/// The texts that there are, with commas.
fn joined(texts: &[String]) -> String {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let texts: Vec<&str> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    texts.join(",")
}

/// Members of objects of one type are walked in step, those of others are looked up by name.
#[test]
fn comparison_of_objects_of_one_type_is_that_of_their_documents() {
    let (schema, ty) = schema();
    let typed = |json: &str| {
        let decoded = decode_json(&schema, ty, json.as_bytes(), Strictness::Report).unwrap();
        assert!(decoded.strict_errors.is_empty(), "{:?}", decoded.strict_errors);
        decoded.tree
    };
    let mut sets = Sets(3);
    let mut same = 0;
    for _ in 0..2_000 {
        let [before, after] = [sets.document(), sets.document()].map(|json| typed(&json));
        let [old, new] = [&before, &after].map(to_untyped);
        let of = |document| Typed {
            schema: &schema,
            ty,
            document,
        };
        let expected = of(&old).compare(&after);
        let shown = || format!("{:?} {:?}", before.root(), after.root());
        assert_eq!(of(&before).compare(&after), expected, "typed {}", shown());
        assert_eq!(of(&old).compare(&new), expected, "free-form {}", shown());
        let is_same = before.root().to_json() == after.root().to_json();
        assert_eq!([before == after, old == new], [is_same; 2], "{}", shown());
        same += usize::from(is_same);
        let nothing = Tree::new(&schema, ty);
        let unowned = UnownedMembers {
            root: &[],
            metadata: &[],
        };
        let added = of(&nothing).compare(&after).added;
        let initial = of(&nothing).initial_fields(&after, unowned);
        assert_eq!(initial.unwrap_or("{}".to_owned()), added.to_json(), "{}", shown());
    }
    assert!(same > 0);
}

#[test]
fn edited_text_is_that_of_the_calculated_set() {
    let mut sets = Sets(7);
    for round in 0..2_000 {
        let (own, gone, more, added) = (sets.set(), sets.set(), sets.set(), sets.set());
        let added = if round % 3 == 0 {
            FieldSet::default()
        } else {
            added
        };
        let left = own.difference(&gone).difference(&more);
        let expected = Steps::default().union(&left, &added).unwrap().to_json();
        assert_eq!(
            edited(&own.to_json(), &[&gone, &more], &added),
            Some(expected),
            "{}",
            own.to_json()
        );
        assert_eq!(
            edited(&own.to_json(), &[], &FieldSet::default()),
            Some(own.to_json())
        );
    }
}

#[test]
fn edited_text_in_another_order_is_nobodys() {
    let added = FieldSet::of(&["l", "z"]);
    for text in [
        r#"{"f:l":{"f:b":{},"f:a":{}}}"#,
        r#"{"f:l":{"k:{\"p\":443}":{},"k:{\"p\":80}":{}}}"#,
        r#"{"f:l": {}}"#,
        r#"{"f:l":{}"#,
        r#"{"f:l":1}"#,
        "{\"f:k\tl\":{}}",
        r#"{"f:l":{},"f:m":{}"#,
        "null",
        "",
    ] {
        assert_eq!(edited(text, &[], &added), None, "{text}");
    }
}

/// A document that no client may send is an error, and no empty one.
#[test]
fn merge_beyond_the_largest_document_is_refused() {
    let half = "x".repeat(crate::json::MAX_INPUT / 2);
    let live = format!(r#"{{"data":{{"a":"{half}"}}}}"#);
    let more = document(&format!(r#"{{"data":{{"b":"{half}"}}}}"#));
    let merged = with(&live, |live| live.merge(&more));
    assert!(
        matches!(merged, Err(crate::json::DecodeError::TooLarge { .. })),
        "{:?}",
        merged.map(|tree| tree.root().to_json().len())
    );
    let less = document(r#"{"data":{"b":"y"}}"#);
    let merged = with(&live, |live| live.merge(&less)).unwrap();
    assert_eq!(merged.root().to_json().len(), live.len() + r#","b":"y""#.len());
}
