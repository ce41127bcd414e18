use super::super::config::CredentialProvidersSource;
use super::super::config::tests::seconds;
use super::*;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret};
use node_volume::{Credentials, ProjectionPlace, TokenRequest, TrustAnchors, VolumeError};
use serde_json::{Value, json};
use std::path::Path;

/// A plugin that notes each request, and answers with the request's own account as user, and `ANSWER` of its environment.
const PLUGIN: &str = r#"
read -r request || true
echo "$request" >> "$LOG"
printf '%s' "$ANSWER"
"#;

fn answer(key_type: &str, duration: Option<&str>, password: &str) -> String {
    let mut answer = json!({"kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": key_type, "auth": {"*.registry.test": {"username": "u", "password": password}}});
    if let Some(duration) = duration {
        answer["cacheDuration"] = json!(duration);
    }
    answer.to_string()
}

/// A provider whose plugin, a shell with a script, answers so, with these further fields.
fn provider(folder: &Path, answer: &str, client: &Client, with: Value) -> Provider {
    // One that is there was made for another provider of the test.
    let _ = std::os::unix::fs::symlink("/bin/sh", folder.join("one"));
    let log = folder.join("log").display().to_string();
    let mut own = json!({"name": "one", "matchImages": ["*.registry.test"], "defaultCacheDuration": "0s",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "args": ["-c", PLUGIN],
        "env": [{"name": "LOG", "value": log}, {"name": "ANSWER", "value": answer}]});
    for (name, value) in with.as_object().unwrap() {
        own[name] = value.clone();
    }
    let document = json!({"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [own]});
    std::fs::write(folder.join("config.json"), document.to_string()).unwrap();
    let source = CredentialProvidersSource {
        config: folder.join("config.json"),
        bin_dir: folder.to_owned(),
        decode: |content| serde_json::from_slice(content).map_err(|error| error.to_string()),
        duration: seconds,
    };
    let config = source.read().unwrap();
    let own = config.providers[0].clone();
    Provider::new(&Runtime::real(), client, &config, own)
}

/// An API server that has one account with an annotation.
fn client() -> Client {
    let answer = |request: http::Request<kube::client::Body>| async move {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "web", "namespace": "shop", "uid": "u1",
            "annotations": {"a.test/role": "reader"}}});
        assert_eq!(
            request.uri().path(),
            "/api/v1/namespaces/shop/serviceaccounts/web"
        );
        Ok::<_, std::io::Error>(http::Response::new(http_body_util::Full::<bytes::Bytes>::from(
            account.to_string(),
        )))
    };
    Client::new(tower::service_fn(answer), "default")
}

fn pod(account: &str) -> Pod {
    serde_json::from_value(
        json!({"metadata": {"name": "p", "namespace": "shop", "uid": "1"}, "spec":
        {"serviceAccountName": account, "containers": []}}),
    )
    .unwrap()
}

/// Objects of which there is a token alone.
struct Tokens(&'static str);

#[async_trait::async_trait]
impl ObjectSource for Tokens {
    async fn config_map(&self, _: &str, _: &str) -> Result<Option<Arc<ConfigMap>>, VolumeError> {
        unreachable!()
    }
    async fn secret(&self, _: &str, _: &str) -> Result<Option<Arc<Secret>>, VolumeError> {
        unreachable!()
    }
    async fn token(&self, request: &TokenRequest) -> Result<String, VolumeError> {
        assert_eq!(
            (request.audience.as_str(), request.service_account.as_str()),
            ("registry", "web")
        );
        Ok(self.0.to_owned())
    }
    async fn trust_anchors(&self, _: &TrustAnchors) -> Result<Arc<[u8]>, VolumeError> {
        unreachable!()
    }
    async fn pod_certificate(&self, _: &Pod, _: &ProjectionPlace) -> Result<Arc<Credentials>, VolumeError> {
        unreachable!()
    }
    async fn claim(&self, _: &str, _: &str) -> Result<Option<PersistentVolumeClaim>, VolumeError> {
        unreachable!()
    }
    async fn persistent_volume(&self, _: &str) -> Result<Option<PersistentVolume>, VolumeError> {
        unreachable!()
    }
}

fn requests(folder: &Path) -> Vec<Value> {
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    log.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Number of runs of a plugin that these repositories cause, one after the other.
async fn runs(answer: &str, with: Value, repositories: &[&str]) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let own = provider(folder.path(), answer, &client(), with);
    for repository in repositories {
        own.provide(&pod(""), repository, &Tokens("")).await.unwrap();
    }
    requests(folder.path()).len()
}

#[tokio::test]
async fn credential_plugin_is_asked_once_for_what_its_answer_counts_for() {
    let images = [
        "eu.registry.test/a",
        "eu.registry.test/a",
        "eu.registry.test/b",
        "us.registry.test/a",
    ];
    for (key_type, expected) in [("Image", 3), ("Registry", 2), ("Global", 1)] {
        let answer = answer(key_type, Some("60s"), "p");
        assert_eq!(runs(&answer, json!({}), &images).await, expected, "{key_type}");
    }
    let default = json!({"defaultCacheDuration": "60s"});
    assert_eq!(
        runs(&answer("Image", None, "p"), default.clone(), &images[..2]).await,
        1
    );
    assert_eq!(
        runs(&answer("Image", None, "p"), json!({}), &images[..2]).await,
        2
    );
    let never = answer("Image", Some("0s"), "p");
    assert_eq!(
        runs(&never, default, &images[..2]).await,
        2,
        "zero is not the default"
    );
    assert_eq!(
        runs(&never, json!({}), &["registry.test/a", "other.test/a"]).await,
        0
    );
}

#[tokio::test]
async fn credential_plugin_gives_credentials_to_every_pod_of_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let own = provider(folder.path(), &answer("Image", None, "p"), &client(), json!({}));
    let found = own
        .provide(&pod("web"), "eu.registry.test/a", &Tokens(""))
        .await
        .unwrap();
    let [(key, credential)] = found.as_slice() else {
        panic!("{}", found.len())
    };
    assert_eq!(
        (key.as_str(), credential.auth.username.as_str()),
        ("*.registry.test", "u")
    );
    assert_eq!(credential.source, CredentialSource::Node);
    let request = &requests(folder.path())[0];
    let expected = json!({"kind": "CredentialProviderRequest", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "image": "eu.registry.test/a"});
    assert_eq!(*request, expected);
}

#[tokio::test]
async fn credential_plugin_with_token_attributes_is_asked_for_each_account() {
    let attributes = |cache_type: &str, required: Value| {
        json!({"tokenAttributes": {"serviceAccountTokenAudience": "registry", "cacheType": cache_type, "requireServiceAccount": true,
            "requiredServiceAccountAnnotationKeys": required}})
    };
    let image = "eu.registry.test/a";
    let kept = answer("Image", Some("60s"), "p");
    for (cache_type, expected) in [("ServiceAccount", 1), ("Token", 2)] {
        let folder = tempfile::tempdir().unwrap();
        let own = provider(
            folder.path(),
            &kept,
            &client(),
            attributes(cache_type, json!(["a.test/role"])),
        );
        assert!(
            own.provide(&pod(""), image, &Tokens(""))
                .await
                .unwrap()
                .is_empty(),
            "no account, no question"
        );
        for token in ["t1", "t2"] {
            let found = own.provide(&pod("web"), image, &Tokens(token)).await.unwrap();
            let CredentialSource::ServiceAccount(account) = &found[0].1.source else {
                panic!("no account")
            };
            assert_eq!((account.name.as_str(), account.uid.as_str()), ("web", "u1"));
        }
        let asked = requests(folder.path());
        assert_eq!(asked.len(), expected, "{cache_type}");
        assert_eq!(asked[0]["serviceAccountToken"], "t1");
        assert_eq!(
            asked[0]["serviceAccountAnnotations"],
            json!({"a.test/role": "reader"})
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let own = provider(
        folder.path(),
        &kept,
        &client(),
        attributes("Token", json!(["absent"])),
    );
    assert!(
        own.provide(&pod("web"), image, &Tokens("t"))
            .await
            .unwrap()
            .is_empty()
    );
    let echo = answer("Image", None, "the-token");
    for (cache_type, is_good) in [("ServiceAccount", false), ("Token", true)] {
        let own = provider(folder.path(), &echo, &client(), attributes(cache_type, json!([])));
        let found = own.provide(&pod("web"), image, &Tokens("the-token")).await;
        assert_eq!(found.is_ok(), is_good, "{cache_type}");
        assert!(found.err().is_none_or(|why| !why.contains("the-token")));
    }
}

#[tokio::test]
async fn credential_plugin_that_fails_says_why_and_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let script = json!({"args": ["-c", "echo no login >&2; exit 3"]});
    let own = provider(folder.path(), "", &client(), script);
    let why = own
        .provide(&pod(""), "eu.registry.test/a", &Tokens(""))
        .await
        .err()
        .unwrap();
    assert_eq!(
        why,
        "failed to get credential from external registry credential provider: error execing credential provider plugin one for image \
         eu.registry.test/a: exit status 3: no login\n"
    );
}

/// A plugin that notes each request, and answers where the image does not hang.
const HANGING: &str = r#"
read -r request || true
echo "$request" >> "$LOG"
case "$request" in *hang*) exec sleep 600 ;; esac
printf '%s' "$ANSWER"
"#;

fn pod_of(namespace: &str) -> Pod {
    let mut pod = pod("");
    pod.metadata.namespace = Some(namespace.to_owned());
    pod
}

#[tokio::test]
async fn credential_plugin_is_run_for_a_namespace_whatever_another_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let with = json!({"args": ["-c", HANGING]});
    let own = provider(folder.path(), &answer("Image", Some("60s"), "p"), &client(), with);
    let (evil, shop, tokens) = (pod_of("evil"), pod_of("shop"), Tokens(""));
    let image = "eu.registry.test/shop";
    let hanging: Vec<String> = (0..28)
        .map(|number| format!("eu.registry.test/hang{number}"))
        .collect();
    let mut waiting: Vec<_> = hanging
        .iter()
        .map(String::as_str)
        .chain([image])
        .map(|image| Box::pin(own.provide(&evil, image, &tokens)))
        .collect();
    for one in &mut waiting {
        assert!(one.now_or_never().is_none());
    }
    let mut theirs = waiting.pop().unwrap();
    let found = tokio::select! {
        biased;
        found = own.provide(&shop, image, &tokens) => found,
        () = futures::future::join_all(waiting).map(drop) => unreachable!("they hang"),
    };
    assert_eq!(found.unwrap().len(), 1);
    let shared = theirs.as_mut().now_or_never();
    assert_eq!(
        shared.unwrap().unwrap().len(),
        1,
        "the answer counts for the other, too"
    );
}

#[tokio::test]
async fn credential_plugin_that_is_run_answers_all_that_want_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let own = provider(folder.path(), &answer("Image", None, "p"), &client(), json!({}));
    let tokens = Tokens("");
    let pods: Vec<Pod> = (0..20)
        .map(|number| pod_of(&format!("n{}", number % 3)))
        .collect();
    let mut all: Vec<_> = pods
        .iter()
        .map(|pod| Box::pin(own.provide(pod, "eu.registry.test/a", &tokens)))
        .collect();
    let mut first = all.remove(0);
    assert!(first.as_mut().now_or_never().is_none());
    for one in &mut all {
        assert!(one.as_mut().now_or_never().is_none());
    }
    // The caller that began it may be dropped.
    drop(first);
    for found in futures::future::join_all(all).await {
        assert_eq!(found.unwrap().len(), 1);
    }
    assert_eq!(requests(folder.path()).len(), 1);
    let later = own.provide(&pods[0], "eu.registry.test/a", &tokens).await;
    assert_eq!(later.unwrap().len(), 1);
    assert_eq!(
        requests(folder.path()).len(),
        2,
        "an answer that is not kept is asked for again"
    );
}
