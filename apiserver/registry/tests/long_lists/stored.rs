//! Whole creates of services, with all that the store does for them.

use apiserver_registry::options::CreateOptions;
use apiserver_registry::{Registry, RegistryError, RequestContext, Scope, SystemDoors, SystemWriter, kinds};
use apiserver_storage::{LogStorage, Storage};
use machinery_fuzz::{Stages, growth};
use machinery_meta::UserInfo;
use machinery_runtime::Simulation;
use machinery_schema::{Strictness, Tree, apply_defaults, decode_json};
use std::sync::Arc;

/// Ports that a service may have (decision 0095).
const PORTS: usize = 1_000;
/// Ports of a service with which a tenant held up all others.
const TOO_MANY_PORTS: usize = 20_000;

/// Number of problems of a service with these ports.
fn problems(stages: &mut Stages, spec: &str) -> usize {
    let text = format!(r#"{{"metadata":{{"name":"a"}},"spec":{spec}}}"#);
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    let work = async move {
        let storage: Arc<dyn Storage> = Arc::new(LogStorage::memory(&runtime).await.unwrap());
        let door = SystemDoors::of(&storage).door(SystemWriter::Startup);
        let registry = Registry::new(storage, runtime.clone(), kinds::built_in());
        let ctx = RequestContext::internal(UserInfo::named("tester", [UserInfo::MASTERS]), runtime);
        let create = async |group: &str, plural: &str, namespace: &str, text: &str| {
            let store = registry.store(group, "v1", plural).expect("a store");
            let row = &store.row;
            let decoded = decode_json(&row.schema, row.ty, text.as_bytes(), Strictness::Report);
            let mut tree: Tree = decoded.expect(plural).tree;
            apply_defaults(&mut tree);
            row.strategy.defaults(&mut tree);
            let (scope, options) = (Scope::of(namespace), CreateOptions::default());
            store.create(&ctx, &scope, tree, &options, door).await
        };
        let range = r#"{"metadata":{"name":"kubernetes"},"spec":{"cidrs":["10.96.0.0/16"]}}"#;
        let made = create("networking.k8s.io", "servicecidrs", "", range).await;
        made.expect("a range of addresses");
        match create("", "services", "default", &text).await {
            Err(RegistryError::Invalid { errors, .. }) => errors.len(),
            other => panic!("{other:?}"),
        }
    };
    stages.of("create", || simulation.run(work))
}

#[track_caller]
fn check(most: usize, kind: &str, port: fn(usize) -> String, expected: fn(usize) -> usize) {
    let beyond = growth(most, |stages, count| {
        let ports: Vec<String> = (1..=count).map(port).collect();
        let found = problems(
            stages,
            &format!(r#"{{"type":"{kind}","ports":[{}]}}"#, ports.join(",")),
        );
        assert_eq!(found, expected(count));
    });
    assert_eq!(beyond, Vec::<String>::new());
}

#[test]
fn service_with_many_problems_is_refused_in_proportion() {
    let port = |at| format!(r#"{{"name":"n{at}","port":-{at}}}"#);
    // Of the port, and of the target that it defaults to.
    check(PORTS, "ClusterIP", port, |count| 2 * count);
}

#[test]
fn service_with_too_many_ports_is_refused_at_once() {
    check(
        TOO_MANY_PORTS,
        "NodePort",
        |at| format!(r#"{{"name":"n{at}","port":{at}}}"#),
        |_| 1,
    );
}
