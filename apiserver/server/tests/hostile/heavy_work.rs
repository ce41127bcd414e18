//! Requests that are heavy work, and their turns.

use super::*;

/// A request, and whether some of it was heavy work.
async fn is_heavy(cluster: &Cluster, request: impl Future<Output = common::Answer>) -> bool {
    const TURNS: &str = "knarr_heavy_work_turns_total";
    let before = gauge(cluster, TURNS).await;
    let answer = request.await;
    assert!(answer.code.is_success(), "{}", answer.code);
    gauge(cluster, TURNS).await > before
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_requests_are_made_off_the_threads_that_serve_others() {
    let cluster = start().await;
    let large = format!("{CONFIG_MAPS}/large");
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml, labels: {a: &a b, c: *a}}\n";
    let short = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: short}\n";
    let send = |method, path: &str, content: &str, body: String| {
        let ask = cluster.admin().header("content-type", content);
        let path = path.to_owned();
        async move { ask.send(method, &path, body.into()).await }
    };
    let get = |path: &str, accept: &str, encoding: &str| {
        let ask = cluster.admin().header("accept", accept);
        let (ask, path) = (ask.header("accept-encoding", encoding), path.to_owned());
        async move { ask.get(&path).await }
    };
    let json = "application/json";
    let post = send(Method::POST, CONFIG_MAPS, json, config_map("small", 100));
    assert!(!is_heavy(&cluster, post).await);
    let post = send(Method::POST, CONFIG_MAPS, json, config_map("large", 200_000));
    assert!(is_heavy(&cluster, post).await);
    let post = send(Method::POST, CONFIG_MAPS, "application/yaml", short.to_owned());
    assert!(!is_heavy(&cluster, post).await);
    let post = send(Method::POST, CONFIG_MAPS, "application/yaml", yaml.to_owned());
    assert!(is_heavy(&cluster, post).await);
    for (name, body, expected) in [
        ("short", short.to_owned(), false),
        ("yaml", yaml.to_owned(), true),
        ("small", config_map("small", 10_000), false),
        ("large", config_map("large", 200_000), true),
    ] {
        let path = format!("{CONFIG_MAPS}/{name}?fieldManager=m&force=true");
        let applied = send(Method::PATCH, &path, APPLY, body);
        assert_eq!(is_heavy(&cluster, applied).await, expected, "{name}");
    }
    let merge = "application/merge-patch+json";
    let patch = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let of_small = send(
        Method::PATCH,
        &format!("{CONFIG_MAPS}/small"),
        merge,
        patch.clone(),
    );
    assert!(!is_heavy(&cluster, of_small).await);
    assert!(is_heavy(&cluster, send(Method::PATCH, &large, merge, patch)).await);
    for path in [&large, CONFIG_MAPS] {
        // As it is stored.
        assert!(!is_heavy(&cluster, get(path, json, "identity")).await);
        assert!(is_heavy(&cluster, get(path, json, "gzip")).await);
        for form in ["application/yaml", "application/vnd.kubernetes.protobuf"] {
            assert!(
                is_heavy(&cluster, get(path, form, "identity")).await,
                "{path} {form}"
            );
        }
    }
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    assert!(is_heavy(&cluster, get(CONFIG_MAPS, table, "identity")).await);
    let watch = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1");
    let protobuf = "application/vnd.kubernetes.protobuf;stream=watch";
    assert!(!is_heavy(&cluster, get(&watch, json, "identity")).await);
    assert!(is_heavy(&cluster, get(&watch, protobuf, "identity")).await);
    let delete = send(Method::DELETE, &large, json, String::new());
    assert!(is_heavy(&cluster, delete).await);
}

/// The plugin reads all of an account for a pod, however small that is.
#[tokio::test(flavor = "multi_thread")]
async fn pod_of_a_large_account_is_heavy() {
    let cluster = start().await;
    let account = |name: &str, secrets: usize| {
        let named = |at: usize| json!({"name": format!("secret-{at:06}")});
        let secrets: Vec<Value> = (0..secrets).map(named).collect();
        let object = json!({"metadata": {"name": name}, "imagePullSecrets": secrets});
        cluster
            .admin()
            .post("/api/v1/namespaces/default/serviceaccounts", object.to_string())
    };
    account("small", 10).await.is(201);
    account("large", 4_000).await.is(201);
    let pod = |account: &str| {
        let spec = json!({"serviceAccountName": account, "imagePullSecrets": [{"name": "own"}],
            "containers": [{"name": "c", "image": "i"}]});
        let pod = json!({"metadata": {"name": "p"}, "spec": spec}).to_string();
        let (path, cluster) = ("/api/v1/namespaces/default/pods?dryRun=All", &cluster);
        async move { cluster.admin().post(path, pod).await.is(201) }
    };
    assert!(!is_heavy(&cluster, pod("small")).await);
    assert!(is_heavy(&cluster, pod("large")).await);
}

/// Holds every thread for heavy work until what it returns is dropped.
async fn busy_with_heavy_work(cluster: &Cluster) -> Vec<mpsc::Sender<()>> {
    // One more is kept for flows with little debt, as these are.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).max(2) + 1;
    let mut holds = Vec::new();
    for number in 0..threads {
        let (hold, held) = mpsc::channel::<()>();
        let piece = cluster
            .runtime
            .heavy(HeavyFlow::of_account(format!("busy-{number}")), move || {
                held.recv().is_ok()
            });
        cluster
            .runtime
            .spawn("test-heavy", async move { assert!(!piece.await) })
            .detach();
        holds.push(hold);
    }
    until_gauge(cluster, RUNNING, |count| count == threads).await;
    holds
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_requests_wait_for_their_turn_without_seats() {
    let cluster = with_single_seats().await;
    let anna = trusted(&cluster, "anna").await;
    let holds = busy_with_heavy_work(&cluster).await;
    let (body, path) = ("{metadata: {name: &n heavy, labels: {n: *n}}}", CONFIG_MAPS);
    let posting = async {
        let ask = cluster
            .as_identity(&anna)
            .header("content-type", "application/yaml");
        ask.send(Method::POST, path, body.into()).await
    };
    let others = async {
        until_gauge(&cluster, WAITING_FOR_A_TURN, |count| count > 0).await;
        // Another one of the level.
        let bert = identity(&cluster, "bert", "people");
        let refused = cluster.as_identity(&bert).post(path, config_map("x", 1));
        refused.await.is(403);
        drop(holds);
    };
    let (posted, ()) = futures::join!(posting, others);
    posted.is(201);
}

const WAITING_FOR_A_TURN: &str = "knarr_heavy_work_tasks{state=\"waiting\"}";

#[tokio::test(flavor = "multi_thread")]
async fn heavy_request_whose_client_leaves_before_it_writes_is_not_carried_out() {
    let cluster = start().await;
    let holds = busy_with_heavy_work(&cluster).await;
    let dry_run = format!("{CONFIG_MAPS}?dryRun=All");
    for path in [CONFIG_MAPS, &dry_run] {
        let body = config_map("left", 100_000);
        let stream = cluster.sent(post_head(path, &body) + &body).await;
        until_gauge(&cluster, WAITING_FOR_A_TURN, |count| count == 1).await;
        drop(stream);
        // All threads are still held: it ends without a turn.
        until_gauge(&cluster, WAITING_FOR_A_TURN, |count| count == 0).await;
    }
    drop(holds);
    let left = format!("{CONFIG_MAPS}/left");
    cluster.admin().get(&left).await.is(404);
}

/// As Flux, Argo CD and client-go's `Apply` send them, all of one flow.
#[tokio::test(flavor = "multi_thread")]
async fn small_applies_of_one_user_wait_for_no_heavy_work() {
    let cluster = start().await;
    let _holds = busy_with_heavy_work(&cluster).await;
    let applies = (0..200).map(|number| {
        let name = format!("applied-{number}");
        let ask = cluster.admin().header("content-type", APPLY);
        async move {
            let path = format!("{CONFIG_MAPS}/{name}?fieldManager=flux");
            let body = config_map(&name, 100);
            ask.send(Method::PATCH, &path, body.into()).await.is(201);
        }
    });
    futures::stream::iter(applies)
        .buffer_unordered(16)
        .collect::<Vec<()>>()
        .await;
}
