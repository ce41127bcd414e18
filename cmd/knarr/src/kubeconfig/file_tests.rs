use super::*;
use apiserver_server::pki::{Pki, ServingNames};
use jiff::SignedDuration;

const SERVER: &str = "https://127.0.0.1:6443";
const USER: &str = "kubernetes-admin";

fn now() -> Timestamp {
    "2026-11-23T12:00:00Z".parse().unwrap()
}

fn pki() -> Pki {
    Pki::generate(&ServingNames::new(), now()).unwrap()
}

fn entries<'a>(server: &'a str, pki: &'a Pki) -> Entries<'a> {
    Entries {
        server,
        authority: &pki.cluster,
        user: USER,
        group: Some("system:masters"),
    }
}

/// Writes a kubeconfig as a server at its start does, and returns the text of the file.
fn kept(path: &Path, entries: &Entries<'_>, at: Timestamp) -> String {
    let file = KubeconfigFile::read_of(path, entries.authority).unwrap();
    let identity = file.identity(entries, at).unwrap_or_else(|| {
        let made = entries.authority.client(entries.user, entries.group, at);
        made.unwrap()
    });
    file.put(entries, &identity).unwrap();
    std::fs::read_to_string(path).unwrap()
}

fn value(text: &str) -> Value {
    let json = machinery_schema::yaml::yaml_to_json(text.as_bytes()).unwrap();
    serde_json::from_str(&json).unwrap()
}

#[test]
fn kubeconfig_with_good_credentials_is_not_changed() {
    let (folder, pki) = (tempfile::tempdir().unwrap(), pki());
    let path = folder.path().join("config");
    let first = kept(&path, &entries(SERVER, &pki), now());
    // A form of its owner's, which is not ours.
    let first = format!("# mine\n{first}");
    std::fs::write(&path, &first).unwrap();
    let month = now().checked_add(SignedDuration::from_hours(30 * 24)).unwrap();
    assert_eq!(kept(&path, &entries(SERVER, &pki), month), first);
}

#[test]
fn kubeconfig_credentials_are_renewed_in_the_last_third_of_their_life() {
    let (folder, pki) = (tempfile::tempdir().unwrap(), pki());
    let path = folder.path().join("config");
    let first = value(&kept(&path, &entries(SERVER, &pki), now()));
    let late = now().checked_add(SignedDuration::from_hours(250 * 24)).unwrap();
    let renewed = value(&kept(&path, &entries(SERVER, &pki), late));
    assert_ne!(first["users"], renewed["users"]);
    assert_eq!(first["clusters"], renewed["clusters"]);
}

#[test]
fn kubeconfig_change_of_the_address_keeps_what_its_owner_added() {
    let (folder, pki) = (tempfile::tempdir().unwrap(), pki());
    let path = folder.path().join("config");
    let mut first = value(&kept(&path, &entries(SERVER, &pki), now()));
    first["contexts"][0]["context"]["namespace"] = json!("shop");
    first["clusters"][0]["cluster"]["proxy-url"] = json!("http://proxy.test");
    let other = json!({"name": "other", "cluster": {"server": "https://other.test"}});
    first["clusters"].as_array_mut().unwrap().insert(0, other);
    first["current-context"] = json!("other");
    std::fs::write(&path, first.to_string()).unwrap();
    let moved = value(&kept(&path, &entries("https://127.0.0.1:7443", &pki), now()));
    first["clusters"][1]["cluster"]["server"] = json!("https://127.0.0.1:7443");
    assert_eq!(moved, first);
}

#[test]
fn kubeconfig_credentials_of_others_are_replaced() {
    let (folder, pki, other) = (tempfile::tempdir().unwrap(), pki(), self::pki());
    let path = folder.path().join("config");
    let entries = entries(SERVER, &pki);
    let mut file = KubeconfigFile::empty(&path);
    let mut given = |identity: &Identity| {
        file.set(&entries, identity);
        file.identity(&entries, now()).is_some()
    };
    let client = |pki: &Pki, user, group| pki.cluster.client(user, group, now()).unwrap();
    let (ours, masters) = (USER, Some("system:masters"));
    assert!(given(&client(&pki, ours, masters)));
    assert!(!given(&client(&other, ours, masters)), "another authority's");
    assert!(!given(&client(&pki, "mallory", masters)), "another user's");
    assert!(!given(&client(&pki, ours, None)), "without the group");
    let (one, two) = (client(&pki, ours, masters), client(&pki, ours, masters));
    let mixed = Identity::from_pem(one.certificate_pem().to_owned(), two.key_pem().to_owned());
    assert!(!given(&mixed.unwrap()), "another key's");
}

#[test]
fn kubeconfig_of_another_cluster_or_of_no_form_is_refused_and_stays() {
    let (folder, pki, other) = (tempfile::tempdir().unwrap(), pki(), self::pki());
    let path = folder.path().join("config");
    kept(&path, &entries(SERVER, &other), now());
    let refused = |text: &str, why: &str| {
        std::fs::write(&path, text).unwrap();
        let error = KubeconfigFile::read_of(&path, &pki.cluster).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    };
    let foreign = std::fs::read_to_string(&path).unwrap();
    refused(&foreign, "kubectl config delete-cluster knarr");
    refused("clusters: 7\n", "its clusters are not a list");
    refused("- a\n", "is not a kubeconfig (it is not a map)");
    refused("a: [\n", "is not a kubeconfig (");
    refused("kind: Pod\n", "its kind is not Config");
    refused(&"#".repeat(2 << 20), "it is too long");
}

#[test]
fn kubeconfig_current_server_is_that_of_the_current_context() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    let text = "current-context: b\ncontexts: [{name: a, context: {cluster: one}}, {name: b, context: {cluster: two}}]\n\
                clusters: [{name: one, cluster: {server: 'https://one'}}, {name: two, cluster: {server: 'https://two'}}]\n";
    std::fs::write(&path, text).unwrap();
    let file = KubeconfigFile::read(&path).unwrap();
    assert_eq!(file.current_server(), Some("https://two"));
}
