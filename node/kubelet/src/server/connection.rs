//! One connection of port 10250: its requests and its end.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use machinery_runtime::{LingeringClose, Runtime, UnreadFlag};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::response::Body;

/// A client must send its request's head in this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// All headers of a request together, its address included: as the API server's, and what it adds to what it hands on.
const HEAD_BYTES_MAX: usize = 136 << 10;

/// The socket below TLS.
fn socket(stream: &mut TlsStream<TcpStream>) -> &mut TcpStream {
    stream.get_mut().0
}

/// Answers the requests of a connection.
pub(super) async fn serve<H, A>(stream: TlsStream<TcpStream>, runtime: Runtime, handle: H)
where
    H: Fn(Request<Incoming>) -> A,
    A: Future<Output = Response<Body>>,
{
    let unread = UnreadFlag::default();
    let of_requests = unread.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        // No body is read here: one that comes is unread to its end.
        of_requests.head_read(!request.body().is_end_stream());
        let (answer, upgraded) = (handle(request), of_requests.clone());
        async move {
            let answer = answer.await;
            if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                upgraded.leave();
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let stream = LingeringClose::new(stream, socket, runtime, &unread);
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Err(error) = connection.await {
        tracing::debug!(error = %error, "kubelet connection ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore, ServerConfig};
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    /// A size beyond what both sockets hold.
    const BODY_BYTES: usize = 16 << 20;

    fn configs() -> (ServerConfig, ClientConfig) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone());
        let client = ClientConfig::builder_with_provider(provider);
        (
            server
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![made.cert.der().clone()], key)
                .unwrap(),
            client
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth(),
        )
    }

    /// A client that is refused by its head alone sends its body to the end, as many do, and reads the answer then.
    #[tokio::test(flavor = "multi_thread")]
    async fn refused_client_that_still_sends_gets_its_answer() {
        let (server, client) = configs();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let runtime = Runtime::real();
        let of_server = runtime.clone();
        let serving = async move {
            let (stream, _) = listener.accept().await.unwrap();
            let stream = TlsAcceptor::from(Arc::new(server)).accept(stream).await.unwrap();
            serve(stream, of_server, |_| async move {
                super::super::response::text(StatusCode::UNAUTHORIZED, "Unauthorized")
            })
            .await;
        };
        let serving = runtime.spawn("server", serving);
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(client))
            .connect(name, stream)
            .await
            .unwrap();
        let head = format!(
            "POST /exec/a/b/c?command=id HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {BODY_BYTES}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let chunk = vec![b'x'; 64 << 10];
        for _ in 0..BODY_BYTES / chunk.len() {
            stream.write_all(&chunk).await.expect("the server reads on");
        }
        stream.flush().await.unwrap();
        let mut answer = Vec::new();
        // The other side may close without taking leave of TLS.
        drop(stream.read_to_end(&mut answer).await);
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.starts_with("HTTP/1.1 401 Unauthorized\r\n") && answer.ends_with("\r\n\r\nUnauthorized"),
            "{answer}"
        );
        drop(stream);
        drop(serving.await);
    }
}
