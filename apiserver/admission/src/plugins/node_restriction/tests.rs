//! Upstream's table of requests by nodes, with its answers.

use super::super::all;
use super::super::tests::{Objects, block_on};
use crate::permissions::{Permissions, Right};
use crate::{AdmissionChain, Operation, Request};
use async_trait::async_trait;
use machinery_meta::UserInfo;
use machinery_schema::Tree;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

#[derive(Deserialize)]
struct Table {
    objects: Vec<Value>,
    /// Positions in `objects`.
    worlds: Vec<Vec<usize>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    user: String,
    op: String,
    #[serde(default)]
    group: String,
    resource: String,
    #[serde(default)]
    sub: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    at: String,
    world: usize,
    object: Option<Value>,
    old: Option<Value>,
    /// The right the authorizers are asked about, with ` allow` where they grant it.
    #[serde(default)]
    asks: String,
    #[serde(default)]
    why: String,
    /// `other`: the refusal is no `Forbidden`.
    kind: Option<String>,
}

#[derive(Default)]
struct Rights {
    granted: bool,
    asked: Mutex<String>,
}

#[async_trait]
impl Permissions for Rights {
    async fn has(&self, _: &UserInfo, right: Right<'_>) -> Result<bool, crate::AdmissionError> {
        let Right {
            verb,
            group,
            resource,
            namespace,
            name,
        } = right;
        *self.asked.lock() = serde_json::json!([verb, group, resource, namespace, name]).to_string();
        Ok(self.granted)
    }
}

fn world(table: &Table, case: &Case) -> Objects {
    let mut objects = Objects::default();
    for at in &table.worlds[case.world] {
        let object = &table.objects[*at];
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let resource = format!("{}s", text("/kind").to_lowercase());
        objects = objects.with(
            &resource,
            text("/metadata/namespace"),
            text("/metadata/name"),
            &object.to_string(),
        );
    }
    objects
}

/// Runs the plugin on a case; returns the error's text, the right requested from the authorizers, and whether the
/// error is `Forbidden`.
fn run(table: &Table, case: &Case) -> (String, String, bool) {
    let rights = Arc::new(Rights {
        granted: case.asks.ends_with(" allow"),
        ..Rights::default()
    });
    let permissions: Arc<dyn Permissions> = Arc::clone(&rights) as _;
    let reader = Arc::new(world(table, case)) as _;
    let parts = super::super::tests::parts(&reader, None);
    let plugins = all(&reader, &permissions, Arc::new(|| 0), parts);
    let restriction = plugins
        .into_iter()
        .filter(|plugin| plugin.name() == "NodeRestriction");
    let chain = AdmissionChain::new(restriction.collect());
    let is_node = case.user.starts_with("system:node:");
    let user = UserInfo::named(&case.user, is_node.then_some("system:nodes"));
    let operation = match case.op.as_str() {
        "CREATE" => Operation::Create,
        "UPDATE" => Operation::Update,
        _ => Operation::Delete,
    };
    let request = Request {
        user: &user,
        operation,
        group: &case.group,
        kind: "",
        resource: &case.resource,
        subresource: &case.sub,
        namespace: &case.namespace,
        name: &case.at,
        dry_run: false,
        remarks: &crate::Unheard,
        host: None,
        reinvocation: None,
    };
    let tree = |value: &Value| Tree::from_json(&value.to_string()).unwrap();
    let old = case.old.as_ref().map(tree);
    let result = match case.object.as_ref().map(tree) {
        Some(mut object) if operation != Operation::Delete => {
            block_on(chain.mutate(&request, &mut object, old.as_ref()))
        }
        object => block_on(chain.validate(&request, object.as_ref(), old.as_ref())),
    };
    let forbidden = matches!(result, Err(crate::AdmissionError::Forbidden(_)));
    let said = result.err().map(|error| error.to_string()).unwrap_or_default();
    let asked = rights.asked.lock().clone();
    (said, asked, forbidden)
}

/// The differences themselves are written in other words.
fn without_differences(why: &str) -> &str {
    why.split_once("status.conditions: ")
        .map_or(why, |(before, _)| before)
}

#[test]
fn node_restriction_answers_as_upstream() {
    let text = include_str!("../../../testdata/node_restriction.json");
    let table: Table = serde_json::from_str(text).unwrap();
    assert!(table.cases.len() > 200);
    let mut differing = Vec::new();
    for case in &table.cases {
        let (said, asked, forbidden) = run(&table, case);
        let same = without_differences(&said) == without_differences(&case.why)
            && asked == case.asks.trim_end_matches(" allow")
            && forbidden == (!case.why.is_empty() && case.kind.is_none());
        if !same {
            differing.push(format!(
                "{}: {said:?} {asked} instead of {:?} {}",
                case.name, case.why, case.asks
            ));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// Beyond upstream's: agents make routes by these ranges.
#[test]
fn node_restriction_keeps_addresses_of_pods_from_nodes() {
    let node = |spec: &Value| serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mynode"}, "spec": spec});
    let check = |op: &str, new: Value, old: Option<Value>, refused: bool| {
        let table = serde_json::json!({"objects": [], "worlds": [[]], "cases": [{
            "name": op, "user": "system:node:mynode", "op": op, "resource": "nodes", "at": "mynode", "world": 0,
            "object": node(&new), "old": old.as_ref().map(&node)}]});
        let table: Table = serde_json::from_value(table).unwrap();
        let (said, ..) = run(&table, &table.cases[0]);
        let why = "node \"mynode\" is not allowed to set the addresses of its pods";
        assert_eq!(said.contains(why), refused, "{op} {new} {old:?}: {said}");
    };
    use serde_json::json;
    let given = || json!({"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]});
    check("CREATE", json!({}), None, false);
    check("CREATE", given(), None, true);
    check("CREATE", json!({"podCIDRs": ["0.0.0.0/0"]}), None, true);
    check("UPDATE", given(), Some(given()), false);
    check("UPDATE", given(), Some(json!({})), true);
    check("UPDATE", json!({}), Some(given()), true);
}

/// Beyond upstream's: slices of one driver and pool decide together.
#[test]
fn node_restriction_keeps_slices_out_of_pools_of_others() {
    use serde_json::json;
    let slice = |name: &str, pool: &str, place: Value| {
        let mut slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"driver": "gpu.example", "pool": {"name": pool, "generation": 9, "resourceSliceCount": 1}}});
        slice["spec"]
            .as_object_mut()
            .unwrap()
            .append(&mut place.as_object().unwrap().clone());
        slice
    };
    let of = |node: &str| json!({"nodeName": node});
    let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let objects = [
        node("good"),
        node("evil"),
        slice("s0", "rack", of("good")),
        slice("s1", "fabric", json!({"allNodes": true})),
        slice("s2", "shelf", json!({"perDeviceNodeSelection": true})),
        slice("s3", "spare", of("evil")),
        slice("s4", "evil", of("evil")),
    ];
    let run = |user: &str, op: &str, new: &Value, old: Option<&Value>| {
        let table = json!({"objects": objects, "worlds": [[0, 1, 2, 3, 4, 5, 6]], "cases": [{
            "name": op, "user": user, "op": op, "group": "resource.k8s.io", "resource": "resourceslices", "world": 0,
            "object": new, "old": old}]});
        let table: Table = serde_json::from_value(table).unwrap();
        let (said, _, forbidden) = run(&table, &table.cases[0]);
        assert_eq!(forbidden, !said.is_empty(), "{said}");
        said
    };
    let create = |pool: &str| {
        run(
            "system:node:evil",
            "CREATE",
            &slice("new", pool, of("evil")),
            None,
        )
    };
    let of_others = |pool: &str| {
        format!("pool {pool:?} of driver \"gpu.example\" has slices that are not of node \"evil\"")
    };
    let said = ["evil", "spare", "unknown", "rack", "fabric", "shelf", "good"].map(create);
    let expected = [
        String::new(),
        String::new(),
        String::new(),
        of_others("rack"),
        of_others("fabric"),
        of_others("shelf"),
        "\"good\" is the name of another node".to_owned(),
    ];
    let prefix = "can only create ResourceSlice in a pool of the requesting node: ";
    let reasons = said
        .each_ref()
        .map(|said| said.strip_prefix(prefix).unwrap_or(said));
    assert_eq!(reasons, expected.each_ref().map(String::as_str), "{said:?}");
    let mut of_another_driver = slice("new", "rack", of("evil"));
    of_another_driver["spec"]["driver"] = "nic.example".into();
    assert_eq!(run("system:node:evil", "CREATE", &of_another_driver, None), "");
    assert_eq!(
        run("admin", "CREATE", &slice("new", "rack", of("evil")), None),
        ""
    );
    // A node goes on with slices that it has in a pool of others: validation keeps their pool, driver and node.
    let own = slice("mixed", "rack", of("evil"));
    assert_eq!(run("system:node:evil", "UPDATE", &own, Some(&own)), "");
}

#[derive(Deserialize)]
struct SigningRequest {
    name: String,
    spec: Value,
    why: String,
}

#[test]
fn csr_of_a_node_names_that_node() {
    let text = include_str!("../../../testdata/node_requests.json");
    let cases: Vec<SigningRequest> = serde_json::from_str(text).unwrap();
    for case in cases {
        let said = |user: &str| {
            let table = serde_json::json!({"objects": [], "worlds": [[]], "cases": [{
                "name": case.name, "user": user, "op": "CREATE", "group": "certificates.k8s.io",
                "resource": "certificatesigningrequests", "at": "", "world": 0,
                "object": {"spec": case.spec}}]});
            let table: Table = serde_json::from_value(table).unwrap();
            run(&table, &table.cases[0]).0
        };
        assert_eq!(said("system:node:mynode"), case.why, "{}", case.name);
        assert_eq!(said("bob"), "", "{}", case.name);
    }
}
