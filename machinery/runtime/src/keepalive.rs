//! Connections whose other side has vanished (a machine without power, an address translation that forgot it): TCP asks
//! whether it is still there, as Go's listeners and dialers do.
//!
//! It asks where nothing is on its way; where something is, [`LingeringClose`](crate::LingeringClose) looks at the silence.

use socket2::{SockRef, TcpKeepalive};
use std::time::Duration;
use tokio::net::TcpStream;

/// Times of TCP keepalive probes of a silent connection. Linux counts whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first question.
    pub idle: Duration,
    /// Between two questions.
    pub interval: Duration,
    /// The connection is over after so many without an answer.
    pub probes: u32,
}

impl Default for KeepAlive {
    /// Go's defaults, which end a connection two and a half minutes after its other side has vanished.
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(15),
            interval: Duration::from_secs(15),
            probes: 9,
        }
    }
}

impl KeepAlive {
    /// The time in which a connection whose other side has vanished ends.
    pub fn total(self) -> Duration {
        self.idle + self.interval * self.probes
    }

    /// Sends probes on this connection from now on.
    pub fn set(self, stream: &TcpStream) {
        let keepalive = TcpKeepalive::new()
            .with_time(self.idle)
            .with_interval(self.interval)
            .with_retries(self.probes);
        // Where a kernel does not know an option, the connection is as good as without.
        if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive) {
            tracing::debug!(%error, "setting TCP keepalive");
        }
    }
}

/// Ends a connection as [`KeepAlive::default`] says.
pub fn keep_alive(stream: &TcpStream) {
    KeepAlive::default().set(stream);
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
        let quarter = Duration::from_secs(15);
        assert_eq!(socket.tcp_keepalive_time().unwrap(), quarter);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), quarter);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 9);
    }
}
