//! One request of a URL of static pods, as Go's client makes it: redirects are followed to any host, without credentials where
//! the host is another. Servers are verified by the authorities of the machine.
//!
//! Never: an answer beyond [`BODY_BYTES_MAX`], more than [`REQUESTS_MAX`] requests, or more time than [`TIMEOUT`] for all of them.

use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use machinery_runtime::Runtime;
use machinery_x509::SYSTEM_ROOT_FILES;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::probes::http::{HttpRequest, get_raw, moved};

/// Upstream's bound of an answer.
pub(super) const BODY_BYTES_MAX: usize = 10 << 20;
/// Requests of one look, the first included, as Go's client bounds them.
const REQUESTS_MAX: usize = 10;
/// Time of a look, as upstream's client has it.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Headers that Go's client does not send to another host than the first one.
const CREDENTIALS: [&str; 6] = [
    "authorization",
    "www-authenticate",
    "cookie",
    "cookie2",
    "proxy-authorization",
    "proxy-authenticate",
];

/// A URL with its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    tls: bool,
    host: String,
    port: u16,
    path: String,
    /// Value of `Authorization`, where the URL names a user.
    authorization: Option<String>,
}

impl Target {
    /// # Errors
    /// The text is no URL of HTTP.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let uri: http::Uri = url.parse().map_err(|error| format!("{error}"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            other => {
                return Err(format!(
                    "unsupported protocol scheme {:?}",
                    other.unwrap_or_default()
                ));
            }
        };
        let authority = uri.authority().ok_or("no Host in request URL")?;
        let user = authority.as_str().rsplit_once('@').map(|(user, _)| user);
        Ok(Self {
            tls,
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            authorization: user.map(basic),
        })
    }

    fn request(&self, headers: &[(String, String)]) -> HttpRequest {
        let mut headers: Vec<(String, String)> = headers
            .iter()
            // Go takes the host of the URL alone.
            .filter(|(name, _)| !name.eq_ignore_ascii_case("host"))
            .cloned()
            .collect();
        let is_given = |(name, _): &(String, String)| name.eq_ignore_ascii_case("authorization");
        if let Some(own) = &self.authorization
            && !headers.iter().any(is_given)
        {
            headers.push(("authorization".to_owned(), own.clone()));
        }
        let mut request = HttpRequest {
            tls: self.tls,
            host: self.host.clone(),
            port: self.port,
            path: self.path.clone(),
            headers,
            user_agent: format!("kubelet/{}", machinery_meta::version::GIT_VERSION),
        };
        name_host(&mut request);
        request
    }
}

/// Credentials of a user and a password as a URL has them.
fn basic(user: &str) -> String {
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let mut text = decoded(name);
    text.push(b':');
    text.extend(decoded(password));
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
}

/// A part of a URL without its escapes.
fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escaped = (*byte == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(value) => {
                out.push(value);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}

/// Names the host as the URL does: without the scheme's default port.
fn name_host(request: &mut HttpRequest) {
    let host = match request.host.contains(':') {
        true => format!("[{}]", request.host),
        false => request.host.clone(),
    };
    let usual = if request.tls { 443 } else { 80 };
    let host = match request.port == usual {
        true => host,
        false => format!("{host}:{}", request.port),
    };
    request.headers.push(("host".to_owned(), host));
}

/// Reads a URL.
///
/// # Errors
/// There is no answer in time, it is too large, or its status is not 200. The text names no credentials of the URL.
pub(crate) async fn fetch(
    runtime: &Runtime,
    target: &Target,
    headers: &[(String, String)],
) -> Result<Bytes, String> {
    let first = target.request(headers);
    let url = first.url();
    let outcome = runtime.timeout(TIMEOUT, follow(first)).await;
    outcome.unwrap_or_else(|_| {
        Err(format!(
            "Get \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        ))
    })
}

async fn follow(first: HttpRequest) -> Result<Bytes, String> {
    let origin = first.host.clone();
    let mut request = first;
    for _ in 0..REQUESTS_MAX {
        let answer = get_raw(&request, verifying_config, BODY_BYTES_MAX).await?;
        if answer.is_redirect() {
            let url = request.url();
            let missing = || {
                format!(
                    "Get \"{url}\": {} response missing Location header",
                    answer.status
                )
            };
            let location = answer.location.as_deref().ok_or_else(missing)?;
            request = redirected(&request, location, &origin)
                .ok_or_else(|| format!("Get \"{url}\": failed to parse Location header"))?;
            continue;
        }
        if answer.status != 200 {
            return Err(format!("{}: {}", request.url(), status_text(answer.status)));
        }
        return answer
            .body
            .map_err(|error| format!("reading {}: {error}", request.url()));
    }
    let url = request.url();
    Err(format!("Get \"{url}\": stopped after {REQUESTS_MAX} redirects"))
}

fn redirected(request: &HttpRequest, location: &str, origin: &str) -> Option<HttpRequest> {
    let mut next = moved(request, location)?;
    next.headers
        .retain(|(name, _)| !name.eq_ignore_ascii_case("host"));
    if !keeps_credentials(origin, &next.host) {
        next.headers
            .retain(|(name, _)| !CREDENTIALS.iter().any(|own| name.eq_ignore_ascii_case(own)));
    }
    name_host(&mut next);
    Some(next)
}

/// Reports whether a host is the first one or below it.
fn keeps_credentials(origin: &str, host: &str) -> bool {
    let (origin, host) = (origin.to_ascii_lowercase(), host.to_ascii_lowercase());
    let is_name = origin.parse::<std::net::IpAddr>().is_err();
    origin == host || (is_name && host.ends_with(&format!(".{origin}")))
}

fn status_text(status: u16) -> String {
    let known = http::StatusCode::from_u16(status).ok();
    let reason = known.and_then(|own| own.canonical_reason()).unwrap_or_default();
    format!("{status} {reason}").trim_end().to_owned()
}

/// TLS with the authorities of the machine; they are read once, as Go reads them.
fn verifying_config() -> Result<rustls::ClientConfig, rustls::Error> {
    static CONFIG: OnceLock<Result<rustls::ClientConfig, rustls::Error>> = OnceLock::new();
    CONFIG.get_or_init(|| trusting(&system_roots())).clone()
}

fn trusting(roots: &[u8]) -> Result<rustls::ClientConfig, rustls::Error> {
    let mut store = rustls::RootCertStore::empty();
    store.add_parsable_certificates(CertificateDer::pem_slice_iter(roots).filter_map(Result::ok));
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(store).with_no_client_auth())
}

fn system_roots() -> Vec<u8> {
    let mut texts = SYSTEM_ROOT_FILES
        .iter()
        .filter_map(|path| std::fs::read(path).ok());
    texts.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    fn names(request: &HttpRequest) -> Vec<&str> {
        request.headers.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn url_redirect_to_another_host_has_no_credentials() {
        let target = Target::parse("https://us%20er:pass@pods.test/a").unwrap();
        let headers = [
            ("Cookie".to_owned(), "a".to_owned()),
            ("b".to_owned(), "c".to_owned()),
        ];
        let request = target.request(&headers);
        assert_eq!(names(&request), ["Cookie", "b", "authorization", "host"]);
        assert_eq!(request.headers[2].1, "Basic dXMgZXI6cGFzcw==");
        assert_eq!(request.headers[3].1, "pods.test");
        let to = |location: &str| redirected(&request, location, "pods.test").unwrap();
        for own in ["/b", "https://PODS.test/b", "http://a.pods.test:81/"] {
            assert_eq!(names(&to(own)), ["Cookie", "b", "authorization", "host"], "{own}");
        }
        for other in ["https://otherpods.test/", "http://127.0.0.1/", "//test/"] {
            assert_eq!(names(&to(other)), ["b", "host"], "{other}");
        }
        assert_eq!(to("http://a.test:81/").headers[1].1, "a.test:81");
        assert!(!keeps_credentials("10.0.0.1", "a.10.0.0.1"));
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a server of a test, beside the runtime")]
    async fn url_over_tls_has_a_server_that_the_machine_trusts() {
        let own = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key);
        let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config.unwrap()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let mut stream = BufReader::new(stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).await.unwrap_or(0) > 0 {}
                let text = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\npods";
                stream.write_all(text).await.unwrap();
                stream.shutdown().await.unwrap();
            }
        });
        let target = Target::parse(&format!("https://localhost:{port}/")).unwrap();
        let request = target.request(&[]);
        let trusted = get_raw(&request, || trusting(own.cert.pem().as_bytes()), 10).await;
        assert_eq!(trusted.unwrap().body.unwrap(), "pods");
        get_raw(&request, || trusting(b""), 10).await.unwrap_err();
        server.abort();
    }
}
