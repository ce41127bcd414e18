//! Connections to ports of a pod, and what goes over them.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use machinery_meta::dial::dial_error;
use machinery_runtime::Runtime;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;

use super::super::spdy::session::SpdyStream;
use super::super::unread::PIECE_BYTES_MAX;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Joins a data stream to a connection until either has ended.
///
/// # Errors
/// In upstream's words, for the error stream.
pub(super) async fn forward(
    runtime: &Runtime,
    network: Option<PathBuf>,
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
    let outcome = connect(runtime, network, port).await;
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

/// What is there to be read; `None` if it is nothing.
pub(in super::super) fn read_some(from: &OwnedReadHalf) -> Result<Option<Bytes>, Ended> {
    let mut piece = BytesMut::with_capacity(PIECE_BYTES_MAX);
    match from.try_read_buf(&mut piece) {
        Ok(0) => Err(Ended),
        Ok(_) => Ok(Some(piece.freeze())),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(_) => Err(Ended),
    }
}

/// A connection to a port as the pod itself would make it.
pub(in super::super) async fn connect(
    runtime: &Runtime,
    network: Option<PathBuf>,
    port: u16,
) -> Result<TcpStream, String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let connect = move || -> Result<std::net::TcpStream, String> {
        let stream = match network {
            Some(path) => node_sys::namespace::connect_in(&path, address, CONNECT_TIMEOUT)
                .map_err(|error| error.to_string())?,
            None => std::net::TcpStream::connect_timeout(&address, CONNECT_TIMEOUT),
        };
        let stream = stream.map_err(|error| dial_error(&address.ip().to_string(), port, &error))?;
        stream.set_nonblocking(true).map_err(|error| error.to_string())?;
        Ok(stream)
    };
    let stream = runtime
        .blocking(connect)
        .await
        .map_err(|error| error.to_string())??;
    TcpStream::from_std(stream).map_err(|error| error.to_string())
}
