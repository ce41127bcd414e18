//! Requests that wait for a slow webhook.

use super::*;
use crate::webhook_server::HookServer;
use futures::stream::FuturesUnordered;

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
/// The path of a webhook that never answers.
const HANG: &str = "/hang";

fn labelled(name: &str, label: &str, bytes: usize) -> String {
    let (meta, data) = (
        json!({"name": name, "labels": {label: "yes"}}),
        json!({"x": "y".repeat(bytes)}),
    );
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}).to_string()
}

/// Makes config maps with the label `slow` wait for a webhook that never answers.
async fn slow_webhook(cluster: &Cluster) -> HookServer {
    let hooks = HookServer::start(&cluster.runtime).await;
    let webhook = |name: &str, path: &str, label: &str| {
        json!({"name": format!("{name}.hooks.example"), "clientConfig": hooks.client(path), "sideEffects": "None",
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 30, "objectSelector": {"matchLabels": {label: "yes"}}})
    };
    let webhooks = [webhook("slow", HANG, "slow"), webhook("probe", "/probe", "probe")];
    let own = json!({"metadata": {"name": "own"}, "webhooks": webhooks}).to_string();
    cluster.admin().post(VALIDATING, own).await.is(201);
    let probe = format!("{CONFIG_MAPS}?dryRun=All");
    while hooks.seen("/probe").is_empty() {
        cluster
            .admin()
            .post(&probe, labelled("probe", "probe", 1))
            .await
            .is(201);
    }
    hooks
}

/// A request under way.
async fn posted(cluster: &Cluster, by: &apiserver_auth::pki::Identity, body: &str) -> TlsStream<TcpStream> {
    let mut stream = cluster.connect(Some(by)).await;
    let request = format!("{}{body}", post_head(CONFIG_MAPS, body));
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

/// The first line of an answer.
async fn status(stream: &mut TlsStream<TcpStream>) -> String {
    let mut line = [0; 12];
    stream.read_exact(&mut line).await.unwrap();
    String::from_utf8_lossy(&line).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_for_a_webhook_are_charged_to_their_user() {
    let cluster = start_with(ServerConfig {
        webhook_memory_bytes: 4 << 20,
        ..config()
    })
    .await;
    let hooks = slow_webhook(&cluster).await;
    let (anna, ben) = (trusted(&cluster, "anna").await, trusted(&cluster, "ben").await);
    let called_for = |name: &str| hooks.seen(HANG).iter().filter(|own| own["name"] == name).count();
    // Each holds 200,000 bytes and some: the object, and the review of it. A user may have 128 KiB beside the uncounted.
    let mut own = Vec::new();
    for _ in 0..3 {
        own.push(posted(&cluster, &anna, &labelled("annas", "slow", 100_000)).await);
    }
    {
        let mut answers: FuturesUnordered<_> = own.iter_mut().map(status).collect();
        for _ in 0..2 {
            assert_eq!(answers.next().await.unwrap(), "HTTP/1.1 429");
        }
    }
    let _ben = posted(&cluster, &ben, &labelled("bens", "slow", 100_000)).await;
    while called_for("annas") == 0 || called_for("bens") == 0 {
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(called_for("annas"), 1, "a third of them fits");
    drop(own);
    while called_for("annas") == 1 {
        let _again = posted(&cluster, &anna, &labelled("annas", "slow", 100_000)).await;
        cluster.runtime.sleep(Duration::from_millis(20)).await;
    }
}
