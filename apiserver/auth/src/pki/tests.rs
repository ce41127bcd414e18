use super::*;
use crate::authn::{Authenticator, ClientCertificates, Credentials, Outcome, PeerCertificate};
use http::HeaderMap;
use jiff::SignedDuration;
use std::os::unix::fs::PermissionsExt;

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

fn names() -> ServingNames {
    ["localhost", "127.0.0.1", "kubernetes.default"]
        .map(str::to_owned)
        .into()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("nothing here waits"),
    }
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("knarr-pki-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn pki_existing_files_are_kept_and_private() {
    let folder = folder("kept");
    let first = Pki::open(&folder, &names(), now()).unwrap();
    let again = Pki::open(&folder, &names(), now()).unwrap();
    assert_eq!(first.cluster.certificate_pem(), again.cluster.certificate_pem());
    assert_eq!(first.serving.certificate_pem(), again.serving.certificate_pem());
    assert_eq!(
        first.service_accounts.public().id(),
        again.service_accounts.public().id()
    );
    for entry in std::fs::read_dir(&folder).unwrap() {
        assert_eq!(
            entry.unwrap().metadata().unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn key_that_cannot_be_read_is_not_replaced() {
    let folder = folder("key-unreadable");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("ca.key"), "of another kind").unwrap();
    let error = Pki::open(&folder, &names(), now()).err().unwrap();
    assert!(error.to_string().contains("ca.key"), "{error}");
    let kept = std::fs::read_to_string(folder.join("ca.key")).unwrap();
    assert_eq!(kept, "of another kind");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn key_without_its_certificate_is_kept() {
    let folder = folder("key-alone");
    let first = Pki::open(&folder, &names(), now()).unwrap();
    std::fs::remove_file(folder.join("ca.crt")).unwrap();
    let again = Pki::open(&folder, &names(), now()).unwrap();
    assert_eq!(
        first.cluster.key().public_key_raw(),
        again.cluster.key().public_key_raw()
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn certificates_are_renewed_in_time_and_for_new_names() {
    let folder = folder("renewed");
    let first = Pki::open(&folder, &names(), now()).unwrap();
    let mut more = names();
    more.insert("example.com".to_owned());
    let named = Pki::open(&folder, &more, now()).unwrap();
    assert_ne!(first.serving.certificate_pem(), named.serving.certificate_pem());
    assert_eq!(
        first.kubelet_client.certificate_pem(),
        named.kubelet_client.certificate_pem()
    );
    let later = first
        .renew_at()
        .checked_add(SignedDuration::from_hours(48))
        .unwrap();
    let renewed = Pki::open(&folder, &names(), later).unwrap();
    assert_ne!(
        first.kubelet_client.certificate_pem(),
        renewed.kubelet_client.certificate_pem()
    );
    assert_eq!(first.cluster.certificate_pem(), renewed.cluster.certificate_pem());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn kubelet_client_of_an_earlier_release_is_made_anew() {
    let folder = folder("kubelet-client");
    let first = Pki::open(&folder, &names(), now()).unwrap();
    let master = first
        .cluster
        .client(KUBELET_CLIENT, Some("system:masters"), now())
        .unwrap();
    std::fs::write(
        folder.join("apiserver-kubelet-client.crt"),
        master.certificate_pem(),
    )
    .unwrap();
    std::fs::write(folder.join("apiserver-kubelet-client.key"), master.key_pem()).unwrap();
    let again = Pki::open(&folder, &names(), now()).unwrap();
    let subject = identity::Subject {
        name: KUBELET_CLIENT.to_owned(),
        groups: Vec::new(),
    };
    for pki in [&first, &again] {
        assert_eq!(pki.kubelet_client.subject(), &subject);
    }
    let kept = Pki::open(&folder, &names(), now()).unwrap();
    assert_eq!(
        kept.kubelet_client.certificate_pem(),
        again.kubelet_client.certificate_pem()
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn client_certificate_names_a_user() {
    let (ours, theirs) = (
        Pki::generate(&names(), now()).unwrap(),
        Pki::generate(&names(), now()).unwrap(),
    );
    let authenticator = ClientCertificates::new(&[ours.cluster.certificate().clone()]).unwrap();
    let ask = |identity: &Identity, at: Timestamp| {
        let peer = PeerCertificate::new(identity.chain()).unwrap();
        let headers = HeaderMap::new();
        let credentials = Credentials {
            peer: Some(&peer),
            headers: &headers,
            path: "/api",
            client: None,
            now: at,
        };
        block_on(authenticator.authenticate(&credentials))
    };
    let admin = ours
        .cluster
        .client("kubernetes-admin", Some("system:masters"), now())
        .unwrap();
    let Outcome::User(found) = ask(&admin, now()) else {
        panic!("the certificate is good")
    };
    assert_eq!(found.user.name, "kubernetes-admin");
    assert_eq!(found.user.groups, ["system:masters", "system:authenticated"]);
    assert!(found.user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("X509SHA256="));
    let later = now().checked_add(SignedDuration::from_hours(24 * 400)).unwrap();
    assert!(matches!(ask(&admin, later), Outcome::Refused(_)));
    let forged = theirs
        .cluster
        .client("kubernetes-admin", Some("system:masters"), now())
        .unwrap();
    assert!(matches!(ask(&forged, now()), Outcome::Refused(_)));
    // A serving certificate is not for clients.
    assert!(matches!(ask(&ours.serving, now()), Outcome::Refused(_)));
}
