//! Bodies that are too long, half sent, or come late.

use super::*;

/// A chunked body is as long as it turns out to be.
#[tokio::test(flavor = "multi_thread")]
async fn body_without_length_is_bounded() {
    let cluster = start().await;
    let mut stream = cluster.connect(Some(&cluster.admin)).await;
    let head = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let piece = [&b"10000\r\n"[..], &[b' '; 0x10000], b"\r\n"].concat();
    for _ in 0..64 {
        if stream.write_all(&piece).await.is_err() {
            break;
        }
    }
    let _ = stream.write_all(b"0\r\n\r\n").await;
    // What TLS still holds is sent too; a server that has hung up already may have answered before.
    let _ = stream.flush().await;
    let mut said = vec![0; 64];
    let length = stream.read(&mut said).await.unwrap();
    assert!(
        said[..length].starts_with(b"HTTP/1.1 413 "),
        "{}",
        String::from_utf8_lossy(&said)
    );
    let delete = cluster
        .admin()
        .send(Method::DELETE, &format!("{CONFIG_MAPS}/none"), Bytes::new())
        .await;
    delete.is(404);
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Half of a large body whose head announces all of it, on that many connections of one service account.
async fn half_sent(cluster: &Cluster, count: usize, whole: usize) -> Vec<TlsStream<TcpStream>> {
    let account = identity(
        cluster,
        "system:serviceaccount:evil:default",
        "system:serviceaccounts",
    );
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let sent = post_head(path, &" ".repeat(whole)) + &" ".repeat(whole / 2);
    let begun = (0..count).map(|_| async {
        let mut stream = cluster.connect(Some(&account)).await;
        // The server need not read on for a client that has its answer already.
        let _ = stream.write_all(sent.as_bytes()).await;
        let _ = stream.flush().await;
        stream
    });
    futures::future::join_all(begun).await
}

/// A server that waits long for the rest of a body.
async fn patient() -> Cluster {
    start_with(ServerConfig {
        body_pace_interval: LONG,
        max_mutating_requests_inflight: 64,
        ..config()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_reaches_client_that_still_sends() {
    let cluster = start().await;
    let somebody = identity(&cluster, "somebody", "somebodies");
    let large = config_map("large", 8 << 20);
    let refused = (0..8).map(|_| cluster.as_identity(&somebody).post(CONFIG_MAPS, large.clone()));
    for refused in futures::future::join_all(refused).await {
        refused.is(403);
    }
}

/// Otherwise the client sends its next request on a connection that ends, and receives nothing.
#[tokio::test(flavor = "multi_thread")]
async fn answer_to_half_a_body_says_that_its_connection_ends() {
    let cluster = start().await;
    let mut stream = cluster.connect(Some(&cluster.admin)).await;
    let whole = " ".repeat(64 << 20);
    let sent = post_head(CONFIG_MAPS, &whole) + &whole[..1000];
    stream.write_all(sent.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
    assert!(head.contains("\r\nconnection: close\r\n"), "{head}");
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_bodies_do_not_block_other_writers() {
    const WHOLE: usize = 3 << 20;
    /// An eighth of the memory of bodies is a user's: so many halves it has room for.
    const FITTING: usize = 5;
    let cluster = patient().await;
    let node = identity(&cluster, "system:node:n", "system:nodes");
    let meta = json!({"name": "n", "namespace": "kube-node-lease"});
    let spec = json!({"holderIdentity": "n", "leaseDurationSeconds": 40});
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec});
    let made = cluster.as_identity(&node).post(LEASES, lease.to_string()).await;
    made.is(201);
    let crowd = half_sent(&cluster, 22, WHOLE).await;
    until_gauge(&cluster, ARRIVING, |count| count >= FITTING).await;
    let large = config_map("large", 1_000_000);
    cluster.admin().post(CONFIG_MAPS, large.clone()).await.is(201);
    let renewal = cluster
        .as_identity(&node)
        .header("content-type", "application/merge-patch+json");
    let patch = Bytes::from_static(br#"{"spec":{"renewTime":"2026-01-01T00:00:00.000000Z"}}"#);
    let renewed = renewal.send(Method::PATCH, &format!("{LEASES}/n"), patch).await;
    renewed.is(200);
    // Another user is refused for missing rights, and not for missing memory.
    let somebody = identity(&cluster, "somebody", "somebodies");
    let refused = cluster.as_identity(&somebody).post(CONFIG_MAPS, large).await;
    refused.is(403);
    assert!(gauge(&cluster, ARRIVING).await >= FITTING, "the crowd has left");
    drop(crowd);
}

/// A write of another service account of the level is answered.
async fn good_account_is_answered(cluster: &Cluster) {
    let good = "system:serviceaccount:good:default";
    let account = identity(cluster, good, "system:serviceaccounts");
    let refused = cluster
        .as_identity(&account)
        .post(CONFIG_MAPS, config_map("x", 1));
    refused.await.is(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_bodies_of_one_user_leave_seats_to_the_level() {
    const CROWD: usize = 32;
    let cluster = with_single_seats().await;
    let crowd = half_sent(&cluster, CROWD, 1_000).await;
    until_gauge(&cluster, ARRIVING, |count| count == CROWD).await;
    good_account_is_answered(&cluster).await;
    assert_eq!(gauge(&cluster, ARRIVING).await, CROWD, "the crowd has left");
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_bodies_are_discarded_without_seats() {
    let cluster = with_single_seats().await;
    let crowd = half_sent(&cluster, 4, 4 << 20).await;
    until_gauge(&cluster, ARRIVING, |count| count > 0).await;
    good_account_is_answered(&cluster).await;
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_comes_late_is_carried_out() {
    let cluster = with_single_seats().await;
    let (body, anna) = (config_map("late", 1), trusted(&cluster, "anna").await);
    let (first, rest) = body.split_at(10);
    let mut stream = cluster.connect(Some(&anna)).await;
    let beginning = post_head(CONFIG_MAPS, &body) + first;
    stream.write_all(beginning.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    until_gauge(&cluster, ARRIVING, |count| count == 1).await;
    stream.write_all(rest.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut said = [0; 13];
    stream.read_exact(&mut said).await.unwrap();
    assert_eq!(said.escape_ascii().to_string(), "HTTP/1.1 201 ");
    assert_eq!(gauge(&cluster, ARRIVING).await, 0);
}

/// Without seats their number is bounded by the memory of a user's bodies.
#[tokio::test(flavor = "multi_thread")]
async fn half_sent_bodies_of_one_user_are_bounded_in_number() {
    /// A user's part of the memory of bodies is one whole body here.
    const FITTING: usize = (3 << 20) / (16 << 10);
    let cluster = start_with(ServerConfig {
        body_pace_interval: LONG,
        body_memory_bytes: 16 << 20,
        ..config()
    })
    .await;
    let mut crowd = half_sent(&cluster, FITTING, 1_000).await;
    until_gauge(&cluster, ARRIVING, |count| count == FITTING).await;
    crowd.extend(half_sent(&cluster, 1, 1_000).await);
    // The rest of a body that is refused is discarded before the answer.
    until_gauge(&cluster, ARRIVING, |count| count == FITTING + 1).await;
    let mut said = [0; 13];
    crowd.last_mut().unwrap().write_all(&[b' '; 500]).await.unwrap();
    crowd.last_mut().unwrap().read_exact(&mut said).await.unwrap();
    assert_eq!(said.escape_ascii().to_string(), "HTTP/1.1 429 ");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_flight_unlimited_is_never_exhausted() {
    let cluster = start_with(ServerConfig {
        body_pace_interval: LONG,
        max_requests_inflight: 0,
        max_mutating_requests_inflight: 0,
        ..config()
    })
    .await;
    let crowd = half_sent(&cluster, 250, 1_000).await;
    until_gauge(&cluster, ARRIVING, |count| count == crowd.len()).await;
    assert_eq!(gauge(&cluster, WAITING).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_stalls_is_refused() {
    let cluster = start_with(ServerConfig {
        body_pace_interval: SHORT,
        ..config()
    })
    .await;
    for mut stream in half_sent(&cluster, 1, 1_000).await {
        let mut said = String::new();
        let status: serde_json::Value = loop {
            let mut more = [0; 4096];
            let count = stream.read(&mut more).await.unwrap();
            assert!(count > 0, "no status: {said}");
            said.push_str(std::str::from_utf8(&more[..count]).unwrap());
            let body = said.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            if let Ok(status) = serde_json::from_str(body) {
                break status;
            }
        };
        assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
        assert_eq!(
            (&status["kind"], &status["reason"]),
            (&"Status".into(), &"Timeout".into())
        );
        assert_eq!(status["code"], 408);
    }
}
