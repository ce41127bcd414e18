//! Lists that are large and not read.

use super::*;

/// Far more than the buffers between two sockets hold, so that an answer that is not read cannot be sent.
const OBJECTS: usize = 12;
const OBJECT_BYTES: usize = 1_000_000;

/// A server with large objects, and room for lists of a few of them.
async fn with_large_objects(answer_pace_interval: Duration) -> Cluster {
    let cluster = start_with(ServerConfig {
        list_memory_bytes: 2 * OBJECT_BYTES,
        answer_pace_interval,
        ..config()
    })
    .await;
    for number in 0..OBJECTS {
        let body = config_map(&format!("large-{number}"), OBJECT_BYTES);
        cluster.admin().post(CONFIG_MAPS, body).await.is(201);
    }
    for user in ["anna", "bert"] {
        trusted(&cluster, user).await;
    }
    cluster
}

async fn yaml_list(cluster: &Cluster, identity: &apiserver_auth::pki::Identity) -> common::Answer {
    let ask = cluster.as_identity(identity).header("accept", "application/yaml");
    ask.get(CONFIG_MAPS).await
}

/// A connection of this user's on which a list was begun and is not read.
async fn unread_list(cluster: &Cluster, identity: &apiserver_auth::pki::Identity) -> TlsStream<TcpStream> {
    let mut stream = cluster.connect(Some(identity)).await;
    let head = format!("GET {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\naccept: application/yaml\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    stream.read_u8().await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn list_memory_is_shared_between_users() {
    let cluster = with_large_objects(LONG).await;
    let (anna, bert) = (
        identity(&cluster, "anna", "people"),
        identity(&cluster, "bert", "people"),
    );
    // Larger than all there is, but alone: it is answered.
    assert!(yaml_list(&cluster, &anna).await.is(200).body.len() > OBJECTS * OBJECT_BYTES);
    let slow = unread_list(&cluster, &anna).await;
    let refused = yaml_list(&cluster, &anna).await.is(429);
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(
        refused.body.contains("reason: TooManyRequests\n"),
        "{}",
        refused.body
    );
    // Sent from what is stored, a list weighs next to nothing.
    drop(cluster.as_identity(&anna).get(CONFIG_MAPS).await.is(200));
    // What one user does not read is that user's own trouble.
    drop(yaml_list(&cluster, &bert).await.is(200));
    let node = identity(&cluster, "system:kube-scheduler", "system:authenticated");
    assert_ne!(yaml_list(&cluster, &node).await.code, 429);
    drop(slow);
    while yaml_list(&cluster, &anna).await.code != 200 {
        cluster.runtime.sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_not_read_is_abandoned() {
    let cluster = with_large_objects(SHORT).await;
    let anna = identity(&cluster, "anna", "people");
    let mut slow = unread_list(&cluster, &anna).await;
    // The client keeps its connection and never reads.
    while yaml_list(&cluster, &anna).await.code != 200 {
        cluster.runtime.sleep(Duration::from_millis(10)).await;
    }
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest).await;
    assert!(rest.len() < OBJECTS * OBJECT_BYTES, "the answer was given up");
}
