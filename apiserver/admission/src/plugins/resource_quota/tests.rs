use super::super::tests::Objects;
use super::*;
use machinery_meta::UserInfo;
use machinery_runtime::Simulation;
use parking_lot::Mutex;
use serde_json::json;

/// A store of one quota: each write raises its revision, and the first so many fail as if another server had written.
struct Store {
    state: Mutex<State>,
}

struct State {
    revision: u64,
    used: String,
    writes: usize,
    conflicts: usize,
}

const HARD: &str = "40";

impl Store {
    fn json(&self) -> String {
        let state = self.state.lock();
        json!({"metadata": {"name": "quota", "namespace": "a", "resourceVersion": state.revision.to_string()},
            "spec": {"hard": {"configmaps": HARD}},
            "status": {"hard": {"configmaps": HARD}, "used": {"configmaps": state.used}}})
        .to_string()
    }
}

impl ObjectReader for Store {
    fn get<'a>(
        &'a self,
        _: &'a GroupResource,
        _: &'a machinery_meta::ObjectKey,
    ) -> machinery_meta::reader::ReadFuture<'a, Option<machinery_meta::reader::ReadObject>> {
        unreachable!("quotas are listed")
    }

    fn list<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
    ) -> machinery_meta::reader::ReadFuture<'a, Vec<machinery_meta::reader::ReadObject>> {
        let json = self.json();
        Box::pin(async move {
            let objects = Objects::default().with("resourcequotas", "a", "quota", &json);
            objects.list(resource, namespace).await
        })
    }
}

#[async_trait]
impl UsageWriter for Store {
    async fn write(&self, _: &str, _: &str, revision: &str, used: &ResourceList) -> Result<(), UsageError> {
        let mut state = self.state.lock();
        if state.conflicts > 0 {
            state.conflicts -= 1;
            state.revision += 1;
        }
        if state.revision.to_string() != revision {
            return Err(UsageError::Conflict);
        }
        state.revision += 1;
        state.writes += 1;
        state.used = used.get("configmaps").to_string();
        Ok(())
    }
}

/// The answers to so many creates at once, and the store after them.
fn creates(count: usize, conflicts: usize, dry_run: bool) -> (Vec<Result<(), AdmissionError>>, Arc<Store>) {
    let store = Arc::new(Store {
        state: Mutex::new(State {
            revision: 1,
            used: "0".to_owned(),
            writes: 0,
            conflicts,
        }),
    });
    let own = Arc::clone(&store);
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    let answers = simulation.run(async move {
        let reader: Arc<dyn ObjectReader> = own.clone();
        let plugin = ResourceQuota::new(&reader, own, Configuration::default(), &runtime);
        let user = UserInfo::named("jane", ["dev"]);
        let request = Request {
            user: &user,
            operation: Operation::Create,
            group: "",
            kind: "ConfigMap",
            resource: "configmaps",
            subresource: "",
            namespace: "a",
            name: "",
            dry_run,
            remarks: &crate::Unheard,
            host: None,
            reinvocation: None,
        };
        assert!(plugin.handles(&request));
        let object = Tree::from_json("{}").unwrap();
        let all = (0..count).map(|_| plugin.validate(&request, Some(&object), None));
        futures::future::join_all(all).await
    });
    (answers, store)
}

#[test]
fn quota_grants_requests_at_once_what_is_left_and_no_more() {
    let (answers, store) = creates(50, 0, false);
    let refused: Vec<String> = answers
        .into_iter()
        .filter_map(|own| Some(own.err()?.to_string()))
        .collect();
    assert_eq!(refused.len(), 10);
    let expected =
        "exceeded quota: quota, requested: configmaps=1, used: configmaps=40, limited: configmaps=40";
    assert!(refused.iter().all(|own| own == expected), "{refused:?}");
    let state = store.state.lock();
    assert_eq!(state.used, HARD);
    // Those that come while a batch is in work are the next one.
    assert!(state.writes < 10, "{} writes", state.writes);
}

#[test]
fn quota_written_by_others_is_checked_again_three_times() {
    let (answers, store) = creates(1, 3, false);
    assert!(answers[0].is_ok(), "{answers:?}");
    assert_eq!(store.state.lock().used, "1");
    let (answers, store) = creates(1, 4, false);
    assert!(
        matches!(answers[0], Err(AdmissionError::Conflict { .. })),
        "{answers:?}"
    );
    assert_eq!(store.state.lock().used, "0");
}

#[test]
fn quota_charges_nothing_for_dry_runs() {
    let (answers, store) = creates(50, 0, true);
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(store.state.lock().writes, 0);
}

#[test]
fn quota_configuration_is_read_as_upstreams() {
    let written = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
        "limitedResources": [{"resource": "pods", "matchScopes": [{"scopeName": "PriorityClass", "operator": "In",
            "values": ["cluster-services"]}]}]});
    let read = Configuration::parse(Some(&written)).unwrap();
    assert_eq!(
        read.limited[0].match_scopes[0].to_string(),
        "{PriorityClass In [cluster-services]}"
    );
    let bare = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
        "limitedResources": [{"apiGroup": "", "matchContains": ["x"]}]});
    let told = Configuration::parse(Some(&bare)).unwrap_err().to_string();
    assert_eq!(told, "limitedResources[0].resource: Required value");
    let null = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
        "limitedResources": [{"apiGroup": null, "resource": "pods", "matchContains": null,
            "matchScopes": [{"scopeName": "PriorityClass", "operator": "Exists", "values": null}]}]});
    assert_eq!(Configuration::parse(Some(&null)).unwrap().limited.len(), 1);
    assert!(Configuration::parse(Some(&json!({"kind": "Other"}))).is_err());
    assert_eq!(Configuration::parse(None), Ok(Configuration::default()));
}

/// A store without quotas that counts its lists.
#[derive(Default)]
struct NoQuotas(Mutex<usize>);

impl ObjectReader for NoQuotas {
    fn get<'a>(
        &'a self,
        _: &'a GroupResource,
        _: &'a machinery_meta::ObjectKey,
    ) -> machinery_meta::reader::ReadFuture<'a, Option<machinery_meta::reader::ReadObject>> {
        unreachable!("quotas are listed")
    }

    fn list<'a>(
        &'a self,
        _: &'a GroupResource,
        _: &'a str,
    ) -> machinery_meta::reader::ReadFuture<'a, Vec<machinery_meta::reader::ReadObject>> {
        *self.0.lock() += 1;
        Box::pin(async { Ok(Vec::new()) })
    }

    fn is_any_known<'a>(
        &'a self,
        _: &'a GroupResource,
        _: &'a str,
    ) -> machinery_meta::reader::ReadFuture<'a, bool> {
        Box::pin(async { Ok(false) })
    }
}

#[test]
fn quota_lists_nothing_in_a_namespace_without_quotas() {
    let store = Arc::new(NoQuotas::default());
    let reader: Arc<dyn ObjectReader> = store.clone();
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let writer = Arc::new(Store {
            state: Mutex::new(State {
                revision: 1,
                used: "0".to_owned(),
                writes: 0,
                conflicts: 0,
            }),
        });
        let plugin = ResourceQuota::new(&reader, writer, Configuration::default(), &runtime);
        let user = UserInfo::named("jane", ["dev"]);
        let request = Request {
            user: &user,
            operation: Operation::Create,
            group: "",
            kind: "ConfigMap",
            resource: "configmaps",
            subresource: "",
            namespace: "a",
            name: "",
            dry_run: false,
            remarks: &crate::Unheard,
            host: None,
            reinvocation: None,
        };
        let object = Tree::from_json("{}").unwrap();
        plugin.validate(&request, Some(&object), None).await.unwrap();
    });
    assert_eq!(*store.0.lock(), 0);
}
