//! Requests against the production registry over memory storage, without TLS and identities.

use apiserver_endpoints::{Body, Endpoints, NoHooks, RequestInfo, VersionInfo};
use apiserver_registry::{AdmitAll, Registry, RequestContext, kinds};
use apiserver_storage::LogStorage;
use http::{Method, Request};
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use serde_json::Value;
use std::sync::Arc;

struct Api {
    endpoints: Endpoints,
    runtime: Runtime,
}

impl Api {
    async fn new() -> Self {
        let runtime = Runtime::real();
        let storage = Arc::new(LogStorage::memory(&runtime).await.unwrap());
        let registry = Registry::new(storage, runtime.clone(), kinds::built_in());
        let endpoints =
            Endpoints::new(registry, Arc::new(AdmitAll), Arc::new(NoHooks), VersionInfo::default());
        Self { endpoints, runtime }
    }

    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let info = RequestInfo::parse(request.method(), request.uri()).unwrap();
        let ctx = RequestContext::internal(UserInfo::named("admin", ["system:masters"]), self.runtime.clone());
        let answer = self.endpoints.handle(ctx, info, request).await;
        let code = answer.status().as_u16();
        let bytes = answer.into_body().read(64 << 20).await.unwrap();
        (code, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[track_caller]
    fn parsed((code, text): (u16, String), expected: u16) -> Value {
        assert_eq!(code, expected, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn create(&self, path: &str, body: &str) -> Value {
        Self::parsed(self.send(Method::POST, path, &[], body).await, 201)
    }

    async fn get(&self, path: &str) -> Value {
        Self::parsed(self.send(Method::GET, path, &[], "").await, 200)
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn an_object_lives_its_life() {
    let api = Api::new().await;
    let made = api.create(MAPS, r#"{"metadata":{"name":"a","labels":{"x":"1"}},"data":{"k":"v"}}"#).await;
    assert_eq!(made["kind"], "ConfigMap");
    assert_eq!(made["metadata"]["namespace"], "default");
    assert!(made["metadata"]["uid"].is_string());
    let found = api.get(&format!("{MAPS}/a")).await;
    assert_eq!(found, made);
    let again = api.send(Method::POST, MAPS, &[], r#"{"metadata":{"name":"a"}}"#).await;
    assert_eq!(Api::parsed(again, 409)["message"], "configmaps \"a\" already exists");

    let same = api.send(Method::PUT, &format!("{MAPS}/a"), &[], &found.to_string()).await;
    assert_eq!(Api::parsed(same, 200)["metadata"]["resourceVersion"], found["metadata"]["resourceVersion"]);
    let merge = [("content-type", "application/merge-patch+json")];
    let patched = api.send(Method::PATCH, &format!("{MAPS}/a"), &merge, r#"{"data":{"k":null,"l":"w"}}"#).await;
    let patched = Api::parsed(patched, 200);
    assert_eq!(patched["data"], serde_json::json!({"l":"w"}));
    let stale = api.send(Method::PUT, &format!("{MAPS}/a"), &[], &found.to_string()).await;
    assert_eq!(Api::parsed(stale, 409)["reason"], "Conflict");

    let listed = api.get(&format!("{MAPS}?labelSelector=x%3D1")).await;
    assert_eq!(listed["kind"], "ConfigMapList");
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert!(listed["items"][0].get("kind").is_none());
    let gone = api.send(Method::DELETE, &format!("{MAPS}/a"), &[], "").await;
    assert_eq!(Api::parsed(gone, 200)["status"], "Success");
    let missing = api.send(Method::GET, &format!("{MAPS}/a"), &[], "").await;
    assert_eq!(Api::parsed(missing, 404)["message"], "configmaps \"a\" not found");
}

#[tokio::test]
async fn lists_go_on_where_they_ended() {
    let api = Api::new().await;
    for name in ["a", "b", "c"] {
        api.create(MAPS, &format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)).await;
    }
    let first = api.get(&format!("{MAPS}?limit=2")).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    api.create(MAPS, r#"{"metadata":{"name":"d"}}"#).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = api.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!(second["items"].as_array().unwrap().len(), 1, "{second}");
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn a_watch_tells_state_and_changes() {
    let api = Api::new().await;
    api.create(MAPS, r#"{"metadata":{"name":"a","labels":{"x":"1"}}}"#).await;
    let path = format!("{MAPS}?watch=1&labelSelector=x%3D1&timeoutSeconds=1");
    let (watched, ()) = tokio::join!(api.send(Method::GET, &path, &[], ""), async {
        let merge = [("content-type", "application/merge-patch+json")];
        let body = r#"{"metadata":{"labels":{"x":"2"}}}"#;
        api.send(Method::PATCH, &format!("{MAPS}/a"), &merge, body).await;
    });
    let kinds: Vec<String> = watched
        .1
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["ADDED", "DELETED"]);
}

#[tokio::test]
async fn tables_and_metadata() {
    let api = Api::new().await;
    api.create(MAPS, r#"{"metadata":{"name":"a"},"data":{"k":"v"}}"#).await;
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = Api::parsed(api.send(Method::GET, MAPS, &accept, "").await, 200);
    assert_eq!((&table["rows"][0]["cells"][0], &table["rows"][0]["cells"][1]), (&"a".into(), &"1".into()));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let accept = [("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")];
    let list = Api::parsed(api.send(Method::GET, MAPS, &accept, "").await, 200);
    assert!(list["items"][0].get("data").is_none());
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
}

#[tokio::test]
async fn namespaces_end_with_their_finalizers() {
    let api = Api::new().await;
    let made = api.create("/api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await;
    assert_eq!(made["spec"]["finalizers"][0], "kubernetes");
    assert_eq!(made["status"]["phase"], "Active");
    let deleted = api.send(Method::DELETE, "/api/v1/namespaces/n", &[], "").await;
    let mut deleted = Api::parsed(deleted, 200);
    assert_eq!(deleted["status"]["phase"], "Terminating");
    deleted["spec"]["finalizers"] = Value::Array(Vec::new());
    let done = api.send(Method::PUT, "/api/v1/namespaces/n/finalize", &[], &deleted.to_string()).await;
    Api::parsed(done, 200);
    let gone = api.send(Method::GET, "/api/v1/namespaces/n", &[], "").await;
    assert_eq!(gone.0, 404);
}

#[tokio::test]
async fn discovery_names_every_group() {
    let api = Api::new().await;
    let groups = api.get("/apis").await;
    assert!(groups["groups"].as_array().unwrap().len() > 20);
    let apps = api.get("/apis/apps/v1").await;
    let pods = api.get("/api/v1").await;
    let hash = |list: &Value, name: &str| {
        let all = list["resources"].as_array().unwrap();
        all.iter().find(|r| r["name"] == name).unwrap()["storageVersionHash"].clone()
    };
    assert_eq!(hash(&apps, "controllerrevisions"), "85nkx63pcBU=");
    assert_eq!(hash(&pods, "configmaps"), "qFsyl6wFWjQ=");
    assert_eq!(api.get("/version").await["minor"], "37");
}
