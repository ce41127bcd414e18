//! Registry credentials from pull secrets.

use k8s_openapi::api::core::v1::Secret;
use node_cri::v1::AuthConfig;
use serde_json::Value;

/// The credentials of a pull secret that fit an image's registry.
pub(super) fn for_image(secret: &Secret, image: &str) -> Vec<AuthConfig> {
    let data = secret.data.as_ref();
    let of = |key: &str| {
        data.and_then(|data| data.get(key))
            .and_then(|raw| serde_json::from_slice::<Value>(&raw.0).ok())
    };
    let current = of(".dockerconfigjson").map(|config| config["auths"].clone());
    let entries = current.or_else(|| of(".dockercfg")).unwrap_or_default();
    let registry = registry_of(image);
    let table = entries.as_object().cloned().unwrap_or_default();
    let fitting = table.iter().filter(|(server, _)| fits(server, registry, image));
    fitting.map(|(_, entry)| auth(entry)).collect()
}

fn registry_of(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => "docker.io",
    }
}

fn fits(server: &str, registry: &str, image: &str) -> bool {
    let plain = server
        .trim_start_matches("https://")
        .trim_start_matches("http://")
        .trim_end_matches('/');
    let host = plain.split('/').next().unwrap_or_default();
    let docker = |host: &str| matches!(host, "docker.io" | "index.docker.io" | "registry-1.docker.io");
    let versioned = plain == host || plain.ends_with("/v1") || plain.ends_with("/v2");
    (host == registry || (docker(host) && docker(registry))) && (versioned || image.starts_with(plain))
}

fn auth(entry: &Value) -> AuthConfig {
    let text = |name: &str| entry[name].as_str().unwrap_or_default().to_string();
    AuthConfig {
        username: text("username"),
        password: text("password"),
        auth: text("auth"),
        // As upstream's it names no server: containerd would read one as a URL, which an address with a port is not.
        server_address: String::new(),
        identity_token: text("identitytoken"),
        registry_token: text("registrytoken"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(server: &str, image: &str, fits: bool) {
        let config =
            serde_json::json!({"auths": {server: {"username": "u", "password": "p", "auth": "dTpw"}}});
        let mut secret = Secret::default();
        let content = k8s_openapi::ByteString(serde_json::to_vec(&config).unwrap());
        secret.data = Some([(".dockerconfigjson".to_owned(), content)].into());
        let found = for_image(&secret, image);
        assert_eq!(found.len(), usize::from(fits), "{server} for {image}");
        for auth in found {
            assert_eq!((auth.username.as_str(), auth.password.as_str()), ("u", "p"));
            assert_eq!(auth.server_address, "");
        }
    }

    #[test]
    fn credentials_go_to_their_registry_alone() {
        check("127.0.0.1:5000", "127.0.0.1:5000/a/b:1", true);
        check("127.0.0.1:5000", "127.0.0.1:5001/a/b:1", false);
        check("https://registry.test/v2/", "registry.test/a:1", true);
        check("registry.test/team", "registry.test/team/a:1", true);
        check("registry.test/team", "registry.test/other/a:1", false);
        check("https://index.docker.io/v1/", "busybox:1", true);
        check("registry.test", "busybox:1", false);
    }
}
