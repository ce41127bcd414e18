//! `knarr image pull`: images of registries, brought to the node before pods request them.

use super::{ImageArguments, client, print_line};
use anyhow::{Context, bail};
use node_cri::{CriClient, v1};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A longer file of credentials is none.
const CREDENTIALS_BYTES_MAX: u64 = 1 << 20;
/// The registry of names without one, and its name in Docker's files.
const DEFAULT_REGISTRY: (&str, &str) = ("docker.io", "https://index.docker.io/v1/");

/// Images of a runtime, pulled one after the other.
pub(super) async fn pull(
    arguments: &ImageArguments,
    names: &[String],
    credentials: Option<&PathBuf>,
) -> anyhow::Result<()> {
    let client = client(arguments)?;
    let credentials = credentials.map(|path| read(path)).transpose()?;
    for name in names {
        let auth = credentials.as_ref().and_then(|all| auth(all, registry(name)));
        let image = pull_one(&client, name, auth).await?;
        print_line(&format!("{name}  {image}"))?;
    }
    Ok(())
}

async fn pull_one(client: &CriClient, name: &str, auth: Option<v1::AuthConfig>) -> anyhow::Result<String> {
    let request = v1::PullImageRequest {
        image: Some(v1::ImageSpec {
            image: name.to_owned(),
            ..v1::ImageSpec::default()
        }),
        auth,
        sandbox_config: None,
    };
    let answer = client.pull_image(request).await;
    Ok(answer.with_context(|| name.to_owned())?.image_ref)
}

/// The registry in an image's name, by Docker's rule.
fn registry(name: &str) -> &str {
    match name.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => DEFAULT_REGISTRY.0,
    }
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let content = node_sys::fs::read_head(path, CREDENTIALS_BYTES_MAX + 1);
    let content = content.with_context(|| format!("--docker-config {}", path.display()))?;
    match serde_json::from_slice::<Value>(&content) {
        Ok(config) if config["auths"].is_object() => Ok(config),
        _ => bail!("--docker-config {}: it has no auths", path.display()),
    }
}

fn auth(config: &Value, registry: &str) -> Option<v1::AuthConfig> {
    let keys = match registry == DEFAULT_REGISTRY.0 {
        true => vec![DEFAULT_REGISTRY.1.to_owned(), registry.to_owned()],
        false => vec![registry.to_owned(), format!("https://{registry}")],
    };
    let entry = keys.iter().find_map(|key| config["auths"].get(key))?;
    let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    Some(v1::AuthConfig {
        auth: text("auth"),
        username: text("username"),
        password: text("password"),
        identity_token: text("identitytoken"),
        ..v1::AuthConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_pull_takes_the_credentials_of_the_registry() {
        for (name, expected) in [
            ("nginx", "docker.io"),
            ("library/nginx:1", "docker.io"),
            ("localhost/a", "localhost"),
            ("registry:5000/a@sha256:0", "registry:5000"),
            ("ghcr.io/a/b:1", "ghcr.io"),
        ] {
            assert_eq!(registry(name), expected);
        }
        let config = serde_json::json!({"auths": {
            "https://index.docker.io/v1/": {"auth": "aG9tZQ=="},
            "ghcr.io": {"username": "u", "password": "p"},
        }});
        assert_eq!(auth(&config, "docker.io").unwrap().auth, "aG9tZQ==");
        assert_eq!(auth(&config, "ghcr.io").unwrap().username, "u");
        assert_eq!(auth(&config, "quay.io"), None);
    }
}
