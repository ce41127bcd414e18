//! Ours answers every differential case as the real kube-apiserver did when it was recorded (`conformance/recordings`).

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster::Cluster;
use conformance::differential::{Suite, known};

/// The bearer token of the one user of the static token file, a member of `system:masters`.
const TOKEN: &str = "admin-of-a-cluster-on-loopback";

/// Over TLS, as a client comes: some cases send credentials of their own, others none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_answers_every_case_as_recorded() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens.csv");
    std::fs::write(&tokens, format!("{TOKEN},admin,admin,\"system:masters\"\n")).expect("a file");
    let cluster = Cluster::builder()
        .bind_address(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .server(|config| {
            config.token_auth_file = Some(tokens);
            config.allow_unenforced = true;
            // Off by default upstream.
            config.disable_admission_plugins = vec!["DenyServiceExternalIPs".to_owned()];
        })
        .start()
        .await
        .expect("the cluster starts");
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, kubeconfig_of(&cluster)).expect("a file");

    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let suite = Suite::read(root, &[]).expect("the cases");
    let known = known::read(&root.join("known_differences.tsv")).expect("the known differences");
    let ours = suite.server(&kubeconfig).await.expect("a client");
    let report = suite.replay(&ours, known, |_| {}).await.expect("the recordings");
    // Not by `println!`, which is shown for failing tests only.
    let _ = writeln!(std::io::stderr(), "{}", report.summary());
    assert!(report.is_good(), "\n{report}");
}

fn kubeconfig_of(cluster: &Cluster) -> String {
    let server = cluster.server();
    let address = server.local_address().expect("the cluster listens");
    let authority = STANDARD.encode(server.pki().cluster.certificate_pem());
    format!(
        "{{apiVersion: v1, kind: Config, current-context: c, \
         clusters: [{{name: c, cluster: {{server: 'https://{address}', certificate-authority-data: {authority}}}}}], \
         users: [{{name: u, user: {{token: {TOKEN}}}}}], contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}\n"
    )
}
