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
    fitting.map(|(server, entry)| auth(server, entry)).collect()
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

fn auth(server: &str, entry: &Value) -> AuthConfig {
    let text = |name: &str| entry[name].as_str().unwrap_or_default().to_string();
    AuthConfig {
        username: text("username"),
        password: text("password"),
        auth: text("auth"),
        server_address: server.to_string(),
        identity_token: text("identitytoken"),
        registry_token: text("registrytoken"),
    }
}
