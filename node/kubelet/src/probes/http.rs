//! One GET, with a bound on what is read. A probe does not verify certificates: no authority that it knows would sign one
//! for a pod's address.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use machinery_meta::dial::dial_error;
use machinery_x509::ServerCheck;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Upstream reads this much of an answer.
const ANSWER_BYTES_MAX: usize = 10 << 10;
/// Requests of one question, the first included.
const REQUESTS_MAX: usize = 10;

/// Request of a probe or hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpRequest {
    /// Over TLS.
    pub(crate) tls: bool,
    /// Address to connect to.
    pub(crate) host: String,
    /// Port to connect to.
    pub(crate) port: u16,
    /// Path and query.
    pub(crate) path: String,
    /// Headers beside our own.
    pub(crate) headers: Vec<(String, String)>,
    /// Value of `User-Agent`.
    pub(crate) user_agent: String,
}

impl HttpRequest {
    /// The URL as upstream prints it in messages.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let slash = if self.path.starts_with('/') { "" } else { "/" };
        format!(
            "{scheme}://{}:{}{slash}{}",
            bracketed(&self.host),
            self.port,
            self.path
        )
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_string()
    }
}

/// Answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpAnswer {
    /// The status code.
    pub(crate) status: u16,
    /// Target of a redirect.
    pub(crate) location: Option<String>,
    /// The beginning of the body.
    pub(crate) body: String,
}

/// Answer as it came.
#[derive(Debug)]
pub(crate) struct RawAnswer {
    /// The status code.
    pub(crate) status: u16,
    /// Target of a redirect.
    pub(crate) location: Option<String>,
    /// The body, or why it was not read to its end.
    pub(crate) body: Result<Bytes, String>,
}

impl RawAnswer {
    /// Reports whether the answer leads elsewhere.
    pub(crate) fn is_redirect(&self) -> bool {
        is_redirect(self.status)
    }
}

fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Sends the request, and follows redirects to the same host; a redirect to another host is the result.
/// Errors are in upstream's words where upstream has words.
pub(crate) async fn get(request: HttpRequest) -> Result<HttpAnswer, String> {
    let mut request = request;
    for _ in 0..REQUESTS_MAX {
        let answer = get_once(&request).await?;
        match redirected(&request, &answer) {
            Some(next) if next.host == request.host => request = next,
            _ => return Ok(answer),
        }
    }
    Err(format!(
        "Get \"{}\": stopped after {REQUESTS_MAX} redirects",
        request.url()
    ))
}

/// The request that an answer requests instead.
fn redirected(request: &HttpRequest, answer: &HttpAnswer) -> Option<HttpRequest> {
    match is_redirect(answer.status) {
        true => moved(request, answer.location.as_deref()?),
        false => None,
    }
}

/// The request at another place, which is relative to the first.
pub(crate) fn moved(request: &HttpRequest, location: &str) -> Option<HttpRequest> {
    if location.is_empty() {
        return None;
    }
    let location = location.split('#').next().unwrap_or_default();
    let mut next = request.clone();
    let scheme = if request.tls { "https:" } else { "http:" };
    let absolute = match location.starts_with("//") {
        true => format!("{scheme}{location}"),
        false => location.to_owned(),
    };
    if absolute.starts_with("http://") || absolute.starts_with("https://") {
        let url: http::Uri = absolute.parse().ok()?;
        next.tls = url.scheme_str() == Some("https");
        next.host = url.host()?.trim_matches(['[', ']']).to_owned();
        next.port = url.port_u16().unwrap_or(if next.tls { 443 } else { 80 });
        next.path = url.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        // A header that named the host named another one.
        next.headers
            .retain(|(name, _)| !name.eq_ignore_ascii_case("host"));
        return Some(next);
    }
    let path = request.path.split('?').next().unwrap_or_default();
    next.path = match location.as_bytes()[0] {
        b'/' => location.to_owned(),
        b'?' => format!("{path}{location}"),
        _ => {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{folder}/{location}")
        }
    };
    Some(next)
}

async fn get_once(request: &HttpRequest) -> Result<HttpAnswer, String> {
    let answer = get_raw(request, trusting_config, ANSWER_BYTES_MAX).await?;
    let body = answer.body.unwrap_or_default();
    Ok(HttpAnswer {
        status: answer.status,
        location: answer.location,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// Sends one request and reads so much of the answer's body; a larger one is an error of the body.
pub(crate) async fn get_raw(
    request: &HttpRequest,
    trust: impl Fn() -> Result<rustls::ClientConfig, rustls::Error>,
    body_bytes_max: usize,
) -> Result<RawAnswer, String> {
    let url = request.url();
    let explain = |error: &dyn std::fmt::Display| format!("Get \"{url}\": {error}");
    let address = (request.host.as_str(), request.port);
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| explain(&dial_error(&request.host, request.port, &error)))?;
    if request.tls {
        let name = ServerName::try_from(request.host.clone()).map_err(|error| explain(&error))?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(trust().map_err(|error| explain(&error))?));
        let stream = connector
            .connect(name, stream)
            .await
            .map_err(|error| explain(&error))?;
        exchange(stream, request, body_bytes_max)
            .await
            .map_err(|error| explain(&error))
    } else {
        exchange(stream, request, body_bytes_max)
            .await
            .map_err(|error| explain(&error))
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: &HttpRequest,
    body_bytes_max: usize,
) -> Result<RawAnswer, hyper::Error> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let target = request.path.starts_with('/').then_some(request.path.clone());
    let mut builder = http::Request::get(target.unwrap_or_else(|| format!("/{}", request.path)));
    let named = |name: &str| {
        request
            .headers
            .iter()
            .any(|(given, _)| given.eq_ignore_ascii_case(name))
    };
    if !named("host") {
        builder = builder.header("host", format!("{}:{}", bracketed(&request.host), request.port));
    }
    if !named("user-agent") {
        builder = builder.header("user-agent", &request.user_agent);
    }
    if !named("accept") {
        builder = builder.header("accept", "*/*");
    }
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    let message = builder.header("connection", "close").body(Empty::<Bytes>::new());
    let Ok(message) = message else {
        return Ok(RawAnswer {
            status: 0,
            location: None,
            body: Ok("the request could not be built".into()),
        });
    };
    // The connection's own half runs beside the exchange and ends with it.
    let talk = async {
        let answer = sender.send_request(message).await?;
        let status = answer.status().as_u16();
        let location = answer.headers().get(http::header::LOCATION);
        let location = location.and_then(|location| Some(location.to_str().ok()?.to_owned()));
        let body = Limited::new(answer.into_body(), body_bytes_max).collect().await;
        let body = body
            .map(http_body_util::Collected::to_bytes)
            .map_err(|error| error.to_string());
        Ok(RawAnswer {
            status,
            location,
            body,
        })
    };
    tokio::pin!(talk, connection);
    tokio::select! {
        biased;
        answer = &mut talk => answer,
        outcome = &mut connection => match outcome {
            Err(error) => Err(error),
            // The server has closed after its answer, which is still to be read.
            Ok(()) => talk.await,
        },
    }
}

fn trusting_config() -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(ServerCheck::any_certificate(
        provider.signature_verification_algorithms,
    ));
    let builder =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    #[track_caller]
    fn check(path: &str, location: &str, url: Option<&str>) {
        let request = HttpRequest {
            tls: false,
            host: "10.0.0.1".into(),
            port: 8080,
            path: path.into(),
            headers: Vec::new(),
            user_agent: String::new(),
        };
        let answer = HttpAnswer {
            status: 302,
            location: Some(location.into()),
            body: String::new(),
        };
        let next = redirected(&request, &answer).map(|next| next.url());
        assert_eq!(next.as_deref(), url, "{path} to {location}");
    }

    #[test]
    fn http_probe_redirect_is_resolved_against_its_page() {
        check("/a/b?c", "/d?e", Some("http://10.0.0.1:8080/d?e"));
        check("/a/b?c", "d", Some("http://10.0.0.1:8080/a/d"));
        check("/a/b?c", "?e", Some("http://10.0.0.1:8080/a/b?e"));
        check("/a", "https://10.0.0.1/x#y", Some("https://10.0.0.1:443/x"));
        check("/a", "//10.0.0.1:81", Some("http://10.0.0.1:81/"));
        check("/a", "http://[fd00::1]:8/x", Some("http://[fd00::1]:8/x"));
        check("/a", "", None);
    }

    const ANSWERS: [(&str, &str); 6] = [
        ("/well", "200 OK\r\n"),
        ("/to/broken", "500 Broken\r\n"),
        ("/to/well", "302 Found\r\nlocation: /well\r\n"),
        ("/to/ill", "301 Moved\r\nlocation: broken\r\n"),
        ("/away", "302 Found\r\nlocation: http://192.0.2.1/\r\n"),
        ("/round", "307 Again\r\nlocation: /round\r\n"),
    ];

    async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).await.unwrap() > 0 {}
        let path = head.split(' ').nth(1).unwrap();
        let found = ANSWERS.iter().find(|(known, _)| *known == path);
        let answer = found.map_or("404 Missing\r\n", |(_, answer)| answer);
        let text = format!("HTTP/1.1 {answer}content-length: 0\r\nconnection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    }

    fn acceptor() -> tokio_rustls::TlsAcceptor {
        let own = rcgen::generate_simple_self_signed(vec!["somebody".into()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key);
        Arc::new(config.unwrap()).into()
    }

    /// Answers so many connections, with a self-signed certificate or in the clear.
    async fn serve(listener: TcpListener, tls: bool, times: usize) {
        for _ in 0..times {
            let (stream, _) = listener.accept().await.unwrap();
            match tls {
                true => answer(acceptor().accept(stream).await.unwrap()).await,
                false => answer(stream).await,
            }
        }
    }

    #[tokio::test]
    async fn redirects_are_followed_on_the_same_host() {
        let stopped = Err("stopped after 10 redirects");
        let cases = [
            ("/well", 1, Ok(200)),
            ("/to/well", 2, Ok(200)),
            ("/to/ill", 2, Ok(500)),
            ("/away", 1, Ok(302)),
            ("/round", REQUESTS_MAX, stopped),
        ];
        for (tls, (path, times, expected)) in cases.into_iter().flat_map(|case| [(false, case), (true, case)])
        {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let request = HttpRequest {
                tls,
                host: "127.0.0.1".into(),
                port: listener.local_addr().unwrap().port(),
                path: path.into(),
                headers: Vec::new(),
                user_agent: "test".into(),
            };
            let ((), answer) = tokio::join!(serve(listener, tls, times), get(request));
            match expected {
                Ok(status) => assert_eq!(answer.unwrap().status, status, "{path}"),
                Err(words) => assert!(answer.unwrap_err().ends_with(words), "{path}"),
            }
        }
    }
}
