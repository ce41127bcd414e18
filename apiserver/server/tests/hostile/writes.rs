//! Writes without their clients, and after their deadlines.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn write_that_began_finishes_without_its_client() {
    let runtime = machinery_runtime::Runtime::real();
    let gated = Arc::new(GatedStorage::new(LogStorage::memory(&runtime).await.unwrap()));
    let cluster = start_on(config(), Arc::clone(&gated) as Arc<dyn Storage>).await;
    let begun = gated.close_gate("/registry/configmaps/default/left");
    let body = config_map("left", 1);
    let stream = cluster.sent(post_head(CONFIG_MAPS, &body) + &body).await;
    begun.await.unwrap();
    drop(stream);
    // The server has seen it go once it answers a later client.
    cluster.admin().get("/readyz").await.is(200);
    cluster.admin().get(&format!("{CONFIG_MAPS}/left")).await.is(404);
    gated.open_gate();
    while cluster.admin().get(&format!("{CONFIG_MAPS}/left")).await.code != 200 {
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn write_without_its_client_keeps_its_seats() {
    let runtime = machinery_runtime::Runtime::real();
    let gated = Arc::new(GatedStorage::new(LogStorage::memory(&runtime).await.unwrap()));
    // Each level has one seat.
    let few = ServerConfig {
        max_requests_inflight: 0,
        max_mutating_requests_inflight: 1,
        request_timeout: LONG,
        ..config()
    };
    let cluster = start_on(few, Arc::clone(&gated) as Arc<dyn Storage>).await;
    let anna = trusted(&cluster, "anna").await;
    cluster
        .admin()
        .post(CONFIG_MAPS, config_map("left", 1))
        .await
        .is(201);
    let begun = gated.close_gate("/registry/configmaps/default/left");
    let mut stream = cluster.connect(Some(&anna)).await;
    let head = format!("DELETE {CONFIG_MAPS}/left HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    begun.await.unwrap();
    drop(stream);
    // Another user of the level waits for the seat that the lost delete still has.
    let somebody = identity(&cluster, "somebody", "somebodies");
    let theirs = cluster.as_identity(&somebody);
    let mut write = std::pin::pin!(theirs.post(CONFIG_MAPS, config_map("mine", 1)));
    tokio::select! { biased;
        answer = &mut write => panic!("answered with {} without a seat", answer.code),
        () = until_gauge(&cluster, WAITING, |count| count == 1) => {}
    }
    // Its time goes on meanwhile: a request that has little is rejected, and one that says nonsense about it does not wait.
    let at = |timeout: &str| format!("{CONFIG_MAPS}?timeout={timeout}");
    let hurried = cluster.as_identity(&somebody);
    hurried.post(&at("200ms"), config_map("mine", 1)).await.is(429);
    let confused = cluster.as_identity(&somebody);
    confused.post(&at("soon"), config_map("mine", 1)).await.is(400);
    // The administrator does not wait.
    cluster.admin().get(CONFIG_MAPS).await.is(200);
    gated.open_gate();
    write.await.is(403);
    cluster.admin().get(&format!("{CONFIG_MAPS}/left")).await.is(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn write_after_deadline_is_not_begun() {
    let runtime = machinery_runtime::Runtime::real();
    let gated = Arc::new(GatedStorage::new(LogStorage::memory(&runtime).await.unwrap()));
    let cluster = start_on(config(), Arc::clone(&gated) as Arc<dyn Storage>).await;
    cluster
        .admin()
        .post(CONFIG_MAPS, config_map("first", 1))
        .await
        .is(201);
    let begun = gated.close_gate("/registry/configmaps/default/first");
    let path = format!("{CONFIG_MAPS}/first?timeout=300ms");
    let patch = Bytes::from_static(br#"{"data":{"by":"the late one"}}"#);
    let late = cluster
        .admin()
        .header("content-type", "application/merge-patch+json");
    let (answer, ()) = tokio::join!(late.send(Method::PATCH, &path, patch), async {
        begun.await.unwrap();
    });
    answer.is(504);
    // Another writes while the late one is held at the gate: its own write then finds another revision.
    let other = Bytes::from_static(br#"{"data":{"by":"another"}}"#);
    let sent = cluster
        .admin()
        .header("content-type", "application/merge-patch+json")
        .send(Method::PATCH, &format!("{CONFIG_MAPS}/first"), other)
        .await;
    sent.is(200);
    gated.open_gate();
    while !cluster.admin().get("/metrics").await.body.contains(NO_MUTATION) {
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
    let left = cluster.admin().get(&format!("{CONFIG_MAPS}/first")).await.json();
    assert_eq!(left["data"]["by"], "another");
}
