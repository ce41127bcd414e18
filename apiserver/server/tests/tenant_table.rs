//! Every row, verb and subresource, requested by users with rights in one namespace, to read there, or none: what is refused
//! follows from the address alone, and no address reaches further than the rights that it was authorized with.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_endpoints::Body;
use apiserver_registry::{ResourceRow, Verb, Verbs};
use apiserver_server::LocalService;
use bytes::Bytes;
use common::{Cluster, start};
use http::{Method, Request};
use machinery_meta::UserInfo;
use serde_json::{Value, json};
use tower::Service;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const READING: [&str; 3] = ["get", "list", "watch"];

/// A user of the table: its name, and the verbs it has on everything in namespace `a`.
struct User {
    name: &'static str,
    verbs: &'static [&'static str],
    service: LocalService,
}

impl User {
    fn may(&self, verb: &str) -> bool {
        self.verbs.contains(&"*") || self.verbs.contains(&verb)
    }

    async fn ask(&self, method: &Method, path: &str) -> (u16, String) {
        let content = if *method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let body = if matches!(*method, Method::GET | Method::DELETE) {
            ""
        } else {
            "{}"
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content);
        let request = request.body(Body::from(Bytes::from(body))).unwrap();
        let answer = self.service.clone().call(request).await.unwrap();
        let code = answer.status().as_u16();
        let body = answer.into_body().read(64 << 20).await.unwrap();
        (code, String::from_utf8_lossy(&body).into_owned())
    }

    /// Reports whether authorization refused the request; admission's messages differ.
    fn refused(&self, code: u16, body: &str) -> bool {
        code == 403 && body.contains(" cannot ")
    }
}

async fn make(cluster: &Cluster, path: &str, object: Value) {
    cluster.admin().post(path, object.to_string()).await.is(201);
}

async fn users(cluster: &Cluster) -> Vec<User> {
    let mut all = Vec::new();
    for (name, verbs) in [
        ("owner", &["*"][..]),
        ("viewer", &READING[..]),
        ("nobody", &[][..]),
    ] {
        let role = json!({"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":name},
            "rules":[{"apiGroups":["*"],"resources":["*"],"verbs":verbs}]});
        let binding = json!({"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":name},
            "roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":name},
            "subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":name}]});
        if !verbs.is_empty() {
            make(cluster, &format!("{RBAC}/namespaces/a/roles"), role).await;
            make(cluster, &format!("{RBAC}/namespaces/a/rolebindings"), binding).await;
        }
        let service = cluster
            .server
            .service_as(UserInfo::named(name, [UserInfo::AUTHENTICATED]));
        let user = User { name, verbs, service };
        for _ in 0..1_000 {
            let (code, body) = user.ask(&Method::GET, "/api/v1/namespaces/a/configmaps").await;
            if user.refused(code, &body) != user.may("list") {
                break;
            }
            cluster.runtime.sleep(std::time::Duration::from_millis(5)).await;
        }
        all.push(user);
    }
    all
}

/// One request: the verb that is authorized, and whether the address is of an object.
struct Ask {
    verb: Verb,
    name: &'static str,
    method: Method,
    query: &'static str,
    of_object: bool,
}

fn asks(verbs: Verbs) -> Vec<Ask> {
    let ask = |verb, name, method, query, of_object| Ask {
        verb,
        name,
        method,
        query,
        of_object,
    };
    let all = vec![
        ask(Verb::Get, "get", Method::GET, "", true),
        ask(Verb::List, "list", Method::GET, "", false),
        ask(
            Verb::Watch,
            "watch",
            Method::GET,
            "?watch=true&timeoutSeconds=1&resourceVersion=x",
            false,
        ),
        ask(Verb::Create, "create", Method::POST, "?dryRun=All", false),
        ask(Verb::Update, "update", Method::PUT, "?dryRun=All", true),
        ask(Verb::Patch, "patch", Method::PATCH, "?dryRun=All", true),
        ask(Verb::Delete, "delete", Method::DELETE, "?dryRun=All", true),
        ask(
            Verb::DeleteCollection,
            "deletecollection",
            Method::DELETE,
            "?dryRun=All",
            false,
        ),
    ];
    all.into_iter().filter(|ask| verbs.has(ask.verb)).collect()
}

fn root(row: &ResourceRow) -> String {
    match row.gvk.group.as_str() {
        "" => format!("/api/{}", row.gvk.version),
        group => format!("/apis/{group}/{}", row.gvk.version),
    }
}

/// The relation of an address to the namespace in which the users have rights.
#[derive(Clone, Copy, PartialEq)]
enum RequestScope {
    Own,
    Other,
    Cluster,
    /// A cluster-scoped kind below the users' namespace: authorized there, served nowhere.
    Nested,
}

fn places(row: &ResourceRow) -> Vec<(RequestScope, String)> {
    let (root, plural) = (root(row), &row.plural);
    let within = |namespace: &str| format!("{root}/namespaces/{namespace}/{plural}");
    let cluster = (RequestScope::Cluster, format!("{root}/{plural}"));
    if row.namespaced {
        return vec![
            (RequestScope::Own, within("a")),
            (RequestScope::Other, within("b")),
            cluster,
        ];
    }
    vec![
        cluster,
        (RequestScope::Nested, within("a")),
        (RequestScope::Other, within("b")),
    ]
}

struct Table {
    users: Vec<User>,
    wrong: Vec<String>,
    asked: usize,
}

impl Table {
    async fn check(&mut self, place: RequestScope, verb: &str, method: &Method, path: &str) {
        for user in &self.users {
            let (code, body) = user.ask(method, path).await;
            self.asked += 1;
            let refused = user.refused(code, &body);
            let right = match place {
                RequestScope::Own => refused != user.may(verb),
                RequestScope::Other | RequestScope::Cluster => refused,
                RequestScope::Nested if user.may(verb) => code == 404,
                RequestScope::Nested => refused,
            };
            if !right {
                self.wrong
                    .push(format!("{} {method} {path}: {code} {body}", user.name));
            }
        }
    }

    async fn check_row(&mut self, row: &ResourceRow) {
        for (place, collection) in places(row) {
            for ask in asks(row.verbs) {
                // Over all namespaces there are lists and watches alone, and a namespace's own address is within it.
                let all_only = place == RequestScope::Cluster && row.namespaced && ask.of_object;
                if !row.has_store || all_only {
                    continue;
                }
                let name = if ask.of_object { "/x" } else { "" };
                let path = format!("{collection}{name}{}", ask.query);
                self.check(place, ask.name, &ask.method, &path).await;
            }
            for sub in &row.subresources {
                if place == RequestScope::Cluster && row.namespaced {
                    continue;
                }
                for ask in asks(sub.verbs) {
                    let path = format!("{collection}/x/{}{}", sub.name, ask.query);
                    // A process in a pod is made, however it is requested.
                    let opens = matches!(sub.name.as_str(), "attach" | "exec" | "portforward");
                    let verb = if opens { "create" } else { ask.name };
                    self.check(place, verb, &ask.method, &path).await;
                }
            }
        }
    }

    /// A selector that names another namespace finds nothing there.
    async fn check_selectors(&mut self, row: &ResourceRow) {
        if !row.has_store || !row.namespaced {
            return;
        }
        let owner = &self.users[0];
        for selector in [
            "metadata.namespace%3Db",
            "metadata.name%3Dx,metadata.namespace%3Db",
        ] {
            let path = format!(
                "{}/namespaces/a/{}?fieldSelector={selector}",
                root(row),
                row.plural
            );
            let (code, body) = owner.ask(&Method::GET, &path).await;
            self.asked += 1;
            // Some kinds know no such field.
            if code == 400 && body.contains("field label not supported: metadata.namespace") {
                continue;
            }
            if code != 200 || serde_json::from_str::<Value>(&body).unwrap()["items"] != json!([]) {
                self.wrong.push(format!("{path}: {code} {body}"));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_in_one_namespace_end_at_its_border() {
    let cluster = start().await;
    for name in ["a", "b"] {
        let namespace = json!({"apiVersion":"v1","kind":"Namespace","metadata":{"name":name}});
        make(&cluster, "/api/v1/namespaces", namespace).await;
    }
    let mut table = Table {
        users: users(&cluster).await,
        wrong: Vec::new(),
        asked: 0,
    };
    let rows = cluster.server.registry().rows();
    for row in rows.all() {
        table.check_row(row).await;
        table.check_selectors(row).await;
    }
    assert!(
        table.wrong.is_empty(),
        "{} of {}:\n{}",
        table.wrong.len(),
        table.asked,
        table.wrong.join("\n")
    );
    assert!(table.asked > 2_000, "{} requests", table.asked);
}
