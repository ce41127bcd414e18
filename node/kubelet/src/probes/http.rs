//! One GET, with a bound on what is read. Certificates are not verified: a probe knows no authority
//! that would vouch for a pod's address.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use machinery_meta::dial::dial_error;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Upstream reads this much of an answer.
const ANSWER_BYTES_MAX: usize = 10 << 10;

/// What to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// Over TLS.
    pub tls: bool,
    /// Address to connect to.
    pub host: String,
    /// Port to connect to.
    pub port: u16,
    /// Path and query.
    pub path: String,
    /// Headers beside our own.
    pub headers: Vec<(String, String)>,
    /// Who we say we are.
    pub user_agent: String,
}

impl HttpRequest {
    /// As upstream prints it in messages.
    pub fn url(&self) -> String {
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

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    /// The status code.
    pub status: u16,
    /// The beginning of the body.
    pub body: String,
}

/// Asks once. Errors are in upstream's words where upstream has words.
pub async fn get(request: HttpRequest) -> Result<HttpAnswer, String> {
    let url = request.url();
    let explain = |error: &dyn std::fmt::Display| format!("Get \"{url}\": {error}");
    let address = (request.host.as_str(), request.port);
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| explain(&dial_error(&request.host, request.port, &error)))?;
    if request.tls {
        let name = ServerName::try_from(request.host.clone()).map_err(|error| explain(&error))?;
        let connector =
            tokio_rustls::TlsConnector::from(Arc::new(trusting_config().map_err(|error| explain(&error))?));
        let stream = connector
            .connect(name, stream)
            .await
            .map_err(|error| explain(&error))?;
        exchange(stream, &request).await.map_err(|error| explain(&error))
    } else {
        exchange(stream, &request).await.map_err(|error| explain(&error))
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: &HttpRequest,
) -> Result<HttpAnswer, hyper::Error> {
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
        return Ok(HttpAnswer {
            status: 0,
            body: "the request could not be built".into(),
        });
    };
    // The connection's own half runs beside the exchange and ends with it.
    let talk = async {
        let answer = sender.send_request(message).await?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body
            .map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned())
            .unwrap_or_default();
        Ok(HttpAnswer { status, body })
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
    let verifier = Arc::new(Trusting {
        provider: provider.clone(),
    });
    let builder =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

#[derive(Debug)]
struct Trusting {
    provider: Arc<rustls::crypto::CryptoProvider>,
}

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
