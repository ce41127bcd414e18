use crate::testing::{pod_schema, pod_type};
use crate::{Kind, Step, Tree, Value};

#[test]
fn tree_set_value_is_read() {
    let schema = pod_schema();
    let mut tree = Tree::new(&schema, pod_type(&schema));
    tree.set_str(&["status", "phase"], "Pending");
    tree.set_str(&["metadata", "name"], "a");
    tree.set_str(&["metadata", "labels", "b"], "2");
    tree.set_str(&["metadata", "labels", "a"], "1");
    let path = [
        Step::Name("spec"),
        Step::Name("containers"),
        Step::Index(0),
        Step::Name("name"),
    ];
    tree.set(&path, "c");
    assert_eq!(
        tree.root().to_json(),
        r#"{"metadata":{"name":"a","labels":{"a":"1","b":"2"}},"spec":{"containers":[{"name":"c"}]},"status":{"phase":"Pending"}}"#
    );
    assert_eq!(tree.str_at(&["metadata", "labels", "b"]), "2");
    assert_eq!(tree.at(&["spec", "containers"]).unwrap().kind(), Kind::List);
    let names: Vec<_> = tree
        .get("metadata")
        .unwrap()
        .entries()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["name", "labels"]);
    assert!(tree.remove(&["metadata", "labels", "a"]));
    assert!(!tree.remove(&["metadata", "labels", "a"]));
    assert_eq!(
        tree.get("metadata").unwrap().to_json(),
        r#"{"name":"a","labels":{"b":"2"}}"#
    );
}

#[test]
fn defaults_leave_what_is_there() {
    let schema = pod_schema();
    let mut tree = Tree::new(&schema, pod_type(&schema));
    tree.push(&["spec", "containers"], Value::EmptyMap);
    tree.with(&["spec"], |mut spec| {
        assert!(spec.default("restartPolicy", "Always"));
        assert!(!spec.default("restartPolicy", "Never"));
        spec.each("containers", |mut container| {
            container.default("name", "main");
            container
                .entry("ports")
                .push(Value::EmptyMap)
                .set("containerPort", 80);
        });
    });
    assert_eq!(
        tree.get("spec").unwrap().to_json(),
        r#"{"containers":[{"name":"main","ports":[{"containerPort":80}]}],"restartPolicy":"Always"}"#
    );
}

#[test]
fn copies_cross_schemas_by_name() {
    let schema = pod_schema();
    let free = Tree::from_json(r#"{"containers":[{"image":"i","name":"n","what":1}],"aaa":2}"#).unwrap();
    let mut tree = Tree::new(&schema, pod_type(&schema));
    tree.set(&["spec".into()], free.root());
    assert_eq!(
        tree.get("spec").unwrap().to_json(),
        r#"{"containers":[{"name":"n","image":"i","what":1}],"aaa":2}"#
    );
    assert_eq!(
        tree.get("spec").unwrap().to_tree().root(),
        tree.get("spec").unwrap()
    );
}

#[test]
fn members_set_at_once_are_in_the_order_of_the_type() {
    let schema = pod_schema();
    let members = [
        ("what", Value::Int(1)),
        ("image", Value::Str("i")),
        ("also", Value::Raw("{}")),
        ("name", Value::Str("n")),
    ];
    let mut tree = Tree::new(&schema, pod_type(&schema));
    tree.push(&["spec", "containers"], Value::EmptyMap);
    let mut single = tree.clone();
    tree.with(&["spec", "containers"], |mut list| {
        list.item(0).unwrap().set("image", "gone");
        list.item(0).unwrap().set_members(&members);
    });
    single.with(&["spec", "containers"], |mut list| {
        let mut item = list.item(0).unwrap();
        members.iter().for_each(|(name, value)| item.set(name, *value));
    });
    assert_eq!(
        tree.at(&["spec", "containers"]).unwrap().to_json(),
        r#"[{"name":"n","image":"i","also":{},"what":1}]"#
    );
    assert_eq!(tree, single);
    assert_eq!(tree.check_bounds(), Ok(()));
}

#[test]
fn lists_change() {
    let mut tree = Tree::from_json("[1,2,3,4]").unwrap();
    let mut root = tree.root_mut();
    assert!(root.remove_item(1));
    root.insert(0, 9);
    root.retain(|item| item.as_i64() != Some(3));
    root.reorder(&[2, 0, 1]);
    assert_eq!(tree.root().to_json(), "[4,9,1]");
}

#[test]
fn blob_holds_the_whole_schema() {
    let schema = pod_schema();
    let blob = crate::table::blob::write(&schema);
    let again = crate::table::blob::read(&blob).unwrap();
    assert_eq!(again.fingerprint(), schema.fingerprint());
    for cut in 0..blob.len().min(400) {
        assert!(crate::table::blob::read(&blob[..cut]).is_err());
    }
}
