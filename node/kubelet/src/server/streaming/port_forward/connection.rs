//! Connections to ports of a pod, and what goes over them.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use machinery_meta::dial::dial_error;
use machinery_runtime::Runtime;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpSocket, TcpStream};

use super::super::connects::Connects;
use super::super::spdy::session::SpdyStream;
use super::super::unread::PIECE_BYTES_MAX;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Joins a data stream to a connection until either has ended.
///
/// # Errors
/// In upstream's words, for the error stream.
pub(super) async fn forward(
    runtime: &Runtime,
    dialer: &Dialer,
    error: &SpdyStream,
    mut data: SpdyStream,
) -> Result<(), String> {
    let port: u16 = error
        .header("port")
        .parse()
        .map_err(|_| "the port is not a number".to_string())?;
    let refused = |reason: &dyn std::fmt::Display| {
        format!("failed to connect to localhost:{port} inside the pod: {reason}")
    };
    let outcome = dialer.connect(runtime, port).await;
    let socket = match outcome {
        Ok(socket) => socket,
        Err(reason) => {
            data.writer().reset().await;
            return Err(refused(&reason));
        }
    };
    let (from, mut to) = socket.into_split();
    let (writer, was_reset) = (data.writer(), data.was_reset());
    let outward = async {
        while let Some(piece) = data.read().await {
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    let inward = async {
        // The place comes first: a forward whose client does not read keeps no data.
        while from.readable().await.is_ok()
            && let Some(place) = writer.place().await
        {
            match read_some(&from) {
                Ok(Some(piece)) => place.send(piece),
                Ok(None) => {}
                Err(Ended) => break,
            }
        }
        writer.finish().await;
    };
    // What the server in the pod has to say ends the connection, not what the client has; a reset ends both ways.
    let both = async {
        tokio::pin!(outward, inward);
        tokio::select! {
            biased;
            () = &mut inward => {}
            () = &mut outward => inward.await,
        }
    };
    tokio::select! {
        biased;
        () = both => {}
        () = was_reset => {}
    }
    Ok(())
}

/// The other side sends no more, or has gone.
pub(in super::super) struct Ended;

/// Bytes that are there to be read; `None` if it is nothing.
pub(in super::super) fn read_some(from: &OwnedReadHalf) -> Result<Option<Bytes>, Ended> {
    let mut piece = BytesMut::with_capacity(PIECE_BYTES_MAX);
    match from.try_read_buf(&mut piece) {
        Ok(0) => Err(Ended),
        Ok(_) => Ok(Some(piece.freeze())),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(_) => Err(Ended),
    }
}

/// The way into one pod, for one client's connection.
#[derive(Debug, Clone)]
pub(in super::super) struct Dialer {
    /// The pod's network namespace; `None` is the node's own.
    pub(in super::super) network: Option<PathBuf>,
    pub(in super::super) connects: Connects,
}

impl Dialer {
    /// Connects to a port of localhost as the pod itself would, once it is its turn: over IPv4, and where no process listens
    /// there over IPv6 (containerd's `dialLocalhost`).
    ///
    /// # Errors
    /// In upstream's words, of both.
    pub(in super::super) async fn connect(&self, runtime: &Runtime, port: u16) -> Result<TcpStream, String> {
        let _turn = self.connects.turn().await;
        let first = match self.connect_to(runtime, (Ipv4Addr::LOCALHOST, port).into()).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let second = self.connect_to(runtime, (Ipv6Addr::LOCALHOST, port).into()).await;
        second.map_err(|second| format!("IPv4: {first} IPv6: {second}"))
    }

    async fn connect_to(&self, runtime: &Runtime, address: SocketAddr) -> Result<TcpStream, String> {
        // Only the making needs a thread: it has to be in the pod's namespace.
        let socket = match self.network.clone() {
            Some(path) => runtime
                .blocking(move || node_sys::namespace::tcp_socket_in(&path, address.is_ipv6()))
                .await
                .map_err(|error| error.to_string())?
                .map_err(|error| error.to_string())?,
            None if address.is_ipv6() => TcpSocket::new_v6(),
            None => TcpSocket::new_v4(),
        };
        let connected = async { socket?.connect(address).await };
        let outcome = runtime.timeout(CONNECT_TIMEOUT, connected).await;
        outcome
            .unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
            .map_err(|error| dial_error(&address.ip().to_string(), address.port(), &error))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::connects::AllConnects;
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn port_forward_reaches_who_listens_on_either_localhost() {
        let runtime = Runtime::real();
        let connects = AllConnects::default().of_pod().of_connection();
        let dialer = Dialer {
            network: None,
            connects,
        };
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = tokio::net::TcpListener::bind(address).await.unwrap();
            let own = listener.local_addr().unwrap();
            let stream = dialer.connect(&runtime, own.port()).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), own);
        }
        let refused = dialer.connect(&runtime, 1).await.unwrap_err();
        let words = "IPv4: dial tcp 127.0.0.1:1: connect: connection refused IPv6: dial tcp [::1]:1: connect: connection refused";
        assert_eq!(refused, words);
    }

    #[test]
    fn port_forward_connect_that_waits_takes_no_thread() {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        tokio.block_on(async {
            let runtime = Runtime::real();
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            // A full backlog: a new connection gets no answer.
            let listener = socket.listen(0).unwrap();
            let address = listener.local_addr().unwrap();
            let mut filling: Vec<_> = (0..4).map(|_| Box::pin(TcpStream::connect(address))).collect();
            for connect in &mut filling {
                drop(connect.now_or_never());
            }
            let connects = AllConnects::default().of_pod().of_connection();
            let network = None;
            let dialer = Dialer { network, connects };
            tokio::select! {
                biased;
                outcome = dialer.connect(&runtime, address.port()) => panic!("{outcome:?}"),
                done = runtime.blocking(|| 7) => assert_eq!(done, Ok(7)),
            }
        });
    }
}
