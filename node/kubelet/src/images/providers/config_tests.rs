use super::*;
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;

/// Whole seconds alone: Go's durations are the caller's.
pub(in crate::images) fn seconds(text: &str) -> Result<i64, String> {
    let seconds = text
        .strip_suffix('s')
        .and_then(|seconds| seconds.parse::<i64>().ok());
    let seconds = seconds.ok_or_else(|| format!("time: invalid duration {text:?}"));
    seconds.map(|seconds| seconds * 1_000_000_000)
}

fn json_of(content: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(content).map_err(|error| error.to_string())
}

fn source(folder: &Path) -> CredentialProvidersSource {
    CredentialProvidersSource {
        config: folder.join("config"),
        bin_dir: folder.to_owned(),
        decode: json_of,
        duration: seconds,
    }
}

fn document(providers: Value) -> String {
    let version = "kubelet.config.k8s.io/v1";
    json!({"apiVersion": version, "kind": "CredentialProviderConfig", "providers": providers}).to_string()
}

fn provider(with: Value) -> Value {
    let mut own = json!({"name": "one", "matchImages": ["*.registry.test"], "defaultCacheDuration": "60s",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1"});
    for (name, value) in with.as_object().unwrap() {
        own[name] = value.clone();
    }
    own
}

/// The problem of a configuration with one plugin that has these fields.
fn problem(with: Value) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config"), document(json!([provider(with)]))).unwrap();
    let problem = source(folder.path()).read().unwrap_err();
    let words = "failed to validate credential provider config: ";
    problem.strip_prefix(words).unwrap_or(&problem).to_owned()
}

#[test]
fn credential_providers_are_read_from_a_file_or_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let program = |name: &str, mode: u32| {
        let path = folder.path().join(name);
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    program("one", 0o755);
    program("two", 0o644);
    let files = folder.path().join("config");
    std::fs::create_dir(&files).unwrap();
    let read = || source(folder.path()).read();
    assert!(
        read()
            .unwrap_err()
            .starts_with("no configuration files found in directory")
    );
    let write = |name: &str, providers: Value| std::fs::write(files.join(name), document(providers)).unwrap();
    let full = json!({"args": ["a"], "env": [{"name": "A", "value": "b"}], "tokenAttributes": {"serviceAccountTokenAudience":
        "registry", "cacheType": "Token", "requireServiceAccount": true, "requiredServiceAccountAnnotationKeys": ["a.test/b"]}});
    write("b.json", json!([provider(full)]));
    write("ignored.txt", json!([]));
    let found = read().unwrap();
    assert_eq!(found.providers[0].cache_nanoseconds, 60_000_000_000);
    assert!(
        found.hash.starts_with("sha256:") && found.hash.len() == 71,
        "{}",
        found.hash
    );
    write("a.json", json!([provider(json!({"name": "two"}))]));
    assert!(
        read().unwrap_err().ends_with("permission denied"),
        "a program that cannot run"
    );
    program("two", 0o755);
    let names: Vec<String> = read()
        .unwrap()
        .providers
        .into_iter()
        .map(|own| own.name)
        .collect();
    assert_eq!(names, ["two", "one"], "files in the order of their names");
    write("c.json", json!([provider(json!({}))]));
    let twice = "duplicate provider name \"one\" found in configuration file(s)";
    assert_eq!(read().unwrap_err(), twice);
}

#[test]
fn credential_provider_that_is_wrong_is_refused_in_upstreams_words() {
    for (with, expected) in [
        (
            json!({"name": "a/b"}),
            "providers.name: Invalid value: \"a/b\": provider name cannot contain '/'",
        ),
        (
            json!({"name": ".."}),
            "providers.name: Invalid value: \"..\": provider name cannot be '..'",
        ),
        (json!({"apiVersion": ""}), "providers.apiVersion: Required value"),
        (
            json!({"apiVersion": "v1"}),
            "providers.apiVersion: Unsupported value: \"v1\": supported values: \"credentialprovider.kubelet.k8s.io/v1\", \
             \"credentialprovider.kubelet.k8s.io/v1alpha1\", \"credentialprovider.kubelet.k8s.io/v1beta1\"",
        ),
        (
            json!({"matchImages": []}),
            "providers.matchImages: Required value: at least 1 item in matchImages is required",
        ),
        (
            json!({"defaultCacheDuration": null}),
            "providers.defaultCacheDuration: Required value",
        ),
        (
            json!({"defaultCacheDuration": "-1s"}),
            "providers.defaultCacheDuration: Invalid value: \"-1s\": must be greater than or equal to 0",
        ),
    ] {
        assert_eq!(problem(with.clone()), expected, "{with}");
    }
    assert!(problem(json!({"matchImages": ["%%"]})).contains("match image is invalid"));
    assert!(problem(json!({"other": 1})).contains("unknown field `other`"));
    assert!(problem(json!({})).ends_with("/one did not exist"));
}

#[test]
fn token_attributes_that_are_wrong_are_refused_in_upstreams_words() {
    let with = |attributes: Value| problem(json!({ "tokenAttributes": attributes }));
    let all = with(json!({}));
    for part in [
        "providers.tokenAttributes.serviceAccountTokenAudience: Required value",
        "providers.tokenAttributes.requireServiceAccount: Required value",
        "providers.tokenAttributes.cacheType: Required value: cacheType is required to be set when tokenAttributes is specified. \
         Supported values are: ServiceAccount, Token",
    ] {
        assert!(all.contains(part), "{part}\n{all}");
    }
    let good = |name: &str, value: Value| {
        let mut own =
            json!({"serviceAccountTokenAudience": "a", "cacheType": "Token", "requireServiceAccount": false});
        own[name] = value;
        with(own)
    };
    assert!(
        good("requiredServiceAccountAnnotationKeys", json!(["a"]))
            .contains("requireServiceAccount cannot be false")
    );
    assert!(good("optionalServiceAccountAnnotationKeys", json!(["a b"])).contains("Invalid value: \"a b\""));
    assert!(
        good("optionalServiceAccountAnnotationKeys", json!(["a", "a"])).contains("Duplicate value: \"a\"")
    );
    assert!(good("cacheType", json!("Other")).contains("Unsupported value: \"Other\""));
}
