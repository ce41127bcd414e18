//! Health checks, by upstream's names.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use common::start;

#[tokio::test(flavor = "multi_thread")]
async fn health_checks_have_upstreams_names() {
    let cluster = start().await;
    let hooks = [
        "start-system-namespaces-controller",
        "scheduling/bootstrap-system-priority-classes",
        "priority-and-fairness-config-consumer",
        "crd-informer-synced",
        "kube-apiserver-autoregistration",
        "rbac/bootstrap-roles",
        "bootstrap-controller",
        "start-cluster-authentication-info-controller",
        "start-legacy-token-tracking-controller",
        "storage-readiness",
        "priority-and-fairness-filter",
        "generic-apiserver-start-informers",
        "start-apiserver-admission-initializer",
    ];
    for root in ["healthz", "livez", "readyz"] {
        for hook in hooks {
            let path = format!("/{root}/poststarthook/{hook}");
            assert_eq!(cluster.admin().get(&path).await.is(200).body, "ok", "{path}");
        }
        let registered = format!("/{root}/autoregister-completion");
        assert_eq!(cluster.admin().get(&registered).await.is(200).body, "ok");
        let of_readiness = ["etcd-readiness", "informer-sync", "shutdown"];
        for check in of_readiness {
            let code = if root == "readyz" { 200 } else { 404 };
            cluster.admin().get(&format!("/{root}/{check}")).await.is(code);
        }
        let unknown = format!("/{root}/poststarthook/made-up");
        cluster.admin().get(&unknown).await.is(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_exclusions_are_percent_decoded() {
    let cluster = start().await;
    let path = "/readyz?verbose&exclude=poststarthook%2Frbac%2Fbootstrap-roles&exclude=made%22up&exclude=a";
    let text = cluster.admin().get(path).await.is(200).body;
    let excluded = "[+]poststarthook/rbac/bootstrap-roles excluded: ok\n";
    assert!(text.contains(excluded), "{text}");
    let warned = "warn: some health checks cannot be excluded: no matches for \"a\",\"made\\\"up\"\n";
    assert!(
        text.ends_with(&format!("{warned}readyz check passed\n")),
        "{text}"
    );
}
