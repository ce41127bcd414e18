//! Connections: heads that are slow or large, requests taken back, clients that are silent.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn head_sent_too_slowly_closes_connection() {
    let cluster = impatient().await;
    let beginnings: [&[u8]; 4] = [
        b"",
        b"GET /api HTTP/1.1\r\nhost: x\r\nx-slow: ",
        b"PRI * HTTP/2.0\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    for beginning in beginnings {
        let mut stream = cluster.sent(beginning).await;
        // What the server says before it hangs up is its own; that it does is what counts.
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said).await;
    }
    cluster.admin().get("/readyz").await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_are_bounded() {
    let cluster = start().await;
    let mut stream = cluster.connect(Some(&cluster.admin)).await;
    let head = format!(
        "GET /readyz HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n",
        "y".repeat(300_000)
    );
    let _ = stream.write_all(head.as_bytes()).await;
    let mut said = vec![0; 64];
    let length = stream.read(&mut said).await.unwrap_or(0);
    let said = String::from_utf8_lossy(&said[..length]).into_owned();
    assert!(said.starts_with("HTTP/1.1 431 "), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_taken_back_at_once_leave_nothing_behind() {
    let cluster = start().await;
    let mut sender = cluster.http2().await;
    for _ in 0..20_000 {
        let ask = Request::builder()
            .uri(format!("https://x{CONFIG_MAPS}"))
            .body(Full::<Bytes>::default());
        if sender.ready().await.is_err() {
            // The server has had enough of it.
            break;
        }
        drop(sender.send_request(ask.unwrap()));
        tokio::task::yield_now().await;
    }
    drop(sender);
    let gauge = "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 1";
    // The asking itself is the one; what was taken back goes with its connection.
    while !cluster.admin().get("/metrics").await.is(200).body.contains(gauge) {
        cluster.runtime.sleep(Duration::from_millis(10)).await;
    }
}

/// The timer of the server's end of a connection, as the kernel shows it: 02 is that of keepalive.
fn kernel_timer(server: SocketAddr, client: SocketAddr) -> Option<String> {
    let hex = |address: SocketAddr| format!("0100007F:{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields[1] == hex(server) && fields[2] == hex(client);
        is_it.then(|| fields[5].split(':').next().unwrap_or_default().to_owned())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_asked_whether_their_clients_are_there() {
    let cluster = start().await;
    let stream = cluster.connect(Some(&cluster.admin)).await;
    let client = stream.get_ref().0.local_addr().unwrap();
    loop {
        match kernel_timer(cluster.address, client).as_deref() {
            Some("02") => return,
            // What was sent last is not acknowledged yet.
            Some("01") => cluster.runtime.sleep(Duration::from_millis(5)).await,
            other => panic!("no keepalive: {other:?}"),
        }
    }
}
