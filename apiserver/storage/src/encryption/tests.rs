//! Values that upstream wrote are read, others' are not, and a wrong configuration is refused with its field.

use super::*;
use machinery_runtime::Simulation;

const GCM: &str = "aesgcm: {keys: [{name: k1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}";
const CBC: &str = "aescbc: {keys: [{name: k1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}";
const SECRETBOX: &str =
    "secretbox: {keys: [{name: k1, secret: YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=}]}";
const IDENTITY: &str = "identity: {}";

fn file(resources: &str, providers: &[&str]) -> String {
    let list: String = providers
        .iter()
        .map(|provider| format!("  - {provider}\n"))
        .collect();
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: {resources}\n  providers:\n{list}"
    )
}

fn names() -> ResourceNames {
    let row =
        |prefix: &str, group: &str, plural: &str| (prefix.to_owned(), group.to_owned(), plural.to_owned());
    ResourceNames::new([
        row("/registry/secrets/", "", "secrets"),
        row("/registry/services/specs/", "", "services"),
        row("/registry/deployments/", "apps", "deployments"),
    ])
}

fn load(text: &str) -> Result<Encryption, EncryptionConfigError> {
    let runtime = Simulation::new(1).runtime();
    Encryption::new(&runtime, names(), Path::new("/enc.yaml"), text.as_bytes())
}

fn with(resources: &str, providers: &[&str]) -> Encryption {
    load(&file(resources, providers)).unwrap()
}

fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

fn secret() -> Key {
    key("/registry/secrets/default/s")
}

#[test]
fn encryption_of_every_provider_comes_back_and_is_not_plain() {
    for (provider, prefix) in [
        (GCM, "k8s:enc:aesgcm:v1:k1:"),
        (CBC, "k8s:enc:aescbc:v1:k1:"),
        (SECRETBOX, "k8s:enc:secretbox:v1:k1:"),
    ] {
        let encryption = with("[secrets]", &[provider, IDENTITY]);
        for length in [0, 1, 15, 16, 17, 1000] {
            let plain = vec![b'p'; length];
            let (stored, seal) = encryption.seal(&secret(), &plain).unwrap().unwrap();
            assert!(stored.starts_with(prefix.as_bytes()), "{prefix}");
            assert!(length < 4 || !stored.windows(4).any(|run| run == b"pppp"));
            assert_eq!(encryption.open(&secret(), &stored), Ok((plain, seal)));
            assert_eq!(seal, encryption.current_seal(&secret()));
        }
        for length in [16, 24, 32] {
            let key = BASE64_STANDARD.encode(vec![7; length]);
            let other = provider.replace("c2VjcmV0IGlzIHNlY3VyZQ==", &key);
            if let Ok(encryption) = load(&file("[secrets]", &[&other])) {
                let (stored, _) = encryption.seal(&secret(), b"value").unwrap().unwrap();
                assert_eq!(encryption.open(&secret(), &stored).unwrap().0, b"value");
            }
        }
    }
}

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

#[test]
fn encryption_by_gcm_is_bound_to_the_place_of_the_value() {
    let encryption = with("[secrets]", &[GCM]);
    let (stored, _) = encryption.seal(&secret(), b"value").unwrap().unwrap();
    let elsewhere = key("/registry/secrets/default/other");
    let refused = encryption.open(&elsewhere, &stored).unwrap_err();
    assert_eq!(refused, "cipher: message authentication failed");
}

#[test]
fn encryption_without_the_right_key_says_what_upstream_says() {
    let gcm = with("[secrets]", &[GCM]);
    let (stored, _) = gcm.seal(&secret(), b"value").unwrap().unwrap();
    let other_name = GCM.replace("k1", "k2");
    let other_secret = GCM.replace("c2VjcmV0", "b3RoZXIx");
    let no_key = "no matching key was found for the provided AES transformer";
    for (providers, expected) in [
        (&[IDENTITY][..], "no matching prefix found"),
        (&[CBC, IDENTITY], "no matching prefix found"),
        (&[&other_name], no_key),
        (&[&other_secret], "cipher: message authentication failed"),
        (
            &[&other_name, &other_secret],
            &format!("[{no_key}, cipher: message authentication failed]"),
        ),
    ] {
        let encryption = with("[secrets]", providers);
        assert_eq!(encryption.open(&secret(), &stored).unwrap_err(), expected);
    }
    assert_eq!(
        gcm.open(&secret(), b"{}").unwrap_err(),
        "no matching prefix found"
    );
    for cut in 0..stored.len() {
        assert!(gcm.open(&secret(), &stored[..cut]).is_err(), "{cut}");
    }
    let unnamed = with("[configmaps]", &[GCM]);
    assert_eq!(
        unnamed.open(&secret(), &stored).unwrap_err(),
        "identity transformer tried to read encrypted data"
    );
}

#[test]
fn encryption_chooses_by_resource_group_and_wildcard() {
    let text = file("[services, '*.apps']", &[GCM])
        + "- resources: ['*.']\n  providers: [{identity: {}}]\n- resources: ['*.*']\n  providers:\n  - "
        + SECRETBOX
        + "\n";
    let encryption = load(&text).unwrap();
    let sealed = |text: &str| {
        let stored = encryption.seal(&key(text), b"value").unwrap()?;
        Some(String::from_utf8_lossy(&stored.0).split(':').nth(2)?.to_owned())
    };
    for (key, expected) in [
        ("/registry/services/specs/default/web", Some("aesgcm")),
        ("/registry/deployments/default/web", Some("aesgcm")),
        ("/registry/secrets/default/s", None),
        ("/registry/ranges/serviceips", None),
        ("/registry/knarr.test/boats/default/b", Some("secretbox")),
    ] {
        assert_eq!(sealed(key).as_deref(), expected, "{key}");
    }
}

/// Each refusal is counted. The same content is an error once; another one, or the same after a good one, again.
fn encryption_reload_refusals_are_errors_once(encryption: &Encryption, in_use: &[u8]) {
    let path = Path::new("/enc.yaml");
    let failures = || encryption.measures().reloads["failure"].0;
    let before = failures();
    assert_eq!(
        encryption.reload(path, b"nonsense: ["),
        Ok(false),
        "refused before"
    );
    assert_eq!(failures(), before + 1);
    encryption.reload(path, b"other nonsense: [").unwrap_err();
    assert_eq!(failures(), before + 2);
    assert_eq!(encryption.reload(path, in_use), Ok(false));
    encryption.reload(path, b"other nonsense: [").unwrap_err();
    assert_eq!(failures(), before + 3, "the good one lay between");
    assert!(encryption.reload_failed() && !encryption.reload_failed());
    assert_eq!(failures(), before + 5);
}

#[test]
fn encryption_is_rotated_by_a_reload_and_tells_what_is_stale() {
    let encryption = with("[secrets]", &[GCM, IDENTITY]);
    let (old, old_seal) = encryption.seal(&secret(), b"value").unwrap().unwrap();
    let next = file("[secrets]", &[SECRETBOX, GCM, IDENTITY]);
    let path = Path::new("/enc.yaml");
    assert_eq!(encryption.reload(path, next.as_bytes()), Ok(true));
    assert_eq!(encryption.reload(path, next.as_bytes()), Ok(false));
    assert_eq!(
        encryption.open(&secret(), &old),
        Ok((b"value".to_vec(), old_seal))
    );
    assert_ne!(encryption.current_seal(&secret()), old_seal);
    assert_eq!(encryption.open(&secret(), b"{}").unwrap().1, Seal::default());
    encryption.reload(path, b"nonsense: [").unwrap_err();
    assert!(encryption.open(&secret(), &old).is_ok(), "the old one stays");
    let measures = encryption.measures();
    let reloads: Vec<_> = measures
        .reloads
        .iter()
        .map(|(status, (count, _))| (*status, *count))
        .collect();
    assert_eq!(reloads, [("failure", 1), ("success", 1)]);
    encryption_reload_refusals_are_errors_once(&encryption, next.as_bytes());
    let opened = measures
        .operations
        .iter()
        .filter(|(own, _)| own.transformation_type == "from_storage");
    let prefixes: Vec<_> = opened
        .map(|(own, count)| (own.transformer_prefix.as_str(), *count))
        .collect();
    assert_eq!(prefixes, [("identity", 1), ("k1:", 2), ("k8s:enc:aesgcm:v1:", 2)]);
}

#[test]
fn encryption_configuration_is_refused_with_field_and_words() {
    let short = GCM.replace("c2VjcmV0IGlzIHNlY3VyZQ==", "c2hvcnQ=");
    let both = "{aesgcm: {keys: [{name: a, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}, identity: {}}";
    for (text, expected) in [
        (
            String::new(),
            "encryption provider configuration file \"/enc.yaml\" is empty",
        ),
        (
            file("[secrets]", &[]),
            "resources[0].providers: Required value: at least one resources[0].providers is required",
        ),
        (
            file("[]", &[IDENTITY]),
            "resources[0].resources: Required value: at least one resources[0].resources is required",
        ),
        (
            file("['*']", &[IDENTITY]),
            "resources[0].resources[0]: Invalid value: \"*\": use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources",
        ),
        (
            file("[Secrets]", &[IDENTITY]),
            "resource name should not contain capital letters",
        ),
        (
            file("[secrets, secrets]", &[IDENTITY]),
            "resources[0].resources: Invalid value: [\"secrets\",\"secrets\"]: the same resource cannot be specified multiple times",
        ),
        (
            file("['*.', '*.']", &[IDENTITY]),
            "cannot be specified multiple times, resources[0].resources: Invalid value: [\"*.\",\"*.\"]: using overlapping",
        ),
        (
            file("[secrets, '*.']", &[IDENTITY]),
            "using overlapping resources",
        ),
        (
            file("[secrets.*]", &[IDENTITY]),
            "encrypting the same resource across groups is not supported",
        ),
        (
            file("[events.events.k8s.io]", &[IDENTITY]),
            "Use 'events' instead in the config file",
        ),
        (
            file("[secrets]", &[&short]),
            "resources[0].providers[0].aesgcm.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 5, expected one of [16 24 32]",
        ),
        (
            file("[secrets]", &["aescbc: {keys: [{name: a, secret: '?'}]}"]),
            "aescbc.keys[0].secret: Invalid value: \"REDACTED\": secrets must be base64 encoded",
        ),
        (
            file("[secrets]", &["secretbox: {keys: [{}]}"]),
            "[resources[0].providers[0].secretbox.keys[0].name: Required value: name is a mandatory field for a key, resources[0].providers[0].secretbox.keys[0].secret: Required value: secret is a mandatory field for a key]",
        ),
        // The sample of the page, whose comment stands in the place of the key.
        (
            file(
                "[secrets]",
                &["secretbox:\n      keys:\n      - name: key1\n        secret: # head -c 32"],
            ),
            "resources[0].providers[0].secretbox.keys[0].secret: Required value: secret is a mandatory field for a key",
        ),
        (
            file("[secrets]", &["aesgcm: {keys: []}"]),
            "aesgcm.keys: Required value: at least one keys is required",
        ),
        (
            file("[secrets]", &["identity:"]),
            "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
        ),
        (
            file("[secrets]", &[both]),
            "more than one provider specified in a single element",
        ),
        (
            file("[secrets]", &[IDENTITY]).replace("/v1\n", "/v9\n"),
            "no kind \"EncryptionConfiguration\" is registered for version \"apiserver.config.k8s.io/v9\"",
        ),
        (
            file("[secrets]", &[IDENTITY]) + "more: 1\n",
            "strict decoding error",
        ),
        (
            file("['*.*']", &[IDENTITY]) + "- resources: [secrets]\n  providers: [{identity: {}}]\n",
            "resource \"secrets\" is masked by earlier rule \"*.*\"",
        ),
    ] {
        let refused = load(&text).unwrap_err().to_string();
        assert!(
            refused.contains(expected),
            "{text}\n{refused}\nwithout\n{expected}"
        );
        assert!(
            !refused.contains("c2VjcmV0") && !refused.contains("c2hvcnQ"),
            "{refused}"
        );
    }
}

#[test]
fn encryption_reads_base64_as_go_does() {
    let text = file(
        "[secrets]",
        &[&GCM.replace("c2VjcmV0IGlzIHNlY3VyZQ==", "\"BBBBBBBBBBBBBBBBBBBBBB\\n==\"")],
    );
    assert!(load(&text).unwrap().seal(&secret(), b"value").unwrap().is_some());
}

#[test]
fn encryption_shows_no_secret() {
    let encryption = with("[secrets]", &[GCM]);
    let shown = format!("{encryption:?} {:?}", encryption.current_seal(&secret()));
    assert!(shown.contains("Sealed") && !shown.contains("c2VjcmV0"), "{shown}");
    let unquoted = file(
        "[secrets]",
        &["aesgcm: {keys: [{name: a, secret: c2VjcmV0IGlzIHNlY3VyZQ==, x: 1}]}"],
    );
    let refused = load(&unquoted).unwrap_err().to_string();
    assert!(
        refused.contains("line") && !refused.contains("c2VjcmV0"),
        "{refused}"
    );
}

/// Words are those of upstream's server for the same files.
#[test]
fn encryption_by_a_plugin_is_checked_as_upstream_does() {
    let field = "resources[0].providers[0].kms";
    for (own, expected) in [
        (
            "apiVersion: v2, endpoint: 'unix:///x'",
            "name: Required value: name is a mandatory field for a provider",
        ),
        (
            "apiVersion: v2, name: 'a:b', endpoint: 'unix:///x'",
            "name: Invalid value: \"a:b\": invalid KMS provider name a:b, must not contain ':'",
        ),
        (
            "apiVersion: v2, name: a",
            "endpoint: Invalid value: \"\": endpoint is a mandatory field for a kms",
        ),
        (
            "apiVersion: v2, name: a, endpoint: 'http://x'",
            "endpoint: Invalid value: \"http://x\": unsupported scheme \"http\" for KMS provider, only unix is supported",
        ),
        (
            "apiVersion: v2, name: a, endpoint: 'unix:///x', timeout: 0s",
            "timeout: Invalid value: \"0s\": timeout should be a positive value",
        ),
        (
            "apiVersion: v2, name: a, endpoint: 'unix:///x', timeout: -1m",
            "timeout: Invalid value: \"-1m0s\": timeout should be a positive value",
        ),
        (
            "apiVersion: v2, name: a, endpoint: 'unix:///x', cachesize: 5",
            "cachesize: Invalid value: 5: cachesize is not supported in v2",
        ),
        (
            "name: a, endpoint: 'unix:///x', cachesize: 0",
            "cachesize: Invalid value: 0: cachesize should be a positive value, or negative to disable",
        ),
        (
            "apiVersion: v3, name: a, endpoint: 'unix:///x'",
            "apiVersion: Invalid value: \"v3\": unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported",
        ),
    ] {
        let refused = load(&file("[secrets]", &[&format!("kms: {{{own}}}")])).unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("error while parsing file: {field}.{expected}")
        );
    }
    for (providers, expected) in [
        (
            &["kms: {apiVersion: v2, name: a, endpoint: 'unix:///x'}"; 2][..],
            "error while parsing file: resources[0].providers[1].kms.name: Invalid value: \"a\": duplicate KMS provider name a, names must be unique",
        ),
        (
            &["kms: {name: a, endpoint: 'unix:///x'}"],
            "error while building transformers: KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature.",
        ),
        (
            &["kms: {apiVersion: v2, name: a, endpoint: 'unix:///x', timeout: 3x}"],
            "error while parsing file: error decoding encryption provider configuration file \"/enc.yaml\": strict decoding error",
        ),
    ] {
        let refused = load(&file("[secrets]", providers)).unwrap_err().to_string();
        assert!(refused.starts_with(expected), "{refused}");
    }
}
