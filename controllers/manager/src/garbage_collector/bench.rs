//! A collector before an API of a few objects, one step at a time, for tests: objects are seen when a test says so.

use super::api::{Objects, client, discovered};
use super::assemble;
use super::keys::Key;
use super::reconcile::Collector;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use k8s_openapi::api::rbac::v1::Role;
use machinery_client::object::parse_header;
use machinery_client::{ApiResource, HeaderChange, Informers};
use machinery_meta::ObjectHeader;
use machinery_reconcile::{Outcome, Reconciler, WorkQueue};
use machinery_runtime::{Runtime, Simulation};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Coordinates of an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Id {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    pub(super) namespace: &'static str,
    pub(super) name: &'static str,
    pub(super) uid: &'static str,
}

impl Id {
    pub(super) fn reference(&self) -> Value {
        json!({"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": self.uid})
    }

    /// The object at revision 42.
    pub(super) fn object(&self, owners: &[Value]) -> Value {
        let mut metadata =
            json!({"name": self.name, "uid": self.uid, "resourceVersion": "42", "ownerReferences": owners});
        if !self.namespace.is_empty() {
            metadata["namespace"] = json!(self.namespace);
        }
        json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata})
    }

    /// The object, being deleted behind a finalizer.
    pub(super) fn deleting(&self, finalizer: &str, owners: &[Value]) -> Value {
        let mut object = self.object(owners);
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object["metadata"]["finalizers"] = json!([finalizer]);
        object
    }

    pub(super) fn resource(&self) -> ApiResource {
        let mut all = resources().into_iter();
        let found = all.find(|own| own.kind == self.kind && own.api_version() == self.api_version);
        found.unwrap_or_else(|| panic!("{self:?} is not served"))
    }

    pub(super) fn path(&self) -> String {
        self.resource().object_path(self.namespace, self.name, "")
    }
}

/// Boats of an API extension.
fn boats(group: &'static str) -> ApiResource {
    ApiResource {
        group: group.into(),
        version: "v1".into(),
        plural: "boats".into(),
        kind: "Boat".into(),
        namespaced: false,
    }
}

/// Resources that are served; roles in two versions.
fn resources() -> Vec<ApiResource> {
    let role = ApiResource::of::<Role>();
    let old_role = ApiResource {
        version: "v1beta1".into(),
        ..role.clone()
    };
    vec![
        ApiResource::of::<Pod>(),
        ApiResource::of::<Node>(),
        ApiResource::of::<Secret>(),
        ApiResource::of::<Deployment>(),
        role,
        old_role,
        boats("boats.example"),
        boats("ships.example"),
    ]
}

/// The bench.
pub(super) struct Bench {
    pub(super) api: Arc<Objects>,
    pub(super) collector: Collector,
    runtime: Runtime,
    queue: WorkQueue<Key>,
    /// Looks that are not done, with their wait, none where they failed.
    pub(super) left: BTreeMap<Key, Option<Duration>>,
}

impl Bench {
    /// Runs a test on a bench.
    pub(super) fn run<F: Future<Output = ()> + Send + 'static>(
        test: impl FnOnce(Self) -> F + Send + 'static,
    ) {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let api = Arc::new(Objects::default());
            let client = client(&api, &runtime);
            let informers = Informers::new(client.clone(), runtime.clone());
            let (controller, collector) = assemble(&informers, client, &runtime);
            collector.monitors.serve(&discovered(&resources()));
            runtime.sleep(Duration::from_secs(1)).await;
            let mut bench = Self {
                api,
                collector,
                queue: controller.queue(),
                runtime,
                left: BTreeMap::new(),
            };
            bench.work().await;
            test(bench).await;
        });
    }

    /// Makes an object at the API.
    pub(super) fn create(&self, id: Id, object: Value) {
        self.api.put(&id.path(), object);
    }

    /// The object's store has it, or has it no more.
    pub(super) fn see(&self, id: Id, old: Option<&Value>, new: Option<&Value>) {
        let (old, new) = (old.map(header), new.map(header));
        let change = HeaderChange {
            old: old.as_ref(),
            new: new.as_ref(),
            of_extension: id.resource().group.ends_with(".example"),
            forgotten: false,
        };
        self.change(id, &change);
    }

    /// The object's store sees it no more.
    pub(super) fn forget(&self, id: Id, object: &Value) {
        let change = HeaderChange {
            old: Some(&header(object)),
            new: None,
            of_extension: true,
            forgotten: true,
        };
        self.change(id, &change);
    }

    fn change(&self, id: Id, change: &HeaderChange<'_>) {
        let resource = Arc::new(id.resource());
        let effects = self.collector.graph.changed(&resource, change);
        self.collector.dispatcher.carry_out(effects);
    }

    /// Restores the API's objects: watches end, stores list again.
    pub(super) async fn restore(&self) {
        self.api.expire_watches();
        self.runtime.sleep(Duration::from_secs(60)).await;
    }

    /// Makes an object and sees it.
    pub(super) fn add(&self, id: Id, object: &Value) {
        self.create(id, object.clone());
        self.see(id, None, Some(object));
    }

    /// Looks once at all that is to be looked at, and at what was left.
    pub(super) async fn work(&mut self) {
        let left = std::mem::take(&mut self.left);
        left.into_keys().for_each(|key| self.queue.add(key));
        while !self.queue.is_empty() {
            let key = self.queue.next().await;
            let wait = match self.collector.reconcile(&key).await {
                Ok(Outcome::Done | Outcome::Rest(_)) => None,
                Ok(Outcome::RequeueAfter(wait)) => Some(Some(wait)),
                Err(_) => Some(None),
            };
            self.left.remove(&key);
            if let Some(wait) = wait {
                self.left.insert(key.clone(), wait);
            }
            self.queue.done(&key);
        }
        // Events are sent by a task of their own.
        self.runtime.sleep(Duration::from_millis(100)).await;
    }
}

fn header(object: &Value) -> Arc<ObjectHeader> {
    Arc::new(parse_header(object.to_string().as_bytes()).unwrap().0)
}
