//! Connections whose other side has vanished (a machine without power, an address translation that forgot it): TCP asks
//! whether it is still there, as Go's listeners and dialers do.
//!
//! `TCP_USER_TIMEOUT` is left alone: it ends connections whose other side is there and does not read, a paused
//! `kubectl logs | less` among them. What was sent to a vanished one ends by `net.ipv4.tcp_retries2` (about 15 minutes).

use socket2::{SockRef, TcpKeepalive};
use std::time::Duration;
use tokio::net::TcpStream;

/// Go's defaults: a connection that is silent for so long is asked, again after as long, and is over after so many
/// questions without an answer.
const IDLE: Duration = Duration::from_secs(15);
const INTERVAL: Duration = Duration::from_secs(15);
const PROBES: u32 = 9;

/// Ends a connection two and a half minutes after its other side has vanished.
pub fn keep_alive(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new()
        .with_time(IDLE)
        .with_interval(INTERVAL)
        .with_retries(PROBES);
    // Where a kernel does not know an option, the connection is as good as without.
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive) {
        tracing::debug!(%error, "setting TCP keepalive");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn keep_alive_asks_as_go_does() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(!socket.keepalive().unwrap());
        keep_alive(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), IDLE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), PROBES);
    }
}
