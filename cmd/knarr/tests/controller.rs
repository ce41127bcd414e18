//! A controller as its author would write it, with kube-rs, over the network and as a service account: it makes a
//! ConfigMap for each object of a custom kind, reports in the status, cleans up behind a finalizer, and lives through
//! a kill of the server.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]
#![allow(clippy::print_stdout, reason = "a skipped or retried step says so")]

mod support;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectMeta, Patch, PatchParams,
};
use kube::api::{DeleteParams, PostParams, WatchEvent, WatchParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::Server;
use tokio::sync::mpsc;

const FINALIZER: &str = "knarr.test/crew";
/// Pause between attempts while the server is away.
const PAUSE: Duration = Duration::from_millis(50);

const MANIFESTS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.knarr.test}
spec:
  group: knarr.test
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, listKind: BoatList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, required: [oars], properties: {oars: {type: integer}}}
          status: {type: object, properties: {crew: {type: integer}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: skipper}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: skipper}
rules:
- {apiGroups: [knarr.test], resources: [boats, boats/status], verbs: [get, list, watch, patch]}
- {apiGroups: [''], resources: [configmaps], verbs: ['*']}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: skipper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: skipper}
subjects: [{kind: ServiceAccount, name: skipper}]
";

fn boat(name: &str, oars: u32) -> String {
    format!("{{apiVersion: knarr.test/v1, kind: Boat, metadata: {{name: {name}}}, spec: {{oars: {oars}}}}}")
}

/// Clients and counters of the controller.
#[derive(Clone)]
struct Skipper {
    boats: Api<DynamicObject>,
    crews: Api<ConfigMap>,
    /// Number of times everything had to be listed.
    lists: Arc<AtomicUsize>,
}

impl Skipper {
    fn new(client: Client) -> Self {
        let kind =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("knarr.test", "v1", "Boat"), "boats");
        Self {
            boats: Api::namespaced_with(client.clone(), "default", &kind),
            crews: Api::namespaced(client, "default"),
            lists: Arc::default(),
        }
    }

    async fn run(self) {
        let (sender, mut changed) = mpsc::channel(64);
        let boats = changes(
            self.boats.clone(),
            |boat| Some(boat.name_any()),
            sender.clone(),
            Arc::clone(&self.lists),
        );
        let crews = changes(self.crews.clone(), owner, sender, Arc::clone(&self.lists));
        let work = async {
            while let Some(name) = changed.recv().await {
                while let Err(error) = self.reconcile(&name).await {
                    println!("{name}: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        };
        tokio::join!(boats, crews, work);
    }

    async fn reconcile(&self, name: &str) -> kube::Result<()> {
        let Some(boat) = self.boats.get_opt(name).await? else {
            return Ok(());
        };
        let crew = format!("{name}-crew");
        if boat.metadata.deletion_timestamp.is_some() {
            if self.crews.get_opt(&crew).await?.is_some() {
                self.crews.delete(&crew, &DeleteParams::default()).await?;
            }
            return self.patch(name, &json!({"metadata": {"finalizers": null}})).await;
        }
        if !boat.finalizers().iter().any(|own| own == FINALIZER) {
            self.patch(name, &json!({"metadata": {"finalizers": [FINALIZER]}}))
                .await?;
        }
        let oars = boat.data["spec"]["oars"].as_u64().unwrap_or(0);
        self.equip(&boat, crew, oars).await?;
        if boat.data["status"]["crew"] != oars {
            let status = Patch::Merge(json!({"status": {"crew": oars}}));
            self.boats
                .patch_status(name, &PatchParams::default(), &status)
                .await?;
        }
        Ok(())
    }

    async fn patch(&self, name: &str, patch: &Value) -> kube::Result<()> {
        match self
            .boats
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn equip(&self, boat: &DynamicObject, name: String, oars: u64) -> kube::Result<()> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("knarr.test", "v1", "Boat"));
        let wanted = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                owner_references: Some(boat.controller_owner_ref(&kind).into_iter().collect()),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([("oars".to_owned(), oars.to_string())])),
            ..ConfigMap::default()
        };
        match self.crews.get_opt(&name).await? {
            None => drop(self.crews.create(&PostParams::default(), &wanted).await?),
            Some(found) if found.data == wanted.data => {}
            Some(found) => {
                let mut next = wanted;
                next.metadata.resource_version = found.metadata.resource_version;
                self.crews.replace(&name, &PostParams::default(), &next).await?;
            }
        }
        Ok(())
    }
}

fn owner(crew: &ConfigMap) -> Option<String> {
    crew.owner_references()
        .iter()
        .find(|owner| owner.kind == "Boat")
        .map(|owner| owner.name.clone())
}

/// Names of what changes, from a list on and then from wherever the last watch ended.
async fn changes<K>(
    api: Api<K>,
    name: impl Fn(&K) -> Option<String>,
    to: mpsc::Sender<String>,
    lists: Arc<AtomicUsize>,
) where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    loop {
        let Ok(list) = api.list(&ListParams::default()).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        lists.fetch_add(1, Ordering::SeqCst);
        for object in &list.items {
            tell(&to, name(object)).await;
        }
        let mut since = list.metadata.resource_version.unwrap_or_default();
        while follow(&api, &name, &to, &mut since).await {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn tell(to: &mpsc::Sender<String>, name: Option<String>) {
    if let Some(name) = name {
        let _ = to.send(name).await;
    }
}

/// One watch, as long as it lasts; `false` when its beginning is no longer there.
async fn follow<K>(
    api: &Api<K>,
    name: &impl Fn(&K) -> Option<String>,
    to: &mpsc::Sender<String>,
    since: &mut String,
) -> bool
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let Ok(events) = api.watch(&WatchParams::default(), since).await else {
        return true;
    };
    let mut events = std::pin::pin!(events);
    while let Some(Ok(event)) = events.next().await {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                *since = object.meta().resource_version.clone().unwrap_or_default();
                tell(to, name(&object)).await;
            }
            WatchEvent::Bookmark(mark) => *since = mark.metadata.resource_version,
            WatchEvent::Error(status) => return status.code != 410,
        }
    }
    true
}

/// A client with the token of the service account and nothing else.
async fn client(server: &Server) -> Client {
    let token = server.kubectl(&["create", "token", "skipper"]);
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).expect("the administrator's");
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .expect("whole");
    config.auth_info = AuthInfo {
        token: Some(token.trim().to_owned().into()),
        ..AuthInfo::default()
    };
    Client::try_from(config).expect("a client")
}

/// Oars as the crew and the status have them.
fn seen(server: &Server, name: &str) -> (String, String) {
    let ask =
        |arguments: &[&str]| String::from_utf8_lossy(&server.try_kubectl(arguments).stdout).into_owned();
    (
        ask(&[
            "get",
            "configmap",
            &format!("{name}-crew"),
            "-o",
            "jsonpath={.data.oars}",
        ]),
        ask(&["get", "boat", name, "-o", "jsonpath={.status.crew}"]),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn kube_rs_controller_works() {
    let Some(mut server) = Server::start_or_skip("kube_rs_controller_works") else {
        return;
    };
    server.feed(&["apply"], MANIFESTS);
    server.until("the kind to be served", || {
        server.try_kubectl(&["get", "boats"]).status.success()
    });
    let skipper = Skipper::new(client(&server).await);
    let lists = Arc::clone(&skipper.lists);
    let controller = tokio::spawn(skipper.run());
    let both = |oars: &str| (oars.to_owned(), oars.to_owned());

    server.feed(&["create"], &boat("ormen", 34));
    server.until("a crew", || seen(&server, "ormen") == both("34"));
    let crew = ["get", "configmap", "ormen-crew", "-o", "jsonpath={.metadata.uid}"];
    let first = server.kubectl(&crew);
    server.kubectl(&["delete", "configmap", "ormen-crew"]);
    server.until("another crew", || {
        let uid = server.try_kubectl(&crew).stdout;
        !uid.is_empty() && uid != first.as_bytes()
    });

    server.kill_and_restart();
    server.kubectl(&[
        "patch",
        "boat",
        "ormen",
        "--type=merge",
        "-p",
        r#"{"spec":{"oars":40}}"#,
    ]);
    server.until("a larger crew", || seen(&server, "ormen") == both("40"));
    assert_eq!(
        lists.load(Ordering::SeqCst),
        2,
        "each watch went on where it was, without a second list"
    );

    // kubectl waits until the finalizer is gone, and with it the crew.
    server.kubectl(&["delete", "boat", "ormen"]);
    server.refused(&["get", "configmap", "ormen-crew"]);

    // Without its controller, a boat's crew goes by the owner reference.
    server.feed(&["create"], &boat("skald", 8));
    server.until("a crew", || seen(&server, "skald") == both("8"));
    controller.abort();
    server.kubectl(&[
        "patch",
        "boat",
        "skald",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ]);
    server.kubectl(&["delete", "boat", "skald"]);
    let gone = ["get", "configmap", "skald-crew"];
    server.until("the crew to be collected", || {
        !server.try_kubectl(&gone).status.success()
    });
}
