//! The division of seats between the levels that every cluster has, and what a change of the objects does.

use super::*;
use crate::flow_control::bootstrap;
use apiserver_endpoints::RequestInfo;
use apiserver_registry::kinds;
use apiserver_storage::{Key, LogStorage, ObjectHeader, Record, Storage, Write};
use bytes::Bytes;
use http::{Method, Uri};
use machinery_meta::UserInfo;

async fn control(seats: usize) -> Arc<FlowControl> {
    let runtime = Runtime::real();
    let storage = LogStorage::memory(&runtime).await.unwrap();
    control_over(Arc::new(storage), seats, &runtime)
}

fn control_over(storage: Arc<LogStorage>, seats: usize, runtime: &Runtime) -> Arc<FlowControl> {
    let registry = Registry::new(storage, runtime.clone(), kinds::built_in());
    let metrics = FlowControlMetrics::new(&prometheus::Registry::new()).unwrap();
    FlowControl::new(seats, registry, metrics, runtime)
}

fn bounds(control: &FlowControl, name: &str) -> (f64, f64, f64, f64) {
    control.with_levels(|levels| {
        let state = &levels[name];
        (state.nominal, state.lower, state.upper, state.current)
    })
}

fn digest(user: UserInfo, path: &'static str) -> Digest {
    Digest {
        user: Arc::new(user),
        info: Arc::new(RequestInfo::parse(&Method::GET, &Uri::from_static(path)).unwrap()),
        own: false,
    }
}

fn anna() -> UserInfo {
    UserInfo::named("anna", [UserInfo::AUTHENTICATED])
}

/// Figures of a real server with 600 seats.
#[tokio::test]
async fn flow_control_divides_seats_as_upstream() {
    let control = control(600).await;
    control.configure(bootstrap::priority_levels(), bootstrap::flow_schemas());
    let limits = |name: &str| {
        let (nominal, lower, upper, _) = bounds(&control, name);
        (nominal, lower, upper)
    };
    assert_eq!(limits("exempt"), (0.0, 0.0, 600.0));
    assert_eq!(limits("catch-all"), (13.0, 13.0, 613.0));
    assert_eq!(limits("global-default"), (49.0, 24.0, 649.0));
    assert_eq!(limits("leader-election"), (25.0, 25.0, 625.0));
    assert_eq!(limits("node-high"), (98.0, 73.0, 698.0));
    assert_eq!(limits("system"), (74.0, 50.0, 674.0));
    assert_eq!(limits("workload-high"), (98.0, 49.0, 698.0));
    assert_eq!(limits("workload-low"), (245.0, 24.0, 845.0));
    // Every lent seat is at a level.
    let levels = [
        "catch-all",
        "global-default",
        "leader-election",
        "node-high",
        "system",
        "workload-high",
        "workload-low",
    ];
    let current: f64 = levels.iter().map(|name| bounds(&control, name).3).sum();
    assert!((current - 602.0).abs() <= 4.0, "{current}");
    control.with_levels(|levels| {
        assert_eq!(levels["workload-low"].level.max_seats(), 37);
        assert_eq!(levels["global-default"].level.max_seats(), 8);
        assert_eq!(levels["catch-all"].level.max_seats(), 0);
    });
}

#[tokio::test]
async fn flow_control_without_objects_has_the_mandatory_ones() {
    let control = control(10).await;
    let classified = control.start(digest(anna(), "/api/v1/pods"), None);
    assert_eq!(classified.schema.object.metadata.name, "catch-all");
    let admin = UserInfo::named("a", [UserInfo::MASTERS]);
    let classified = control.start(digest(admin, "/api/v1/pods"), None);
    assert_eq!(classified.schema.object.metadata.name, "exempt");
    let nobody = UserInfo::named("a", [""; 0]);
    assert_eq!(
        control
            .start(digest(nobody, "/api"), None)
            .schema
            .object
            .metadata
            .name,
        "catch-all"
    );
}

/// Objects from before validation, or put into storage by hand.
#[tokio::test]
async fn flow_control_bad_stored_objects_do_not_lock_masters_out() {
    let control = control(10).await;
    let everything = serde_json::json!([{
        "subjects": [{"kind": "Group", "group": {"name": UserInfo::MASTERS}}],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }]);
    let schema = |name: &str, precedence: i32| -> FlowSchema {
        let level = serde_json::json!({"name": "jail"});
        let spec = serde_json::json!({
            "matchingPrecedence": precedence, "priorityLevelConfiguration": level, "rules": everything,
        });
        let object = serde_json::json!({"metadata": {"name": name, "uid": "stored"}, "spec": spec});
        serde_json::from_value(object).unwrap()
    };
    let level = |name: &str| -> PriorityLevelConfiguration {
        let limited = serde_json::json!({"nominalConcurrencyShares": 0, "limitResponse": {"type": "Reject"}});
        let spec = serde_json::json!({"type": "Limited", "limited": limited});
        serde_json::from_value(serde_json::json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    };
    control.configure(
        vec![level("jail"), level("exempt"), level("catch-all")],
        vec![schema("aaa", 1), schema("exempt", 9_000), schema("zzz", -5)],
    );
    let admin = UserInfo::named("a", [UserInfo::MASTERS]);
    for path in ["/api/v1/pods", "/readyz"] {
        let found = control.start(digest(admin.clone(), path), None);
        assert_eq!(found.schema.object.metadata.name, "exempt", "{path}");
        assert_eq!(found.schema.object.metadata.uid, "stored");
        assert!(matches!(found.start, Start::Execute(_)), "{path}");
    }
    assert_eq!(bounds(&control, "catch-all").0, 10.0);
}

#[tokio::test]
async fn flow_control_requests_outlive_their_level() {
    let control = control(10).await;
    let (levels, schemas) = (bootstrap::priority_levels, bootstrap::flow_schemas);
    control.configure(levels(), schemas());
    let held = control.start(digest(anna(), "/api/v1/pods"), None);
    assert_eq!(held.schema.level.name, "global-default");
    let without = levels()
        .into_iter()
        .filter(|level| level.metadata.name != "global-default");
    let without: Vec<_> = without.collect();
    control.configure(without.clone(), schemas());
    // The schema is dangling, the level waits for its last request.
    let next = control.start(digest(anna(), "/api/v1/pods"), None);
    assert_eq!(next.schema.object.metadata.name, "catch-all");
    assert!(control.with_levels(|levels| levels["global-default"].quiescing));
    drop(held);
    control.configure(without, schemas());
    assert!(control.with_levels(|levels| !levels.contains_key("global-default")));
    control.configure(levels(), schemas());
    let again = control.start(digest(anna(), "/api/v1/pods"), None);
    assert_eq!(again.schema.level.name, "global-default");
}

#[tokio::test]
async fn flow_control_lends_seats_to_the_level_that_wants_them() {
    let control = control(100).await;
    control.configure(bootstrap::priority_levels(), bootstrap::flow_schemas());
    let lower = bounds(&control, "global-default").1;
    // A flood of many users, so that no queue is full.
    let flood: Vec<_> = (0..200)
        .map(|at| {
            control.start(
                digest(
                    UserInfo::named(format!("u-{at}"), [UserInfo::AUTHENTICATED]),
                    "/api/v1/pods",
                ),
                None,
            )
        })
        .collect();
    control.adjust(&mut control.levels.lock());
    let (nominal, _, _, current) = bounds(&control, "global-default");
    assert!(current > nominal, "{current} of {nominal}");
    // The others keep what they do not lend.
    assert!(bounds(&control, "system").3 >= bounds(&control, "system").1);
    drop(flood);
    for _ in 0..2 {
        control.adjust(&mut control.levels.lock());
    }
    assert!(bounds(&control, "global-default").3 >= lower);
}

/// Events of a kilobyte.
async fn fill(storage: &LogStorage, namespace: &str, events: usize) {
    for first in (0..events).step_by(500) {
        let names = first..events.min(first + 500);
        let writes = names.map(|at| {
            let key = Key::parse(&format!("/registry/events/{namespace}/e{at:06}")).unwrap();
            let record = Record {
                parts: [Bytes::from(vec![b'x'; 1_000]), Bytes::new(), Bytes::new()],
                fingerprint: 0,
                header: Arc::new(ObjectHeader::default()),
            };
            Write::create(key, record)
        });
        storage.commit(writes.collect()).await.unwrap();
    }
}

#[tokio::test]
async fn list_is_estimated_by_what_its_namespace_holds() {
    let runtime = Runtime::real();
    let storage = Arc::new(LogStorage::memory(&runtime).await.unwrap());
    fill(&storage, "loud", 2_000).await;
    fill(&storage, "quiet", 150).await;
    let control = control_over(storage, 600, &runtime);
    let check = |path, limit, seats| {
        let list = ListRequest {
            limit,
            single: false,
            selects: false,
            from_cache: false,
        };
        let schema = Arc::clone(control.schemas.load().first().unwrap());
        let estimate = control.estimate(&schema, &digest(anna(), path), Some(list));
        assert_eq!(estimate, WorkEstimate::seats(seats), "{path}");
    };
    check("/api/v1/namespaces/loud/events", 0, 20);
    check("/api/v1/namespaces/loud/events", 500, 5);
    check("/api/v1/namespaces/quiet/events", 0, 2);
    check("/apis/events.k8s.io/v1/namespaces/quiet/events", 0, 2);
    check("/api/v1/namespaces/none/events", 0, 1);
    check("/api/v1/events", 0, 22);
    check("/apis/example.com/v1/namespaces/loud/things", 0, 1);
}
