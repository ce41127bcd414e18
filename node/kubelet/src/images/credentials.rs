//! Registry credentials from pull secrets and plugins: which of them fit an image, in the order they are tried. Pure.

use std::borrow::Borrow;

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};
use k8s_openapi::api::core::v1::Secret;
use node_cri::v1::AuthConfig;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::pull_records::{CredentialSource, SecretCredential};

/// Credentials for a registry, and their origin.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Credential {
    pub(super) auth: AuthConfig,
    pub(super) source: CredentialSource,
}

/// Credentials with the key that they fit by.
pub(super) type Keyed = (String, Credential);

/// The registry that names without one belong to, as pull secrets call it.
const DEFAULT_REGISTRY: &str = "index.docker.io";

/// Types of pull secrets.
const DOCKER_CONFIG_JSON: &str = "kubernetes.io/dockerconfigjson";
const DOCKERCFG: &str = "kubernetes.io/dockercfg";

/// The credentials of a pod's pull secrets that fit a repository. Longer keys are more particular and come first; for
/// equal keys the secrets' own order holds, as in upstream's keyring.
pub(super) fn for_repository<S: Borrow<Secret>>(secrets: &[S], repository: &str) -> Vec<Credential> {
    let may_fit = |key: &str| may_fit(key, repository);
    let all = secrets
        .iter()
        .flat_map(|secret| entries(secret.borrow(), may_fit));
    ordered(all.collect(), repository)
}

fn may_fit(key: &str, repository: &str) -> bool {
    matches(key, repository) || (key == DEFAULT_REGISTRY && is_default_registry(repository))
}

/// Those that fit a repository, in the order of their keys: the most particular first. Those of the default registry count where no other
/// does.
pub(super) fn ordered(all: Vec<Keyed>, repository: &str) -> Vec<Credential> {
    let mut all = all;
    all.retain(|(key, _)| may_fit(key, repository));
    all.sort_by(|(one, _), (other, _)| other.cmp(one));
    if all.iter().any(|(key, _)| matches(key, repository)) {
        all.retain(|(key, _)| matches(key, repository));
    }
    all.into_iter().map(|(_, credential)| credential).collect()
}

fn entries(secret: &Secret, may_fit: impl Fn(&str) -> bool) -> Vec<Keyed> {
    let data = secret.data.as_ref();
    let is_of = |kind: &str| secret.type_.as_deref() == Some(kind);
    let of = |key: &str| {
        data.and_then(|data| data.get(key))
            .and_then(|raw| serde_json::from_slice::<Value>(&raw.0).ok())
    };
    let auths = |mut config: Value| config.get_mut("auths").map(Value::take);
    // As upstream's, by its type: others have no credentials, whatever their keys.
    let table = if is_of(DOCKER_CONFIG_JSON) {
        of(".dockerconfigjson").and_then(auths)
    } else if is_of(DOCKERCFG) {
        of(".dockercfg")
    } else {
        None
    };
    let table = table.unwrap_or_default();
    let found = table.as_object().into_iter().flatten();
    let found = found.filter_map(|(server, entry)| {
        let key = Some(key(server)).filter(|key| may_fit(key))?;
        let auth = auth(entry);
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let source = CredentialSource::Secret(SecretCredential {
            uid: text(&secret.metadata.uid),
            namespace: text(&secret.metadata.namespace),
            name: text(&secret.metadata.name),
            credential_hash: hash(&auth),
        });
        Some((key, Credential { auth, source }))
    });
    found.collect()
}

/// A server as it is written, without scheme; `/v1/` and `/v2/` stand for the host alone.
pub(super) fn key(server: &str) -> String {
    let plain = server
        .trim_start_matches("https://")
        .trim_start_matches("http://");
    let (host, path) = plain.split_once('/').unwrap_or((plain, ""));
    let path = match path {
        "v1" | "v2" => "",
        path => path
            .strip_prefix("v1/")
            .or(path.strip_prefix("v2/"))
            .unwrap_or(path),
    };
    match path {
        "" => host.to_owned(),
        path => format!("{host}/{path}"),
    }
}

/// Reports whether a key, whose host may hold wildcards, matches a repository: the same port, as many parts in the host's name,
/// and a path that the repository's begins with.
pub(super) fn matches(key: &str, repository: &str) -> bool {
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    let (own_host, own_path) = repository.split_once('/').unwrap_or((repository, ""));
    let port = |host: &str| host.rsplit_once(':').map(|(_, port)| port.to_owned());
    let name = |host: &str| host.rsplit_once(':').map_or(host, |(name, _)| name).to_owned();
    let (globs, parts) = (name(host), name(own_host));
    let (globs, parts): (Vec<&str>, Vec<&str>) = (globs.split('.').collect(), parts.split('.').collect());
    port(host) == port(own_host)
        && globs.len() == parts.len()
        && own_path.starts_with(path)
        && globs
            .iter()
            .zip(parts)
            .all(|(glob, part)| fits(glob.as_bytes(), part.as_bytes()))
}

/// `*` stands for any letters, `?` for one. Of several `*` the last alone tries again: no more steps than one length times the other.
fn fits(glob: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match (glob.get(at), star) {
            (Some(b'*'), _) => {
                star = Some((at, read));
                at += 1;
            }
            (Some(one), _) if *one == b'?' || *one == text[read] => {
                at += 1;
                read += 1;
            }
            (_, Some((before, taken))) => {
                star = Some((before, taken + 1));
                (at, read) = (before + 1, taken + 1);
            }
            _ => return false,
        }
    }
    glob[at..].iter().all(|left| *left == b'*')
}

fn is_default_registry(repository: &str) -> bool {
    matches!(repository.split('/').next(), Some("docker.io" | DEFAULT_REGISTRY))
}

/// An image's repository with its registry, without tag and digest: `docker.io/library/busybox`.
pub(super) fn repository_of(image: &str) -> String {
    match super::reference::split_domain(super::reference::without_tag(image)) {
        ("docker.io", name) if !name.contains('/') => format!("docker.io/library/{name}"),
        (domain, name) => format!("{domain}/{name}"),
    }
}

/// An image's repository, and its tag as it is; a digest alone where it has one, as the runtime does.
pub(super) fn full_name(image: &str) -> String {
    let (plain, repository) = (super::reference::without_tag(image), repository_of(image));
    match image.split_once('@') {
        Some((_, digest)) => format!("{repository}@{digest}"),
        None => format!("{repository}{}", &image[plain.len()..]),
    }
}

/// User and password of an entry's `auth`, which may be without the padding that the runtime insists on.
fn user_and_password(auth: &str) -> Option<(String, String)> {
    const ANY_PADDING: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_padding_mode(DecodePaddingMode::Indifferent)
            .with_decode_allow_trailing_bits(true),
    );
    // Ends of lines alone are passed over, as Go does.
    let letters: String = auth.chars().filter(|letter| !"\r\n".contains(*letter)).collect();
    let plain = String::from_utf8(ANY_PADDING.decode(letters).ok()?).ok()?;
    let (user, password) = plain.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

fn auth(entry: &Value) -> AuthConfig {
    let text = |name: &str| entry[name].as_str().unwrap_or_default().to_string();
    let auth = text("auth");
    // As upstream's, `auth` counts before the other two. One that says nothing is the runtime's to refuse.
    let (username, password, auth) = match user_and_password(&auth) {
        Some((username, password)) => (username, password, String::new()),
        None => (text("username"), text("password"), auth),
    };
    AuthConfig {
        username,
        password,
        auth,
        // As upstream's it names no server: containerd would read one as a URL, which an address with a port is not.
        server_address: String::new(),
        identity_token: text("identitytoken"),
        registry_token: text("registrytoken"),
    }
}

fn hash(auth: &AuthConfig) -> String {
    #[derive(Serialize)]
    struct Parts<'a>([&'a str; 5]);
    let parts = Parts([
        &auth.username,
        &auth.password,
        &auth.auth,
        &auth.identity_token,
        &auth.registry_token,
    ]);
    let text = serde_json::to_vec(&parts).unwrap_or_default();
    super::digest::hex(&Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(name: &str, servers: &[&str]) -> Secret {
        let auths: serde_json::Map<String, Value> = servers
            .iter()
            .map(|server| {
                (
                    (*server).to_owned(),
                    serde_json::json!({"username": server, "password": "p"}),
                )
            })
            .collect();
        let config = serde_json::json!({"auths": auths});
        let content = k8s_openapi::ByteString(serde_json::to_vec(&config).unwrap());
        let mut secret = Secret::default();
        secret.metadata.name = Some(name.to_owned());
        secret.type_ = Some(DOCKER_CONFIG_JSON.to_owned());
        secret.data = Some([(".dockerconfigjson".to_owned(), content)].into());
        secret
    }

    fn found(secrets: &[Secret], image: &str) -> Vec<String> {
        let found = for_repository(secrets, &repository_of(image));
        found.into_iter().map(|one| one.auth.username).collect()
    }

    #[track_caller]
    fn check(server: &str, image: &str, fits: bool) {
        let secrets = [secret("s", &[server])];
        assert_eq!(
            found(&secrets, image).len(),
            usize::from(fits),
            "{server} for {image}"
        );
    }

    #[test]
    fn credentials_go_to_their_registry_alone() {
        check("127.0.0.1:5000", "127.0.0.1:5000/a/b:1", true);
        check("127.0.0.1:5000", "127.0.0.1:5001/a/b:1", false);
        check("127.0.0.1", "127.0.0.1:5000/a/b:1", false);
        check("https://registry.test/v2/", "registry.test/a:1", true);
        check("registry.test/team", "registry.test/team/a:1", true);
        check("registry.test/team", "registry.test/other/a:1", false);
        check("https://index.docker.io/v1/", "busybox:1", true);
        check("https://index.docker.io/v1/", "docker.io/a/b", true);
        check("https://index.docker.io/v1/", "registry.test/a", false);
        check("docker.io", "busybox@sha256:ab", true);
        check("registry.test", "busybox:1", false);
    }

    /// Upstream: `secretsToTrackedDockerConfigs`, and `UnmarshalJSON` of an entry.
    #[test]
    fn credentials_are_read_by_the_type_of_their_secret() {
        const ENTRY: &str = r#"{"registry.test":{"username":"u","password":"p"}}"#;
        let config = format!(r#"{{"auths":{ENTRY}}}"#);
        for (kind, key, content, expected) in [
            (DOCKER_CONFIG_JSON, ".dockerconfigjson", config.as_str(), 1),
            (DOCKERCFG, ".dockercfg", ENTRY, 1),
            (DOCKERCFG, ".dockerconfigjson", &config, 0),
            (DOCKER_CONFIG_JSON, ".dockercfg", ENTRY, 0),
            ("Opaque", ".dockerconfigjson", &config, 0),
            ("Opaque", ".dockercfg", ENTRY, 0),
        ] {
            let mut secret = secret("s", &[]);
            secret.type_ = Some(kind.to_owned());
            let content = k8s_openapi::ByteString(content.as_bytes().to_vec());
            secret.data = Some([(key.to_owned(), content)].into());
            let found = for_repository(&[secret], "registry.test/app");
            assert_eq!(found.len(), expected, "{kind} {key}");
        }
    }

    #[test]
    fn credentials_of_an_auth_are_its_user_and_password() {
        for (entry, expected) in [
            (r#"{"username":"u","password":"p"}"#, ["u", "p", ""]),
            // Upstream's rows of `TestDecodeDockerConfigFieldAuth`.
            (r#"{"auth":"Zm9vOmJhcg=="}"#, ["foo", "bar", ""]),
            (r#"{"auth":"Zm9vOmJhcg"}"#, ["foo", "bar", ""]),
            (r#"{"auth":"Zm9vOmJhcjpiYXo="}"#, ["foo", "bar:baz", ""]),
            (
                r#"{"username":"u","password":"p","auth":"Zm9vOmJhcg"}"#,
                ["foo", "bar", ""],
            ),
            (r#"{"auth":"Zm9vOm\nJhcg==\n"}"#, ["foo", "bar", ""]),
            (r#"{"auth":"cGFudHM="}"#, ["", "", "cGFudHM="]),
            (r#"{"auth":"Zm9vOmJhcg== "}"#, ["", "", "Zm9vOmJhcg== "]),
            (r#"{"auth":"pants"}"#, ["", "", "pants"]),
            (r#"{"username":"u","password":"p","auth":"?"}"#, ["u", "p", "?"]),
        ] {
            let own = auth(&serde_json::from_str(entry).unwrap());
            assert_eq!([own.username, own.password, own.auth], expected, "{entry}");
        }
    }

    #[test]
    fn credentials_may_be_for_every_host_of_a_domain() {
        check("*.registry.test", "eu.registry.test/a", true);
        check("*.registry.test", "registry.test/a", false);
        check("*.registry.test", "a.eu.registry.test/a", false);
        check("*.registry.test:5000", "eu.registry.test/a", false);
        check("e?.registry.test/team", "eu.registry.test/team/a", true);
        check("*-docker.pkg.test", "eu-docker.pkg.test/a", true);
    }

    #[test]
    fn credentials_of_longer_paths_are_tried_first() {
        let servers = ["registry.test", "registry.test/team/app", "registry.test/team"];
        let secrets = [secret("one", &servers), secret("two", &["registry.test/team"])];
        let expected = [
            "registry.test/team/app",
            "registry.test/team",
            "registry.test/team",
            "registry.test",
        ];
        assert_eq!(found(&secrets, "registry.test/team/app/web:1"), expected);
        let sources = for_repository(&secrets, "registry.test/team/other");
        let name = |one: &Credential| match &one.source {
            CredentialSource::Secret(secret) => secret.name.clone(),
            other => panic!("{other:?}"),
        };
        let names: Vec<String> = sources.iter().map(name).collect();
        assert_eq!(names, ["one", "two", "one"], "for equal keys in the pod's order");
    }

    #[test]
    fn repositories_are_named_in_full() {
        for (image, expected) in [
            ("busybox", "docker.io/library/busybox"),
            ("docker.io/busybox:1", "docker.io/library/busybox"),
            ("team/app:1", "docker.io/team/app"),
            ("localhost/app", "localhost/app"),
            ("index.docker.io/busybox", "docker.io/library/busybox"),
            ("Host/app", "Host/app"),
            ("host:5000/app@sha256:ab", "host:5000/app"),
        ] {
            assert_eq!(repository_of(image), expected, "{image}");
        }
        assert_eq!(full_name("busybox:1"), "docker.io/library/busybox:1");
        for image in ["host:5000/app@sha256:ab", "host:5000/app:1@sha256:ab"] {
            assert_eq!(full_name(image), "host:5000/app@sha256:ab");
        }
    }

    fn built(random: &mut machinery_fuzz::Random) -> Vec<u8> {
        let mut entries = Vec::new();
        for _ in 0..random.count() {
            let server = random.pick(&[
                "*.test",
                "https://registry.test/v2/",
                "index.docker.io",
                "*",
                "?:5000/a",
            ]);
            let entry = random.pick(&[
                "{}",
                "[]",
                "0",
                "null",
                r#"{"username":"u","password":"p"}"#,
                r#"{"auth":"dTpw"}"#,
            ]);
            entries.push(format!(r#""{server}{}":{entry}"#, random.count()));
        }
        format!(r#"{{"auths":{{{}}}}}"#, entries.join(",")).into_bytes()
    }

    #[test]
    fn pull_secret_fuzz_never_panics() {
        let good = r#"{"auths":{"registry.test":{"username":"u","password":"p"},"*.registry.test":{"auth":"dTpw"}}}"#;
        machinery_fuzz::fuzz_built([good], built, |input| {
            for (kind, name) in [
                (DOCKER_CONFIG_JSON, ".dockerconfigjson"),
                (DOCKERCFG, ".dockercfg"),
            ] {
                let content = k8s_openapi::ByteString(input.to_vec());
                let secret = Secret {
                    type_: Some(kind.to_owned()),
                    data: Some([(name.to_owned(), content)].into()),
                    ..Secret::default()
                };
                for repository in ["registry.test/team/app", "docker.io/library/busybox"] {
                    let found = || for_repository(std::slice::from_ref(&secret), repository);
                    drop(machinery_fuzz::in_proportion(input, 128, found));
                }
            }
        });
    }

    #[test]
    fn pull_secret_with_many_stars_is_compared_in_few_steps() {
        let fits = |glob: &str, text: &str| super::fits(glob.as_bytes(), text.as_bytes());
        for (glob, text) in [
            ("", ""),
            ("*", ""),
            ("a*", "a"),
            ("*a", "ba"),
            ("a*b?d*", "axbxbcd"),
            ("**", "x"),
        ] {
            assert!(fits(glob, text), "{glob} {text}");
        }
        for (glob, text) in [("", "a"), ("?", ""), ("a*", "b"), ("*a", "ab"), ("a*b?d", "axbd")] {
            assert!(!fits(glob, text), "{glob} {text}");
        }
        let text = "a".repeat(250);
        assert!(fits(&"a*".repeat(100), &text));
        // With a try for each star in each place this would not end.
        assert!(!fits(&format!("{}b", "a*".repeat(100)), &text));
    }
}
