//! Objects that upstream's server refused (or took), and the sentences with which it did (`testdata/validation`).
//!
//! A case is a new `object`; or a change of `old` to `object`, of a `part` where one is named. Each list of problems was
//! given by kube-apiserver 1.37 for these same requests (those of `limit_range` and `resource_quota`, which hold upstream's
//! table tests, were read in its code), and no list means that it took the object. A value that it shows
//! in its internal form stands as `…`, a uid as `UID`.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use apiserver_registry::options::{CreateOptions, RevisionMatch, UpdateOptions};
use apiserver_registry::{
    Door, ObjectPart, Registry, RegistryError, Replacement, RequestContext, Scope, Store, SystemDoors,
    SystemWriter, Target, kinds,
};
use apiserver_storage::{LogStorage, Storage};
use machinery_meta::{FieldError, UserInfo};
use machinery_runtime::{Runtime, Simulation};
use machinery_schema::{Strictness, Tree, apply_defaults, decode_json};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    kind: String,
    part: Option<String>,
    old: Option<Value>,
    object: Value,
    problems: Vec<String>,
}

fn cases() -> Vec<(String, Vec<Case>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/validation");
    let mut all: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let cases = serde_json::from_slice(&std::fs::read(&path).unwrap()).expect("the cases are JSON");
            (path.file_stem().unwrap().to_str().unwrap().to_owned(), cases)
        })
        .collect();
    all.sort_by(|a: &(String, _), b| a.0.cmp(&b.0));
    all
}

/// A registry of one case, so that no case knows another.
struct World {
    registry: Registry,
    /// Skips admission.
    door: Door<'static>,
    ctx: RequestContext,
}

impl World {
    async fn new(runtime: &Runtime) -> Self {
        let storage: Arc<dyn Storage> = Arc::new(LogStorage::memory(runtime).await.unwrap());
        let door = SystemDoors::of(&storage).door(SystemWriter::Startup);
        let registry = Registry::new(storage, runtime.clone(), kinds::built_in());
        let user = UserInfo::named("tester", [UserInfo::MASTERS]);
        let ctx = RequestContext::internal(user, runtime.clone());
        let world = Self { registry, door, ctx };
        let range = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16"]}});
        let made = world.create("networking.k8s.io/v1 ServiceCIDR", &range).await;
        made.expect("a range of addresses");
        world
    }

    fn store(&self, kind: &str) -> Store {
        let (version, kind) = kind.split_once(' ').expect("apiVersion and kind");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let rows = self.registry.rows();
        let row = rows
            .all()
            .find(|row| (&*row.gvk.group, &*row.gvk.version, &*row.gvk.kind) == (group, version, kind))
            .expect("a built-in kind");
        self.registry.store(group, version, &row.plural).expect("a store")
    }

    fn tree(store: &Store, object: &Value) -> Tree {
        let mut object = object.clone();
        object["apiVersion"] = json!(store.row.gvk.api_version());
        object["kind"] = json!(store.row.gvk.kind);
        let text = object.to_string();
        let row = &store.row;
        let decoded = decode_json(&row.schema, row.ty, text.as_bytes(), Strictness::Report).expect(&text);
        assert_eq!(decoded.strict_errors, Vec::<String>::new(), "{text}");
        let mut tree = decoded.tree;
        apply_defaults(&mut tree);
        row.strategy.defaults(&mut tree);
        tree
    }

    async fn create(&self, kind: &str, object: &Value) -> Result<(), RegistryError> {
        let store = self.store(kind);
        let (tree, options) = (Self::tree(&store, object), CreateOptions::default());
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        store
            .create(&self.ctx, &Scope::of(namespace), tree, &options, self.door)
            .await?;
        Ok(())
    }

    async fn update(&self, kind: &str, part: ObjectPart, object: &Value) -> Result<(), RegistryError> {
        let store = self.store(kind);
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let mut tree = Self::tree(&store, object);
        let scope = Scope::of(namespace);
        let live = store.get(&scope, name, RevisionMatch::MostRecent).await?;
        tree.set_str(&["metadata", "resourceVersion"], &live.revision.to_string());
        let target = Target {
            scope: &scope,
            name,
            part,
        };
        let options = UpdateOptions::default();
        store
            .update(&self.ctx, target, &Replacement(tree), &options, self.door)
            .await?;
        Ok(())
    }

    async fn ask(&self, case: &Case) -> Result<(), RegistryError> {
        let Some(old) = &case.old else {
            return self.create(&case.kind, &case.object).await;
        };
        self.create(&case.kind, old).await.expect("what was there before");
        if old.get("status").is_some() && case.kind != "v1 Node" {
            let written = self.update(&case.kind, ObjectPart::Status, old).await;
            written.expect("the status that was there before");
        }
        let part = match case.part.as_deref() {
            None => ObjectPart::Main,
            Some("status") => ObjectPart::Status,
            Some(other) => ObjectPart::Other(other.to_owned().leak()),
        };
        self.update(&case.kind, part, &case.object).await
    }
}

/// A problem as the data have it.
fn describe(error: &FieldError, expected: Option<&String>) -> String {
    let internal = expected.is_some_and(|expected| expected.contains("value: …"));
    let value = error.value.clone().filter(|_| !internal);
    let shown = FieldError {
        value: value.or_else(|| internal.then(|| "…".to_owned())),
        ..error.clone()
    };
    without_uids(&shown.to_string())
}

fn without_uids(text: &str) -> String {
    const LENGTH: usize = 36;
    let is_uid = |text: &str| {
        let dash = |at: usize| [8, 13, 18, 23].contains(&at);
        text.bytes().enumerate().all(|(at, byte)| {
            if dash(at) {
                byte == b'-'
            } else {
                byte.is_ascii_hexdigit()
            }
        })
    };
    let mut out = text.to_owned();
    let mut at = 0;
    while let Some(candidate) = out.get(at..at + LENGTH) {
        if is_uid(candidate) {
            out.replace_range(at..at + LENGTH, "UID");
        }
        at += out[at..].chars().next().map_or(1, char::len_utf8);
    }
    out
}

fn problems(case: Case) -> (Vec<String>, Case) {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let world = World::new(&runtime).await;
        let found = match world.ask(&case).await {
            Ok(()) => Vec::new(),
            Err(RegistryError::Invalid { errors, .. }) => {
                let expected = (0..).map(|at| case.problems.get(at));
                errors
                    .iter()
                    .zip(expected)
                    .map(|(error, expected)| describe(error, expected))
                    .collect()
            }
            Err(other) => vec![format!("! {other}")],
        };
        (found, case)
    })
}

#[test]
fn problems_are_upstreams() {
    let mut wrong = Vec::new();
    for (file, cases) in cases() {
        for (at, case) in cases.into_iter().enumerate() {
            let (found, case) = problems(case);
            if found != case.problems {
                let part = case.part.unwrap_or_default();
                wrong.push(format!(
                    "{file}[{at}] {} {part} {}\n  expected {:#?}\n  found {found:#?}",
                    case.kind, case.object, case.problems
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
