//! Authorities of clients and front proxies, the serving certificate and account keys that an operator gives in files.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_auth::jwt::LegacyClaims;
use apiserver_auth::pki::{Authority, Identity, Pki, ServingNames};
use apiserver_server::{RequestHeaderConfig, Server, ServerConfig, ServerError};
use apiserver_storage::LogStorage;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use common::{Cluster, config, start_with};
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const TRUST: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

fn authorities() -> Pki {
    Pki::generate(&ServingNames::default(), Runtime::real().now()).unwrap()
}

fn client(authority: &Authority, name: &str) -> Identity {
    authority.client(name, None, Runtime::real().now()).unwrap()
}

fn write(folder: &Path, name: &str, authorities: &[&Authority]) -> PathBuf {
    let path = folder.join(name);
    let text: String = authorities.iter().map(|own| own.certificate_pem()).collect();
    std::fs::write(&path, text).unwrap();
    path
}

fn reloading() -> ServerConfig {
    ServerConfig {
        file_reload_interval: Duration::from_millis(5),
        ..config()
    }
}

async fn try_start(config: ServerConfig) -> Result<Server, ServerError> {
    let scope = Runtime::real().child_scope();
    let storage = Arc::new(LogStorage::memory(scope.runtime()).await.unwrap());
    Server::builder(storage)
        .config(config)
        .start(scope.runtime())
        .await
}

async fn code(cluster: &Cluster, identity: &Identity) -> u16 {
    let answer = cluster.as_identity(identity).get("/api/v1/namespaces").await;
    answer.code.as_u16()
}

/// Asks again until it is so. The limit guards against hanging.
async fn until(cluster: &Cluster, mut holds: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !holds().await {
            cluster.runtime.sleep(Duration::from_millis(5)).await;
        }
    };
    let limit = Duration::from_secs(60);
    cluster
        .runtime
        .timeout(limit, asking)
        .await
        .expect("it is so in time");
}

async fn data(cluster: &Cluster) -> Value {
    cluster.admin().get(TRUST).await.is(200).json()["data"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn client_ca_file_is_read_again_as_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (authorities(), authorities());
    let path = write(folder.path(), "ca.crt", &[&one.cluster, &other.cluster]);
    let cluster = start_with(ServerConfig {
        client_ca_file: Some(path),
        ..reloading()
    })
    .await;
    let (ann, ben) = (client(&one.cluster, "ann"), client(&other.cluster, "ben"));
    for known in [&ann, &ben, &client(&cluster.server.pki().cluster, "own")] {
        assert_eq!(code(&cluster, known).await, 403);
    }
    assert_eq!(code(&cluster, &client(&authorities().cluster, "eve")).await, 401);
    let shown = data(&cluster).await["client-ca-file"]
        .as_str()
        .unwrap()
        .to_owned();
    for authority in [&one, &other, cluster.server.pki()] {
        assert!(shown.contains(authority.cluster.certificate_pem().trim()));
    }

    let third = authorities();
    write(folder.path(), "ca.crt", &[&other.cluster, &third.cluster]);
    until(&cluster, async || code(&cluster, &ann).await == 401).await;
    assert_eq!(code(&cluster, &ben).await, 403);
    assert_eq!(code(&cluster, &client(&third.cluster, "cid")).await, 403);
    let pem = third.cluster.certificate_pem().trim().to_owned();
    until(&cluster, async || {
        data(&cluster).await["client-ca-file"]
            .as_str()
            .unwrap()
            .contains(&pem)
    })
    .await;

    // A file that cannot be used changes nothing; the next one that can is taken.
    std::fs::write(folder.path().join("ca.crt"), "nothing").unwrap();
    cluster.runtime.sleep(Duration::from_millis(50)).await;
    assert_eq!(code(&cluster, &ben).await, 403);
    write(folder.path(), "ca.crt", &[&one.cluster]);
    until(&cluster, async || code(&cluster, &ben).await == 401).await;
    assert_eq!(code(&cluster, &ann).await, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn front_proxy_of_an_operator_names_users() {
    let folder = tempfile::tempdir().unwrap();
    let proxies = authorities();
    let path = write(folder.path(), "proxy.crt", &[&proxies.front_proxy]);
    let list = |one: &str| vec![one.to_owned()];
    let cluster = start_with(ServerConfig {
        request_header: RequestHeaderConfig {
            client_ca_file: Some(path),
            allowed_names: list("gate"),
            username_headers: list("X-Our-User"),
            uid_headers: Vec::new(),
            group_headers: list("X-Our-Group"),
            extra_headers_prefix: list("X-Our-Extra-"),
        },
        ..reloading()
    })
    .await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let ask = async |identity: &Identity| {
        let ask = cluster
            .as_identity(identity)
            .header("x-our-user", "jane")
            .header("x-our-group", "dev")
            .header("x-our-extra-acme.com%2fscope", "read")
            .header("x-remote-uid", "7");
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        ask.post(path, review.clone()).await
    };
    let answer = ask(&client(&proxies.front_proxy, "gate")).await.is(201).json();
    assert_eq!(
        answer["status"]["userInfo"],
        json!({"username": "jane", "groups": ["dev", "system:authenticated"], "extra": {"acme.com/scope": ["read"]}})
    );
    ask(&client(&proxies.front_proxy, "other")).await.is(401);
    // A client that is no front proxy stays itself, whatever the headers say.
    let plain = ask(&client(&cluster.server.pki().cluster, "ann")).await.is(201);
    assert_eq!(plain.json()["status"]["userInfo"]["username"], "ann");
    let shown = data(&cluster).await;
    assert_eq!(
        shown["requestheader-allowed-names"],
        r#"["front-proxy-client","gate"]"#
    );
    assert_eq!(shown["requestheader-username-headers"], r#"["X-Our-User"]"#);
    assert_eq!(shown["requestheader-uid-headers"], Value::Null);
    assert_eq!(shown["requestheader-extra-headers-prefix"], r#"["X-Our-Extra-"]"#);
}

const SHARED: &str = "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users";

/// Upstream's rows (kubeapiserver/options/authentication_test.go): front proxies of any name share no authority with clients.
#[tokio::test(flavor = "multi_thread")]
async fn front_proxies_of_any_name_share_no_authority_with_clients() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (authorities(), authorities());
    let check = async |clients: &[&Authority], proxies: &[&Authority], names: &[&str], is_refused: bool| {
        let started = try_start(ServerConfig {
            client_ca_file: Some(write(folder.path(), "ca.crt", clients)),
            request_header: RequestHeaderConfig {
                client_ca_file: Some(write(folder.path(), "proxy.crt", proxies)),
                allowed_names: names.iter().map(|&name| name.to_owned()).collect(),
                ..RequestHeaderConfig::default()
            },
            ..config()
        });
        let refused = started.await.err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), is_refused.then_some(SHARED));
    };
    check(&[&one.cluster], &[&one.front_proxy], &[], false).await;
    check(&[&one.cluster], &[&one.cluster], &["gate"], false).await;
    check(&[&one.cluster], &[&one.cluster], &[], true).await;
    check(
        &[&other.cluster, &one.cluster],
        &[&one.front_proxy, &one.cluster],
        &[],
        true,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn front_proxies_of_any_name_never_get_the_authority_of_clients() {
    let folder = tempfile::tempdir().unwrap();
    let proxies = authorities();
    let path = write(folder.path(), "proxy.crt", &[&proxies.front_proxy]);
    let clients = write(folder.path(), "ca.crt", &[&authorities().cluster]);
    let cluster = start_with(ServerConfig {
        client_ca_file: Some(clients),
        request_header: RequestHeaderConfig {
            client_ca_file: Some(path),
            username_headers: vec!["X-Remote-User".to_owned()],
            ..RequestHeaderConfig::default()
        },
        ..reloading()
    })
    .await;
    let own = &cluster.server.pki().cluster;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let user = async |identity: &Identity| {
        let ask = cluster.as_identity(identity).header("x-remote-user", "root");
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let answer = ask.post(path, review.clone()).await.is(201).json();
        answer["status"]["userInfo"]["username"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (proxy, ann) = (client(&proxies.front_proxy, "gate"), client(own, "ann"));
    assert_eq!([user(&proxy).await, user(&ann).await], ["root", "ann"]);
    write(folder.path(), "proxy.crt", &[&proxies.front_proxy, own]);
    cluster.runtime.sleep(Duration::from_millis(50)).await;
    assert_eq!([user(&proxy).await, user(&ann).await], ["root", "ann"]);
    write(folder.path(), "ca.crt", &[&proxies.front_proxy]);
    cluster.runtime.sleep(Duration::from_millis(50)).await;
    assert_eq!(code(&cluster, &proxy).await, 401, "a proxy is no user");
}

#[tokio::test(flavor = "multi_thread")]
async fn authorities_of_other_servers_stay_and_what_is_removed_comes_back() {
    let cluster = start_with(reloading()).await;
    let before = data(&cluster).await;
    assert_eq!(before["requestheader-allowed-names"], r#"["front-proxy-client"]"#);
    let theirs = authorities();
    let both = format!("{}{}", theirs.cluster.certificate_pem(), "# no certificate\n");
    let change = json!({"data": {"client-ca-file": both, "requestheader-allowed-names": null, "more": "x"}});
    let patch = cluster
        .admin()
        .header("content-type", "application/merge-patch+json");
    patch
        .send(http::Method::PATCH, TRUST, change.to_string().into())
        .await
        .is(200);
    let has = |all: &Value, pki: &Pki| {
        let text = all["client-ca-file"].as_str().unwrap_or_default();
        text.contains(pki.cluster.certificate_pem().trim())
    };
    until(&cluster, async || {
        let now = data(&cluster).await;
        let names = now["requestheader-allowed-names"] == before["requestheader-allowed-names"];
        has(&now, cluster.server.pki()) && has(&now, &theirs) && names && now["more"].is_null()
    })
    .await;
    cluster
        .admin()
        .send(http::Method::DELETE, TRUST, Default::default())
        .await
        .is(200);
    until(&cluster, async || {
        cluster.admin().get(TRUST).await.code == 200 && has(&data(&cluster).await, cluster.server.pki())
    })
    .await;
    assert_eq!(data(&cluster).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn serving_certificate_is_read_again_as_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = start_with(ServerConfig {
        cert_dir: Some(folder.path().to_owned()),
        ..reloading()
    })
    .await;
    let shown = async || {
        let stream = cluster.connect(None).await;
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    let names: ServingNames = ["127.0.0.1".to_owned()].into();
    let authority = &cluster.server.pki().cluster;
    let fresh = authority.serving("fresh", &names, cluster.runtime.now()).unwrap();
    assert_ne!(shown().await, fresh.chain()[0]);
    std::fs::write(folder.path().join("apiserver.key"), fresh.key_pem()).unwrap();
    std::fs::write(folder.path().join("apiserver.crt"), fresh.certificate_pem()).unwrap();
    until(&cluster, async || shown().await == fresh.chain()[0]).await;
    // A certificate without its key stays unused.
    let other = authority.serving("other", &names, cluster.runtime.now()).unwrap();
    std::fs::write(folder.path().join("apiserver.crt"), other.certificate_pem()).unwrap();
    cluster.runtime.sleep(Duration::from_millis(50)).await;
    assert_eq!(shown().await, fresh.chain()[0]);
}

/// Keys of upstream's making, by name.
fn account_key(name: &str) -> String {
    let all: Value =
        serde_json::from_str(include_str!("../../auth/testdata/service_account_keys.json")).unwrap();
    let own = all
        .as_array()
        .unwrap()
        .iter()
        .find(|own| own["name"] == name)
        .unwrap();
    let block = &own["private"][0];
    let der = STANDARD.decode(block["der"].as_str().unwrap()).unwrap();
    pem::encode(&pem::Pem::new(block["tag"].as_str().unwrap(), der))
}

#[tokio::test(flavor = "multi_thread")]
async fn service_account_keys_may_be_rsa_and_others() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let cluster = start_with(ServerConfig {
        service_account_signing_key_file: Some(file("sa.key", account_key("rsa-2048"))),
        service_account_key_files: vec![file("old.key", account_key("p384") + &account_key("p256"))],
        ..config()
    })
    .await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let bot = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}});
    cluster.admin().post(accounts, bot.to_string()).await.is(201);
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = format!("{accounts}/bot/token");
    let answer = cluster
        .admin()
        .post(&path, asked.to_string())
        .await
        .is(201)
        .json();
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    let head = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&head).unwrap()["alg"], "RS256");
    cluster
        .nobody()
        .token(&token)
        .get("/api/v1/namespaces")
        .await
        .is(403);
    let keys = cluster.admin().get("/openid/v1/jwks").await.is(200).json();
    let kinds: Vec<&str> = keys["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| key["alg"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["RS256", "ES384", "ES256"]);
    let found = cluster
        .admin()
        .get("/.well-known/openid-configuration")
        .await
        .is(200)
        .json();
    assert_eq!(
        found["id_token_signing_alg_values_supported"],
        json!(["ES256", "ES384", "RS256"])
    );
    let uri = found["jwks_uri"].as_str().unwrap();
    let address = cluster.server.advertised_address();
    assert_eq!(
        uri,
        format!("https://{address}:{}/openid/v1/jwks", cluster.address.port())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn issuer_that_is_no_url_has_no_discovery() {
    let cluster = start_with(ServerConfig {
        service_account_issuers: vec!["knarr".to_owned()],
        ..config()
    })
    .await;
    for path in ["/openid/v1/jwks", "/.well-known/openid-configuration"] {
        cluster.admin().get(path).await.is(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_of_a_secret_is_known_and_its_use_is_noted() {
    let cluster = start_with(config()).await;
    let core = "/api/v1/namespaces/default";
    let bot = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}});
    let account = cluster
        .admin()
        .post(&format!("{core}/serviceaccounts"), bot.to_string())
        .await
        .is(201)
        .json();
    let uid = account["metadata"]["uid"].as_str().unwrap();
    let claims = LegacyClaims::new("default", "bot", uid, "bot-token");
    let token = cluster.server.secret_token(&claims).unwrap();
    let code = async || {
        cluster
            .nobody()
            .token(&token)
            .get("/api/v1/namespaces")
            .await
            .code
            .as_u16()
    };
    assert_eq!(code().await, 401, "no Secret has it");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "bot-token", "annotations": {"kubernetes.io/service-account.name": "bot"}},
        "data": {"token": STANDARD.encode(&token)}});
    cluster
        .admin()
        .post(&format!("{core}/secrets"), secret.to_string())
        .await
        .is(201);
    assert_eq!(code().await, 403);
    let kept = cluster
        .admin()
        .get(&format!("{core}/secrets/bot-token"))
        .await
        .is(200)
        .json();
    let day = kept["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"]
        .as_str()
        .unwrap();
    assert_eq!(day.len(), "2026-11-22".len());
    let metrics = cluster.admin().get("/metrics").await.is(200).body;
    assert!(metrics.contains("serviceaccount_legacy_manual_token_uses_total 1"));
    let since =
        "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    let since = cluster.admin().get(since).await.is(200).json();
    assert_eq!(since["data"]["since"].as_str().unwrap().len(), day.len());
}
