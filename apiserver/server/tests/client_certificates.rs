//! Client certificates over TLS 1.2 and 1.3, and the answers of the real kube-apiserver to them.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_server::{RequestHeaderConfig, ServerConfig};
use common::{Cluster, config, start_with};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose as Usage, IsCa, KeyPair, KeyUsagePurpose, PublicKeyData as _, SigningKey as _,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const AUTHORITY: &str = "test-ca";
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// 1.3.6.1.4.1.57683.2.
const USER_ID: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2];

/// The answer to a request that its user has no right to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    User,
    Anonymous,
    Unauthorized,
}

use Answer::{Anonymous, Unauthorized, User};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = named(AUTHORITY);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if !name.is_empty() {
        params.distinguished_name.push(DnType::CommonName, name);
    }
    params
}

fn client() -> CertificateParams {
    let mut params = named("anna");
    params.extended_key_usages = vec![Usage::ClientAuth];
    params
}

/// A certificate and its key.
struct Client {
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

fn signed(by: &Authority, params: &CertificateParams) -> Client {
    let key = KeyPair::generate().unwrap();
    Client {
        certificate: params.signed_by(&key, by).unwrap().der().clone(),
        key,
    }
}

fn changed(by: &Authority, change: impl FnOnce(&mut CertificateParams)) -> Client {
    let mut params = client();
    change(&mut params);
    signed(by, &params)
}

fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    let head = match length {
        [0, short @ 0..0x80] => vec![tag, short],
        [0, byte] => vec![tag, 0x81, byte],
        [high, low] => vec![tag, 0x82, high, low],
    };
    [head, content].concat()
}

fn name(parts: &[(&[u8], &str)]) -> Vec<u8> {
    let attribute = |(kind, value): &(&[u8], &str)| {
        let pair = [element(6, &[kind]), element(0x0c, &[value.as_bytes()])].concat();
        element(0x31, &[&element(0x30, &[&pair])])
    };
    element(0x30, &[&parts.iter().flat_map(attribute).collect::<Vec<u8>>()])
}

/// X.509 version 1 with this subject, as `openssl x509 -req` makes it without extensions. `rcgen` makes none, and gives a subject
/// one value of a kind.
fn version_one(by: &Authority, subject: &[(&[u8], &str)]) -> Client {
    let key = KeyPair::generate().unwrap();
    // `ecdsa-with-SHA256`.
    let algorithm = element(0x30, &[&[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]]);
    let moment = |text: &str| element(0x17, &[text.as_bytes()]);
    let body = element(
        0x30,
        &[
            &element(2, &[&[7]]),
            &algorithm,
            &name(&[(COMMON_NAME, AUTHORITY)]),
            &element(0x30, &[&moment("200101000000Z"), &moment("400101000000Z")]),
            &name(subject),
            &key.subject_public_key_info(),
        ],
    );
    let signature = by.key().sign(&body).unwrap();
    let whole = element(0x30, &[&body, &algorithm, &element(3, &[&[0], &signature])]);
    Client {
        certificate: whole.into(),
        key,
    }
}

/// The real kube-apiserver 1.37.1 with `--client-ca-file` answers so, over either version of TLS.
fn cases(by: &Authority) -> Vec<(&'static str, Client, Answer)> {
    let unknown = |is_critical: bool| {
        let mut own = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 57_683, 99], vec![5, 0]);
        own.set_criticality(is_critical);
        changed(by, |own_params| own_params.custom_extensions = vec![own])
    };
    let usages = |usages: &[Usage]| changed(by, |own| own.extended_key_usages = usages.to_vec());
    let nobody = changed(by, |own| own.distinguished_name = DistinguishedName::new());
    let ended = changed(by, |own| own.not_after = rcgen::date_time_ymd(2020, 1, 1));
    vec![
        ("usual", signed(by, &client()), User),
        ("usage any", usages(&[Usage::Any]), User),
        ("no usage", usages(&[]), User),
        ("usage of servers", usages(&[Usage::ServerAuth]), Unauthorized),
        (
            "an authority itself",
            changed(by, |own| own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
            User,
        ),
        ("no common name", nobody, Anonymous),
        ("unknown critical extension", unknown(true), Unauthorized),
        ("unknown extension", unknown(false), User),
        ("version 1", version_one(by, &[(COMMON_NAME, "anna")]), User),
        (
            "one UID",
            version_one(by, &[(COMMON_NAME, "anna"), (USER_ID, "u-1")]),
            User,
        ),
        (
            "several UIDs",
            version_one(by, &[(COMMON_NAME, "anna"), (USER_ID, "u-1"), (USER_ID, "u-2")]),
            Unauthorized,
        ),
        (
            "empty UID",
            version_one(by, &[(COMMON_NAME, "anna"), (USER_ID, "")]),
            Unauthorized,
        ),
        ("ended", ended, Unauthorized),
        (
            "of another authority",
            signed(&authority(), &client()),
            Unauthorized,
        ),
    ]
}

/// The answer to a list of namespaces.
async fn ask(
    cluster: &Cluster,
    client: &Client,
    version: &'static SupportedProtocolVersion,
    headers: &str,
) -> String {
    ask_for("/api/v1/namespaces", cluster, client, version, headers).await
}

/// The answer to a request over a connection of its own.
async fn ask_for(
    path: &str,
    cluster: &Cluster,
    client: &Client,
    version: &'static SupportedProtocolVersion,
    headers: &str,
) -> String {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(client.key.serialize_der()).unwrap();
    let key = provider.key_provider.load_private_key(key).unwrap();
    let mut roots = RootCertStore::empty();
    roots
        .add(cluster.server.pki().cluster.certificate().clone())
        .unwrap();
    let own = CertifiedKey::new(vec![client.certificate.clone()], key);
    let tls = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
    let stream = TcpStream::connect(cluster.address).await.unwrap();
    let server = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = TlsConnector::from(Arc::new(tls))
        .connect(server, stream)
        .await
        .unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // The other side may close without taking leave of TLS.
    drop(stream.read_to_end(&mut answer).await);
    String::from_utf8(answer).unwrap()
}

fn read(answer: &str) -> Answer {
    let status = answer.split(' ').nth(1);
    match status {
        Some("401") => Unauthorized,
        Some("403") if answer.contains("User \\\"anna\\\" cannot list") => User,
        Some("403") if answer.contains("User \\\"system:anonymous\\\" cannot list") => Anonymous,
        _ => panic!("{answer:?}"),
    }
}

fn trusting(folder: &Path, by: &Authority) -> ServerConfig {
    let path = folder.join("ca.crt");
    std::fs::write(&path, by.pem()).unwrap();
    ServerConfig {
        client_ca_file: Some(path),
        ..config()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificates_are_answered_as_upstreams() {
    let (folder, by) = (tempfile::tempdir().unwrap(), authority());
    let cluster = start_with(trusting(folder.path(), &by)).await;
    let mut wrong = Vec::new();
    for (case, client, expected) in cases(&by) {
        for version in [&TLS12, &TLS13] {
            let answer = read(&ask(&cluster, &client, version, "").await);
            if answer != expected {
                wrong.push((case, version.version, answer, expected));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let metrics = cluster.admin().get("/metrics").await.is(200).body;
    let lifetimes = "apiserver_client_certificate_expiration_seconds_bucket{le=\"0\"} 2\n";
    assert!(
        metrics.contains(lifetimes),
        "one certificate has ended, and came twice"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn client_with_a_bad_certificate_is_known_by_its_token() {
    let (folder, by) = (tempfile::tempdir().unwrap(), authority());
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "secret,anna,1\n").unwrap();
    let cluster = start_with(ServerConfig {
        token_auth_file: Some(tokens),
        ..trusting(folder.path(), &by)
    })
    .await;
    let stranger = signed(&authority(), &client());
    for (token, expected) in [("secret", User), ("wrong", Unauthorized)] {
        let header = format!("authorization: Bearer {token}\r\n");
        assert_eq!(read(&ask(&cluster, &stranger, &TLS13, &header).await), expected);
    }
}

/// Discovery is for `system:authenticated`, in which upstream puts no user of that name.
#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_that_names_the_anonymous_user_is_not_authenticated() {
    let (folder, by) = (tempfile::tempdir().unwrap(), authority());
    let cluster = start_with(trusting(folder.path(), &by)).await;
    for (name, expected) in [("anna", "200"), ("system:anonymous", "403")] {
        let client = signed(&by, &named(name));
        let answer = ask_for("/api", &cluster, &client, &TLS13, "").await;
        assert_eq!(answer.split(' ').nth(1), Some(expected), "{answer}");
    }
}

/// Upstream's front proxy verifies every certificate, and what it refuses is never anonymous.
#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_without_a_name_is_unauthorized_beside_front_proxies() {
    let (folder, by) = (tempfile::tempdir().unwrap(), authority());
    let proxies = folder.path().join("proxies.crt");
    std::fs::write(&proxies, authority().pem()).unwrap();
    let cluster = start_with(ServerConfig {
        request_header: RequestHeaderConfig {
            client_ca_file: Some(proxies),
            username_headers: vec!["X-Remote-User".to_owned()],
            ..RequestHeaderConfig::default()
        },
        ..trusting(folder.path(), &by)
    })
    .await;
    for (case, client, expected) in cases(&by) {
        let expected = match expected {
            Anonymous => Unauthorized,
            other => other,
        };
        assert_eq!(
            read(&ask(&cluster, &client, &TLS13, "").await),
            expected,
            "{case}"
        );
    }
}
