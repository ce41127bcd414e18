//! Requests against the production registry over memory storage, without TLS and identities.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use http::Method;
use machinery_runtime::Runtime;
use serde_json::Value;
use std::collections::BTreeSet;

/// Requests with answers as text.
struct Api(common::Api);

impl Api {
    async fn new() -> Self {
        Self(common::Api::new(Runtime::real()).await)
    }

    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        let answer = self.0.request(method, path, headers, body.to_owned()).await;
        (answer.code, String::from_utf8(answer.body.to_vec()).unwrap())
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
async fn object_life_cycle_over_http() {
    let api = Api::new().await;
    let made = api
        .create(
            MAPS,
            r#"{"metadata":{"name":"a","labels":{"x":"1"}},"data":{"k":"v"}}"#,
        )
        .await;
    assert_eq!(made["kind"], "ConfigMap");
    assert_eq!(made["metadata"]["namespace"], "default");
    assert!(made["metadata"]["uid"].is_string());
    let found = api.get(&format!("{MAPS}/a")).await;
    assert_eq!(found, made);
    let again = api
        .send(Method::POST, MAPS, &[], r#"{"metadata":{"name":"a"}}"#)
        .await;
    assert_eq!(
        Api::parsed(again, 409)["message"],
        "configmaps \"a\" already exists"
    );

    let same = api
        .send(Method::PUT, &format!("{MAPS}/a"), &[], &found.to_string())
        .await;
    assert_eq!(
        Api::parsed(same, 200)["metadata"]["resourceVersion"],
        found["metadata"]["resourceVersion"]
    );
    let merge = [("content-type", "application/merge-patch+json")];
    let patched = api
        .send(
            Method::PATCH,
            &format!("{MAPS}/a"),
            &merge,
            r#"{"data":{"k":null,"l":"w"}}"#,
        )
        .await;
    let patched = Api::parsed(patched, 200);
    assert_eq!(patched["data"], serde_json::json!({"l":"w"}));
    let stale = api
        .send(Method::PUT, &format!("{MAPS}/a"), &[], &found.to_string())
        .await;
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
        api.create(MAPS, &format!(r#"{{"metadata":{{"name":"{name}"}}}}"#))
            .await;
    }
    let first = api.get(&format!("{MAPS}?limit=2")).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    api.create(MAPS, r#"{"metadata":{"name":"d"}}"#).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = api.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!(second["items"].as_array().unwrap().len(), 1, "{second}");
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn list_of_one_name_is_not_older_than_its_revision() {
    let api = Api::new().await;
    let revision = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let old = revision(&api.create(MAPS, r#"{"metadata":{"name":"a"}}"#).await);
    let merge = [("content-type", "application/merge-patch+json")];
    let path = format!("{MAPS}/a");
    let changed = api
        .send(Method::PATCH, &path, &merge, r#"{"data":{"k":"v"}}"#)
        .await;
    let new = revision(&Api::parsed(changed, 200));
    let at = format!("limit=1&resourceVersion={old}");
    let one = "fieldSelector=metadata.name%3Da";
    for (query, expected) in [
        (format!("{at}&{one}"), &new),
        (format!("{at}&{one}&continue=no-token"), &new),
        (format!("{at}&{one}&resourceVersionMatch=Exact"), &old),
        (at.clone(), &old),
    ] {
        let list = api.get(&format!("{MAPS}?{query}")).await;
        assert_eq!(&revision(&list["items"][0]), expected, "{query}");
    }
    api.create(MAPS, r#"{"metadata":{"name":"b"}}"#).await;
    let first = api.get(&format!("{MAPS}?limit=1")).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let path = format!("{MAPS}?{at}&continue={token}");
    let refused = Api::parsed(api.send(Method::GET, &path, &[], "").await, 400);
    assert_eq!(
        refused["message"],
        "specifying resource version is not allowed when using continue"
    );
}

#[tokio::test]
async fn watch_delivers_state_and_changes() {
    let api = Api::new().await;
    api.create(MAPS, r#"{"metadata":{"name":"a","labels":{"x":"1"}}}"#)
        .await;
    let path = format!("{MAPS}?watch=1&labelSelector=x%3D1&timeoutSeconds=1");
    let (watched, ()) = tokio::join!(api.send(Method::GET, &path, &[], ""), async {
        let merge = [("content-type", "application/merge-patch+json")];
        let body = r#"{"metadata":{"labels":{"x":"2"}}}"#;
        api.send(Method::PATCH, &format!("{MAPS}/a"), &merge, body).await;
    });
    let kinds: Vec<String> = watched
        .1
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["type"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(kinds, ["ADDED", "DELETED"]);
}

#[tokio::test]
async fn tables_and_metadata() {
    let api = Api::new().await;
    api.create(MAPS, r#"{"metadata":{"name":"a"},"data":{"k":"v"}}"#)
        .await;
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = Api::parsed(api.send(Method::GET, MAPS, &accept, "").await, 200);
    assert_eq!(
        (&table["rows"][0]["cells"][0], &table["rows"][0]["cells"][1]),
        (&"a".into(), &1.into())
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let accept = [(
        "accept",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    )];
    let list = Api::parsed(api.send(Method::GET, MAPS, &accept, "").await, 200);
    assert!(list["items"][0].get("data").is_none());
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
}

#[tokio::test]
async fn namespaces_end_with_their_finalizers() {
    let api = Api::new().await;
    let made = api
        .create("/api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#)
        .await;
    assert_eq!(made["spec"]["finalizers"][0], "kubernetes");
    assert_eq!(made["status"]["phase"], "Active");
    let deleted = api.send(Method::DELETE, "/api/v1/namespaces/n", &[], "").await;
    let mut deleted = Api::parsed(deleted, 200);
    assert_eq!(deleted["status"]["phase"], "Terminating");
    deleted["spec"]["finalizers"] = Value::Array(Vec::new());
    let done = api
        .send(
            Method::PUT,
            "/api/v1/namespaces/n/finalize",
            &[],
            &deleted.to_string(),
        )
        .await;
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

const CRD: &str = r#"{"metadata":{"name":"crontabs.stable.example.com"},"spec":{"group":"stable.example.com","scope":"Namespaced",
"names":{"plural":"crontabs","kind":"CronTab","shortNames":["ct"]},"versions":[{"name":"v1","served":true,"storage":true,
"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
"additionalPrinterColumns":[{"name":"Spec","type":"string","jsonPath":".spec.cronSpec"}],
"selectableFields":[{"jsonPath":".spec.cronSpec"}],
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","required":["cronSpec"],"properties":{
"cronSpec":{"type":"string"},"image":{"type":"string","default":"nginx"},"replicas":{"type":"integer","minimum":0}}},
"status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}}}]}}"#;

/// Waits until a path answers with a code; the bound ends a test that would never.
async fn until(api: &Api, path: &str, code: u16) -> String {
    for _ in 0..1000 {
        let (found, text) = api.send(Method::GET, path, &[], "").await;
        if found == code {
            return text;
        }
        tokio::task::yield_now().await;
        api.0.runtime.sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("{path} never answered {code}");
}

#[tokio::test]
async fn definition_serves_its_objects_and_deletes_them() {
    let api = Api::new().await;
    apiserver_registry::custom::start(&api.0.registry).await.unwrap();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = api.create(definitions, CRD).await;
    assert_eq!(made["spec"]["names"]["listKind"], "CronTabList");
    assert_eq!(made["status"]["storedVersions"][0], "v1");
    let path = "/apis/stable.example.com/v1/namespaces/default/crontabs";
    until(&api, path, 200).await;
    let body = r#"{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"a"},"spec":{"cronSpec":"x","zz":1,"replicas":2},"status":{"replicas":3}}"#;
    let object = api.create(path, body).await;
    assert_eq!(
        object["spec"],
        serde_json::json!({"cronSpec":"x","image":"nginx","replicas":2})
    );
    assert!(object.get("status").is_none());
    let bad = api.send(Method::POST, path, &[], r#"{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"b"},"spec":{"replicas":-1}}"#).await;
    let bad = Api::parsed(bad, 422);
    assert_eq!(bad["details"]["causes"].as_array().unwrap().len(), 3, "{bad}");
    let scale = api.get(&format!("{path}/a/scale")).await;
    assert_eq!(scale["spec"]["replicas"], 2);
    let merge = [("content-type", "application/merge-patch+json")];
    let scaled = api
        .send(
            Method::PATCH,
            &format!("{path}/a/scale"),
            &merge,
            r#"{"spec":{"replicas":5}}"#,
        )
        .await;
    assert_eq!(Api::parsed(scaled, 200)["spec"]["replicas"], 5);
    let status = api
        .send(
            Method::PATCH,
            &format!("{path}/a/status"),
            &merge,
            r#"{"status":{"replicas":5},"spec":{"replicas":9}}"#,
        )
        .await;
    let status = Api::parsed(status, 200);
    assert_eq!(
        (&status["status"]["replicas"], &status["spec"]["replicas"]),
        (&5.into(), &5.into())
    );
    let listed = api.get(&format!("{path}?fieldSelector=spec.cronSpec%3Dx")).await;
    assert_eq!(listed["items"][0]["kind"], "CronTab");
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = Api::parsed(api.send(Method::GET, path, &accept, "").await, 200);
    assert_eq!(table["rows"][0]["cells"][1], "x");

    let gone = api
        .send(
            Method::DELETE,
            &format!("{definitions}/crontabs.stable.example.com"),
            &[],
            "",
        )
        .await;
    assert_eq!(gone.0, 200);
    until(&api, path, 404).await;
    until(&api, &format!("{definitions}/crontabs.stable.example.com"), 404).await;
}

#[tokio::test]
async fn services_have_addresses_and_ports() {
    let api = Api::new().await;
    let cidr = r#"{"metadata":{"name":"kubernetes"},"spec":{"cidrs":["10.96.0.0/16"]}}"#;
    api.create("/apis/networking.k8s.io/v1/servicecidrs", cidr).await;
    let services = "/api/v1/namespaces/default/services";
    let body =
        r#"{"metadata":{"name":"a"},"spec":{"type":"NodePort","ports":[{"port":80}],"selector":{"a":"b"}}}"#;
    let made = api.create(services, body).await;
    let address = made["spec"]["clusterIP"].as_str().unwrap();
    assert!(address.starts_with("10.96."), "{made}");
    assert_eq!(made["spec"]["clusterIPs"][0], address);
    assert_eq!(made["spec"]["ports"][0]["targetPort"], 80);
    let node_port = made["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    assert!((30000..=32767).contains(&node_port));
    api.get(&format!("/apis/networking.k8s.io/v1/ipaddresses/{address}"))
        .await;
    let again = format!(
        r#"{{"metadata":{{"name":"b"}},"spec":{{"clusterIP":"{address}","ports":[{{"port":80}}]}}}}"#
    );
    let refused = Api::parsed(api.send(Method::POST, services, &[], &again).await, 422);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("provided IP is already allocated"),
        "{refused}"
    );
    let merge = [("content-type", "application/merge-patch+json")];
    let plain = api
        .send(
            Method::PATCH,
            &format!("{services}/a"),
            &merge,
            r#"{"spec":{"type":"ClusterIP"}}"#,
        )
        .await;
    assert!(
        Api::parsed(plain, 200)["spec"]["ports"][0]
            .get("nodePort")
            .is_none()
    );
    let gone = api.send(Method::DELETE, &format!("{services}/a"), &[], "").await;
    assert_eq!(gone.0, 200);
    let free = api
        .send(
            Method::GET,
            &format!("/apis/networking.k8s.io/v1/ipaddresses/{address}"),
            &[],
            "",
        )
        .await;
    assert_eq!(free.0, 404);
}

/// Kinds whose deletions answer with the object, `ReturnDeletedObject` of upstream's stores.
const RETURNED: [&str; 16] = [
    "CSIDriver",
    "CSINode",
    "DeviceClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodTemplate",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceQuota",
    "ResourceSlice",
    "Service",
    "ServiceAccount",
    "StorageClass",
    "VolumeAttachment",
    "VolumeAttributesClass",
];

#[tokio::test]
async fn openapi_v3_index_names_every_document() {
    let api = Api::new().await;
    apiserver_registry::custom::start(&api.0.registry).await.unwrap();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.create(definitions, CRD).await;
    until(&api, "/apis/stable.example.com/v1/crontabs", 200).await;
    let index = api.get("/openapi/v3").await;
    let paths = index["paths"].as_object().unwrap();
    for own in [
        "api",
        "api/v1",
        "apis",
        "apis/apps",
        "apis/apps/v1",
        "version",
        "openid/v1/jwks",
    ] {
        assert!(paths.contains_key(own), "{own}");
    }
    assert!(!paths.contains_key("apis/stable.example.com"));
    let (mut ids, mut returned) = (BTreeSet::new(), BTreeSet::new());
    for url in paths.values() {
        let document = api.get(url["serverRelativeURL"].as_str().unwrap()).await;
        for item in document["paths"].as_object().unwrap().values() {
            for (_, operation) in item
                .as_object()
                .unwrap()
                .iter()
                .filter(|(name, _)| *name != "parameters")
            {
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id.to_owned()), "{id}");
                let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
                let is_status = schema["$ref"]
                    .as_str()
                    .is_some_and(|own| own.ends_with(".Status"));
                if operation["x-kubernetes-action"] == "delete" && !is_status {
                    let kind = &operation["x-kubernetes-group-version-kind"]["kind"];
                    returned.insert(kind.as_str().unwrap().to_owned());
                }
            }
        }
    }
    assert!(ids.contains("listStableExampleComV1NamespacedCronTab"));
    assert!(ids.contains("connectCoreV1PostNamespacedPodExec"));
    assert_eq!(returned.iter().collect::<Vec<_>>(), RETURNED);
    let version = paths["version"]["serverRelativeURL"].as_str().unwrap();
    let (path, _) = version.split_once('?').unwrap();
    let moved = api.send(Method::GET, &format!("{path}?hash=old"), &[], "").await;
    assert_eq!(moved.0, 301);
    let absent = api
        .send(Method::GET, "/openapi/v3/apis/stable.example.com", &[], "")
        .await;
    assert_eq!(absent.0, 404);
}

#[tokio::test]
async fn openapi_v2_is_one_document() {
    let api = Api::new().await;
    let document = api.get("/openapi/v2").await;
    assert_eq!(document["swagger"], "2.0");
    let pod = &document["definitions"]["io.k8s.api.core.v1.Pod"];
    assert_eq!(
        pod["properties"]["spec"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.PodSpec"
    );
    let (code, _) = api
        .send(Method::GET, "/openapi/v2", &[("accept", "text/html")], "")
        .await;
    assert_eq!(code, 406);
}

#[tokio::test]
async fn apply_configuration_has_its_manager() {
    let api = Api::new().await;
    let path = format!("{MAPS}/applied");
    let apply = |query: &str, body: &str| {
        let (address, body) = (format!("{path}?{query}"), body.to_owned());
        let api = &api;
        async move {
            let headers = [("content-type", "application/apply-patch+yaml")];
            api.send(Method::PATCH, &address, &headers, &body).await
        }
    };
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\ndata: {a: '1', b: '2'}\n";
    let made = Api::parsed(apply("fieldManager=one", map).await, 201);
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "one");
    assert_eq!(
        made["metadata"]["managedFields"][0]["fieldsV1"].to_string(),
        r#"{"f:data":{"f:a":{},"f:b":{}}}"#
    );
    let same = Api::parsed(apply("fieldManager=one", map).await, 200);
    assert_eq!(
        same["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    let refused = Api::parsed(apply("fieldManager=two", &map.replace("'1'", "x")).await, 409);
    assert_eq!(
        refused["message"],
        r#"Apply failed with 1 conflict: conflict with "one": .data.a"#
    );
    assert_eq!(
        refused["details"]["causes"][0],
        serde_json::json!({"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.a"})
    );
    for (query, body, message) in [
        (
            "",
            map,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
        ),
        (
            "fieldManager=one",
            &map.replace("ConfigMap", "Secret"),
            "invalid object type: /v1, Kind=Secret",
        ),
        (
            "fieldManager=one",
            &format!("{map}bogus: 1\n"),
            "failed to create typed patch object (/applied; /v1, Kind=ConfigMap): .bogus: field not declared in schema",
        ),
        (
            "fieldManager=one&fieldValidation=Strict",
            &map.replace("b:", "a:"),
            "error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  line 4: key \"a\" already set in map",
        ),
    ] {
        let (_, text) = apply(query, body).await;
        let status: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(status["message"], message);
    }
}

/// As upstream's `connecter.ConnectMethods()`: a user who may patch a subresource must not get a shell by it.
#[tokio::test]
async fn connect_accepts_its_methods_only() {
    let api = Api::new().await;
    let methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
    for (subresource, taken) in [
        ("exec", &methods[..2]),
        ("attach", &methods[..2]),
        ("portforward", &methods[..2]),
        ("log", &methods[..1]),
        ("proxy", &methods[..]),
        ("proxy/a/page", &methods[..]),
    ] {
        for method in methods {
            let path = format!("/api/v1/namespaces/default/pods/web/{subresource}");
            let (code, text) = api.send(method.parse().unwrap(), &path, &[], "").await;
            // Nothing connects in this test, which is the answer to a request that gets through.
            let expected = if taken.contains(&method) { 503 } else { 405 };
            assert_eq!(code, expected, "{method} {subresource}: {text}");
        }
    }
}

#[test]
fn query_keeps_every_word() {
    let words: Vec<String> = (0..1_000).map(|word| format!("command={word}")).collect();
    let query = apiserver_endpoints::Query::parse(&format!("{}&stdout=true", words.join("&")));
    assert_eq!(query.all("command").count(), 1_000);
    assert_eq!(query.get("stdout"), Some("true"));
}

/// A stored object must be readable, whatever its annotations contain.
#[tokio::test]
async fn hpa_annotation_without_metric_is_ignored() {
    let api = Api::new().await;
    let path = "/namespaces/default/horizontalpodautoscalers";
    for (name, text) in [
        ("behavior", r#"{"ScaleUp":{"StabilizationWindowSeconds":"abc"}}"#),
        (
            "metrics",
            r#"[{"type":"Resource","resource":{"name":"memory","targetAverageValue":{"a":1}}}]"#,
        ),
        ("current-metrics", r#"{"a":[]}"#),
        ("conditions", "[1,2]"),
    ] {
        let mut object = serde_json::json!({
            "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "bad"},
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
        });
        object["metadata"]["annotations"][format!("autoscaling.alpha.kubernetes.io/{name}")] = text.into();
        api.create(&format!("/apis/autoscaling/v1{path}"), &object.to_string())
            .await;
        let stored = api.get(&format!("/apis/autoscaling/v2{path}/bad")).await;
        assert_eq!(stored["spec"]["metrics"][0]["resource"]["name"], "cpu", "{name}");
        assert!(
            stored["status"]["conditions"]
                .as_array()
                .is_none_or(Vec::is_empty),
            "{name}"
        );
        let removed = api
            .send(
                Method::DELETE,
                &format!("/apis/autoscaling/v1{path}/bad"),
                &[],
                "",
            )
            .await;
        assert_eq!(removed.0, 200, "{name}: {}", removed.1);
    }
}

#[tokio::test]
async fn update_and_apply_that_create_need_the_right_to_create() {
    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/n/leases/new";
    const APPLY: &str = "application/apply-patch+yaml";
    let api = common::Api::new(Runtime::real()).await;
    let updater = api.sent_by(common::access::updater());
    let lease = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"new"}}"#;
    let code = async |api: &common::Api, method, form| {
        let path = format!("{LEASE}?fieldManager=test");
        api.request(method, &path, &[("content-type", form)], lease)
            .await
            .code
    };
    for (method, form) in [(Method::PUT, "application/json"), (Method::PATCH, APPLY)] {
        assert_eq!(code(&updater, method.clone(), form).await, 403);
        assert_eq!(code(&api, method, form).await, 201);
        let merge = "application/merge-patch+json";
        assert_eq!(
            code(&updater, Method::PATCH, merge).await,
            200,
            "what is there may be changed"
        );
        let removed = api.request(Method::DELETE, LEASE, &[], "").await;
        assert_eq!(removed.code, 200);
    }
    let elsewhere = updater
        .request(Method::PUT, &LEASE.replace("/n/", "/a/"), &[], lease)
        .await;
    assert_eq!(elsewhere.code, 403);
}

#[tokio::test]
async fn event_of_one_group_is_applied_through_the_other() {
    const APPLY: &str = "application/apply-patch+yaml";
    let api = common::Api::new(Runtime::real()).await;
    let event = r#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"e"},"type":"Normal","reason":"Because",
        "message":"said","involvedObject":{"namespace":"n","kind":"Pod","name":"p"}}"#;
    let made = api
        .request(Method::POST, "/api/v1/namespaces/n/events", &[], event)
        .await;
    assert_eq!(made.code, 201, "{:?}", made.body);
    let label =
        r#"{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"e","labels":{"a":"b"}}}"#;
    let path = "/apis/events.k8s.io/v1/namespaces/n/events/e?fieldManager=test&force=true";
    let applied = api
        .request(Method::PATCH, path, &[("content-type", APPLY)], label)
        .await;
    assert_eq!(applied.code, 200, "{:?}", applied.body);
}
