//! Certificates of an operator's authority, over real TLS: the choice among them, renewal, and files that are refused.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_auth::pki::LOOPBACK_CLIENT_NAME;
use apiserver_server::{Server, ServerConfig};
use apiserver_storage::{LogStorage, Storage};
use common::{Cluster, config, start_with};
use machinery_runtime::Runtime;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ED25519, SignatureAlgorithm,
};
use rustls::pki_types::{CertificateDer, ServerName};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A root, and an intermediate authority that signs.
struct Operator {
    root: CertificateDer<'static>,
    intermediate_pem: String,
    intermediate: Issuer<'static, KeyPair>,
}

/// A leaf with its chain, and its key.
struct Leaf {
    der: CertificateDer<'static>,
    chain: String,
    key: String,
}

fn authority(name: &str) -> (CertificateParams, KeyPair) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params, KeyPair::generate().unwrap())
}

impl Operator {
    fn new() -> Self {
        let (root, root_key) = authority("operator");
        let certificate = root.self_signed(&root_key).unwrap();
        let root = Issuer::new(root, root_key);
        let (intermediate, key) = authority("intermediate");
        Self {
            root: certificate.der().clone(),
            intermediate_pem: intermediate.signed_by(&key, &root).unwrap().pem(),
            intermediate: Issuer::new(intermediate, key),
        }
    }

    fn leaf(&self, names: &[&str], algorithm: &'static SignatureAlgorithm) -> Leaf {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate_for(algorithm).unwrap();
        let params = CertificateParams::new(names).unwrap();
        let made = params.signed_by(&key, &self.intermediate).unwrap();
        Leaf {
            der: made.der().clone(),
            chain: format!("{}{}", made.pem(), self.intermediate_pem),
            key: key.serialize_pem(),
        }
    }
}

/// Files of a leaf in a folder.
fn write(folder: &tempfile::TempDir, name: &str, leaf: &Leaf) -> (PathBuf, PathBuf) {
    let path = |end: &str| folder.path().join(format!("{name}.{end}"));
    std::fs::write(path("crt"), &leaf.chain).unwrap();
    std::fs::write(path("key"), &leaf.key).unwrap();
    (path("crt"), path("key"))
}

/// The leaf that the server shows to a client with this authority and this name, once the server has answered a request.
async fn shown(
    cluster: &Cluster,
    root: &CertificateDer<'static>,
    name: &str,
) -> std::io::Result<CertificateDer<'static>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(cluster.address).await.unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await?;
    let request = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(b"\r\n\r\nok"));
    Ok(stream.get_ref().1.peer_certificates().unwrap()[0].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn serving_certificate_of_an_operator_is_served_and_renewed() {
    let (operator, folder) = (Operator::new(), tempfile::tempdir().unwrap());
    let names = ["api.example.com", "127.0.0.1"];
    let first = operator.leaf(&names, &PKCS_ED25519);
    let (certificate, key) = write(&folder, "api", &first);
    let cluster = start_with(ServerConfig {
        tls_cert_file: Some(certificate.clone()),
        tls_private_key_file: Some(key.clone()),
        file_reload_interval: Duration::from_millis(10),
        ..config()
    })
    .await;
    for name in names {
        assert_eq!(
            shown(&cluster, &operator.root, name).await.unwrap(),
            first.der,
            "{name}"
        );
    }
    // Clients that trust the cluster's own authority find its certificate by the name that their kubeconfigs have, and by names
    // that the operator's has not.
    let own = cluster.server.pki().cluster.certificate().clone();
    for name in [LOOPBACK_CLIENT_NAME, "kubernetes.default.svc"] {
        let shown = shown(&cluster, &own, name).await.unwrap();
        assert_eq!(&shown, &cluster.server.pki().serving.chain()[0], "{name}");
    }
    shown(&cluster, &own, "127.0.0.1").await.unwrap_err();

    // The certificate is renewed a moment before its key: in between, and with nonsense, the one before stays.
    let second = operator.leaf(&names, &rcgen::PKCS_ECDSA_P384_SHA384);
    std::fs::write(&certificate, "nonsense").unwrap();
    assert_eq!(
        shown(&cluster, &operator.root, names[0]).await.unwrap(),
        first.der
    );
    std::fs::write(&certificate, &second.chain).unwrap();
    assert_eq!(
        shown(&cluster, &operator.root, names[0]).await.unwrap(),
        first.der
    );
    std::fs::write(&key, &second.key).unwrap();
    while shown(&cluster, &operator.root, names[0]).await.unwrap() != second.der {
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn serving_certificate_goes_by_the_name_that_the_client_asks_for() {
    let (operator, folder) = (Operator::new(), tempfile::tempdir().unwrap());
    let p256 = &rcgen::PKCS_ECDSA_P256_SHA256;
    let listed = operator.leaf(&["api.example.com", "127.0.0.1"], p256);
    let wild = operator.leaf(&["*.example.com"], p256);
    let pair = |name: &str, leaf: &Leaf, names: &str| {
        let (certificate, key) = write(&folder, name, leaf);
        format!("{},{}{names}", certificate.display(), key.display())
            .parse()
            .unwrap()
    };
    let wild_files = pair("wild", &wild, "");
    let cluster = start_with(ServerConfig {
        tls_sni_cert_keys: vec![wild_files, pair("listed", &listed, ":api.example.com,127.0.0.1")],
        file_reload_interval: Duration::from_millis(10),
        ..config()
    })
    .await;
    let root = &operator.root;
    assert_eq!(
        shown(&cluster, root, "api.example.com").await.unwrap(),
        listed.der
    );
    assert_eq!(shown(&cluster, root, "web.example.com").await.unwrap(), wild.der);
    // A client that goes by an address sends no name: the address it reached decides, where it is listed.
    assert_eq!(shown(&cluster, root, "127.0.0.1").await.unwrap(), listed.der);
    // Every other client is served as before.
    let own = cluster.server.pki().cluster.certificate().clone();
    shown(&cluster, &own, LOOPBACK_CLIENT_NAME).await.unwrap();
    shown(&cluster, &own, "kubernetes").await.unwrap();
    shown(&cluster, root, "kubernetes").await.unwrap_err();
    // Each pair is renewed on its own.
    let renewed = operator.leaf(&["*.example.com"], p256);
    write(&folder, "wild", &renewed);
    while shown(&cluster, root, "web.example.com").await.unwrap() != renewed.der {
        cluster.runtime.sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(
        shown(&cluster, root, "api.example.com").await.unwrap(),
        listed.der
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn serving_certificate_that_cannot_be_used_ends_the_start() {
    let (operator, folder) = (Operator::new(), tempfile::tempdir().unwrap());
    let leaf = operator.leaf(&["api.example.com"], &PKCS_ED25519);
    let (certificate, key) = write(&folder, "api", &leaf);
    let other = operator.leaf(&["api.example.com"], &PKCS_ED25519);
    let (_, other_key) = write(&folder, "other", &other);
    let (empty, missing) = (folder.path().join("empty"), folder.path().join("missing"));
    std::fs::write(&empty, "").unwrap();
    let refusal = async |certificate: Option<&PathBuf>, key: Option<&PathBuf>| {
        let runtime = Runtime::real();
        let storage: Arc<dyn Storage> = Arc::new(LogStorage::memory(&runtime).await.unwrap());
        let config = ServerConfig {
            tls_cert_file: certificate.cloned(),
            tls_private_key_file: key.cloned(),
            ..config()
        };
        let error = Server::builder(storage)
            .config(config)
            .start(&runtime)
            .await
            .unwrap_err();
        let cause = std::error::Error::source(&error);
        format!("{error}: {}", cause.map(ToString::to_string).unwrap_or_default())
    };
    let alone = "--tls-cert-file and --tls-private-key-file go together: missing filename for serving cert: ";
    assert_eq!(refusal(Some(&certificate), None).await, alone);
    assert_eq!(refusal(None, Some(&key)).await, alone);
    assert_eq!(
        refusal(Some(&certificate), Some(&other_key)).await,
        "--tls-cert-file: tls: private key does not match public key"
    );
    assert_eq!(
        refusal(Some(&certificate), Some(&empty)).await,
        format!(
            "--tls-cert-file: missing content for serving cert \"serving-cert::{}::{}\"",
            certificate.display(),
            empty.display()
        )
    );
    let found = refusal(Some(&missing), Some(&key)).await;
    assert!(
        found.starts_with(&format!("--tls-cert-file {}: No such file", missing.display())),
        "{found}"
    );
}
