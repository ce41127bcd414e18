//! The server, authorities and credentials of a kubeconfig's current context, as client-go reads them.

use apiserver_egress::{
    ClientIdentity, CredentialsByHost, HookCredentials, Remote, RemoteAccess, RemoteError, RemoteOptions,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use machinery_schema::{leaf, yaml_to_json};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// No file of this kind is longer.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A kubeconfig that cannot be used. Nothing of a credential is in the text.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error("unable to read {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("invalid configuration: {0}")]
    Invalid(String),
    #[error("{0}")]
    Remote(#[from] RemoteError),
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct Kubeconfig {
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
    contexts: Option<Vec<NamedContext>>,
    current_context: Option<String>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Cluster,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Context,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Context {
    cluster: Option<String>,
    user: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct Cluster {
    server: Option<String>,
    tls_server_name: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    username: Option<String>,
    password: Option<String>,
    #[serde(rename = "as")]
    impersonate: Option<String>,
    as_uid: Option<String>,
    as_groups: Option<Vec<String>>,
    as_user_extra: Option<BTreeMap<String, Vec<String>>>,
    exec: Option<serde::de::IgnoredAny>,
    auth_provider: Option<serde::de::IgnoredAny>,
}

impl User {
    /// Headers of the user that the server acts for, as client-go writes them.
    fn impersonation(&self) -> Result<Vec<(HeaderName, HeaderValue)>, KubeconfigError> {
        let Some(name) = self.impersonate.as_ref().filter(|own| !own.is_empty()) else {
            return Ok(Vec::new());
        };
        let mut texts = vec![("impersonate-user".to_owned(), name)];
        let uid = self.as_uid.iter().filter(|own| !own.is_empty());
        texts.extend(uid.map(|uid| ("impersonate-uid".to_owned(), uid)));
        let groups = self.as_groups.iter().flatten();
        texts.extend(groups.map(|group| ("impersonate-group".to_owned(), group)));
        for (key, values) in self.as_user_extra.iter().flatten() {
            let key = escaped(key);
            texts.extend(
                values
                    .iter()
                    .map(|value| (format!("impersonate-extra-{key}"), value)),
            );
        }
        let header = |(name, value): (String, &String)| {
            let name = HeaderName::try_from(name).ok()?;
            Some((name, HeaderValue::from_str(value).ok()?))
        };
        let headers: Option<Vec<_>> = texts.into_iter().map(header).collect();
        headers.ok_or_else(|| invalid("a user to act as cannot be in a header"))
    }
}

/// A key in the name of a header: bytes that no token has are escaped, as client-go's `headerKeyEscape`.
fn escaped(key: &str) -> String {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    let escape = |byte: u8| match is_token(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    key.bytes().map(escape).collect()
}

fn invalid(why: impl Into<String>) -> KubeconfigError {
    KubeconfigError::Invalid(why.into())
}

fn read_file(path: &Path) -> Result<Vec<u8>, KubeconfigError> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(bytes),
        Err(source) => Err(KubeconfigError::File {
            path: path.to_owned(),
            source,
        }),
    }
}

/// The folder to which paths of a kubeconfig are relative.
struct Place<'a>(&'a Path);

impl Place<'_> {
    /// Data, or the content of a file.
    fn content(
        &self,
        what: &str,
        data: Option<&String>,
        path: Option<&PathBuf>,
    ) -> Result<Option<Vec<u8>>, KubeconfigError> {
        match (data.filter(|own| !own.is_empty()), path) {
            (Some(data), _) => {
                let data = STANDARD.decode(data);
                data.map(Some)
                    .map_err(|_| invalid(format!("{what} is no base64")))
            }
            (None, Some(path)) if !path.as_os_str().is_empty() => read_file(&self.0.join(path)).map(Some),
            (None, _) => Ok(None),
        }
    }

    fn identity(&self, user: &User) -> Result<Option<Arc<ClientIdentity>>, KubeconfigError> {
        let certificate = self.content(
            "client-certificate-data",
            user.client_certificate_data.as_ref(),
            user.client_certificate.as_ref(),
        )?;
        let key = self.content(
            "client-key-data",
            user.client_key_data.as_ref(),
            user.client_key.as_ref(),
        )?;
        let (certificate, key) = match (certificate, key) {
            (None, None) => return Ok(None),
            (Some(certificate), Some(key)) => (certificate, key),
            _ => {
                return Err(invalid(
                    "client-key-data or client-key must be specified to use the clientCert authentication method",
                ));
            }
        };
        let chain = CertificateDer::pem_slice_iter(&certificate).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|_| invalid("the client certificate is no PEM"))?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| invalid("the client key is no PEM"))?;
        let identity = ClientIdentity::new(chain, key);
        identity
            .map(Some)
            .map_err(|_| invalid("client certificate and key do not fit together"))
    }

    fn credentials(&self, user: &User) -> Result<HookCredentials, KubeconfigError> {
        if user.exec.is_some() || user.auth_provider.is_some() {
            return Err(invalid("exec and auth-provider are not supported for webhooks"));
        }
        let mut headers = Vec::new();
        headers.extend(self.authorization(user)?.map(|value| (AUTHORIZATION, value)));
        headers.extend(user.impersonation()?);
        Ok(HookCredentials {
            identity: self.identity(user)?,
            headers,
        })
    }

    fn authorization(&self, user: &User) -> Result<Option<HeaderValue>, KubeconfigError> {
        // The file goes before the token, as client-go has it.
        let token = match (&user.token, &user.token_file) {
            (_, Some(path)) if !path.as_os_str().is_empty() => {
                let text = read_file(&self.0.join(path))?;
                Some(String::from_utf8_lossy(&text).trim().to_owned())
            }
            (Some(token), _) if !token.is_empty() => Some(token.clone()),
            _ => None,
        };
        let text = match (token, &user.username) {
            (Some(token), _) => format!("Bearer {token}"),
            (None, Some(name)) if !name.is_empty() => {
                let password = user.password.as_deref().unwrap_or_default();
                format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
            }
            _ => return Ok(None),
        };
        let mut value =
            HeaderValue::from_str(&text).map_err(|_| invalid("a credential cannot be in a header"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// The server of a kubeconfig's current context, for a webhook whose calls have so much time: that is in the URL, as client-go has it.
///
/// # Errors
/// See [`KubeconfigError`].
pub fn webhook_remote(kubeconfig: &Path, timeout: Duration) -> Result<Remote, KubeconfigError> {
    let nanos = i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX);
    remote(kubeconfig, &format!("timeout={}", leaf::write_duration(nanos)))
}

fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let text = read_file(path)?;
    // Problems of the form may quote the text, and that may hold a secret.
    let unreadable = || invalid(format!("{} cannot be read as a kubeconfig", path.display()));
    let json = yaml_to_json(&text).map_err(|_| unreadable())?;
    serde_json::from_str(&json).map_err(|_| unreadable())
}

/// The users of a kubeconfig, as credentials for the webhooks at the addresses that are their names. Clusters and contexts
/// beside the current one do not matter.
///
/// # Errors
/// See [`KubeconfigError`].
pub fn webhook_credentials(kubeconfig: &Path) -> Result<CredentialsByHost, KubeconfigError> {
    let config = read(kubeconfig)?;
    let place = Place(kubeconfig.parent().unwrap_or(Path::new(".")));
    let users = config.users.unwrap_or_default().into_iter();
    let users = users.map(|own| {
        let credentials = place.credentials(&own.user);
        (own.name, credentials.map_err(|error| error.to_string()))
    });
    let contexts = config.contexts.unwrap_or_default().into_iter();
    let mut current = contexts.filter(|own| Some(&own.name) == config.current_context.as_ref());
    let current = current.next().and_then(|own| own.context.user);
    Ok(CredentialsByHost::new(users.collect(), current))
}

/// The server of the current context; `query` is added to its URL.
fn remote(path: &Path, query: &str) -> Result<Remote, KubeconfigError> {
    let (cluster, user) = current(read(path)?)?;
    if user.exec.is_some() || user.auth_provider.is_some() {
        return Err(invalid("exec and auth-provider are not supported for webhooks"));
    }
    if cluster.proxy_url.as_ref().is_some_and(|own| !own.is_empty()) {
        return Err(invalid("proxy-url is not supported for webhooks"));
    }
    let place = Place(path.parent().unwrap_or(Path::new(".")));
    let authorities = place.content(
        "certificate-authority-data",
        cluster.certificate_authority_data.as_ref(),
        cluster.certificate_authority.as_ref(),
    )?;
    let skips = cluster.insecure_skip_tls_verify.unwrap_or_default();
    if skips && authorities.is_some() {
        return Err(invalid(
            "specifying a root certificates file with the insecure flag is not allowed",
        ));
    }
    let identity = place.identity(&user)?;
    let is_https = skips || authorities.is_some() || identity.is_some();
    let access = RemoteAccess::new(RemoteOptions {
        ca_bundle: authorities.as_deref().unwrap_or_default(),
        insecure_skip_tls_verify: skips,
        tls_server_name: cluster.tls_server_name.filter(|own| !own.is_empty()),
        identity,
        authorization: place.authorization(&user)?,
    })?;
    let server = cluster.server.unwrap_or_default();
    // A host alone is reached over TLS as soon as anything of TLS is configured, as by client-go.
    let server = match (server.contains("://"), is_https) {
        (true, _) => server,
        (false, _) if server.contains('/') => {
            return Err(invalid("host must be a URL or a host:port pair"));
        }
        (false, true) => format!("https://{server}"),
        (false, false) => format!("http://{server}"),
    };
    let url = format!("{}?{query}", server.trim_end_matches('/'));
    Ok(Remote::new(&url, &access)?)
}

fn current(config: Kubeconfig) -> Result<(Cluster, User), KubeconfigError> {
    let name = config.current_context.unwrap_or_default();
    let contexts = config.contexts.unwrap_or_default();
    let context = contexts.into_iter().find(|own| own.name == name);
    let context = context
        .ok_or_else(|| invalid(format!("context {name:?} does not exist")))?
        .context;
    let name = context.cluster.unwrap_or_default();
    let clusters = config.clusters.unwrap_or_default();
    let cluster = clusters.into_iter().find(|own| own.name == name);
    let cluster = cluster
        .ok_or_else(|| invalid(format!("cluster {name:?} does not exist")))?
        .cluster;
    if cluster.server.as_ref().is_none_or(String::is_empty) {
        return Err(invalid(format!("no server found for cluster {name:?}")));
    }
    let name = context.user.unwrap_or_default();
    if name.is_empty() {
        return Ok((cluster, User::default()));
    }
    let users = config.users.unwrap_or_default();
    let user = users.into_iter().find(|own| own.name == name);
    let user = user
        .ok_or_else(|| invalid(format!("user {name:?} does not exist")))?
        .user;
    Ok((cluster, user))
}

#[cfg(test)]
mod tests;
