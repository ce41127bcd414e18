//! Authorities of client certificates and of front proxies: the cluster's own, and those of files.

use crate::config::ServerConfig;
use crate::error::ServerError;
use crate::file_reload::{self, Problem, WatchedFiles};
use apiserver_auth::authn::request_header::RequestHeader;
use apiserver_auth::authn::{AuthoritiesError, ClientCertificates, certificate_bundle};
use apiserver_auth::pki::{Identity, Pki, ServingIdentity, server_config};
use arc_swap::ArcSwap;
use pem::{EncodeConfig, LineEnding, Pem};
use rustls::pki_types::CertificateDer;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Notify;

/// See the module.
#[derive(Debug)]
pub(crate) struct Trust {
    pub(crate) clients: Arc<ClientCertificates>,
    pub(crate) proxies: Arc<RequestHeader>,
    /// The authorities were replaced.
    pub(crate) changed: Notify,
    own_clients: CertificateDer<'static>,
    own_proxies: CertificateDer<'static>,
}

/// A bundle as it was read first.
struct Bundle {
    flag: &'static str,
    path: PathBuf,
    text: String,
}

impl Bundle {
    fn read(flag: &'static str, path: Option<&PathBuf>) -> Result<Option<Self>, ServerError> {
        let Some(path) = path else { return Ok(None) };
        let text = file_reload::read(path).map_err(|source| ServerError::File {
            flag,
            path: path.clone(),
            source,
        })?;
        Ok(Some(Self {
            flag,
            path: path.clone(),
            text,
        }))
    }
}

/// Certificates in PEM.
pub(crate) fn bundle(certificates: &[CertificateDer<'_>]) -> String {
    let lines = EncodeConfig::new().set_line_ending(LineEnding::LF);
    let encode = |der: &CertificateDer<'_>| pem::encode_config(&Pem::new("CERTIFICATE", der.to_vec()), lines);
    certificates.iter().map(encode).collect()
}

/// Every client could name users to this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users"
)]
pub struct SharedAuthority;

/// Refuses an authority of clients, the cluster's own among them, as one of front proxies that may have any name (upstream's
/// `BuiltInAuthenticationOptions.Validate`, at the start alone).
fn check_apart(
    names: &[String],
    proxies: &[CertificateDer<'_>],
    clients: &[CertificateDer<'_>],
) -> Result<(), SharedAuthority> {
    match names.is_empty() && proxies.iter().any(|proxy| clients.contains(proxy)) {
        true => Err(SharedAuthority),
        false => Ok(()),
    }
}

/// An authority of our own, and those of a bundle.
fn with_own(
    own: &CertificateDer<'static>,
    bundle: Option<&str>,
) -> Result<Vec<CertificateDer<'static>>, AuthoritiesError> {
    let mut all = vec![own.clone()];
    all.extend(bundle.map(certificate_bundle).transpose()?.unwrap_or_default());
    Ok(all)
}

impl Trust {
    /// Reads the configured files, and says which of them are to be read again as they change.
    pub(crate) fn open(
        config: &ServerConfig,
        pki: &Pki,
    ) -> Result<(Arc<Self>, Vec<WatchedFiles>), ServerError> {
        let clients = Bundle::read("--client-ca-file", config.client_ca_file.as_ref())?;
        let proxy_ca = config.request_header.client_ca_file.as_ref();
        let proxies = Bundle::read("--requestheader-client-ca-file", proxy_ca)?;
        let own_clients = pki.cluster.certificate().clone();
        let own_proxies = pki.front_proxy.certificate().clone();
        let failed = |bundle: &Option<Bundle>| {
            let flag = bundle.as_ref().map_or("the cluster's authority", |own| own.flag);
            move |source| ServerError::Authorities { flag, source }
        };
        let all = |own, bundle: &Option<Bundle>| {
            with_own(own, bundle.as_ref().map(|own| own.text.as_str())).map_err(failed(bundle))
        };
        let of_clients = all(&own_clients, &clients)?;
        let of_proxies = all(&own_proxies, &proxies)?;
        let names = config.request_header.names();
        check_apart(&names, &of_proxies, &of_clients)?;
        let front_proxies = RequestHeader::new(&of_proxies, names, config.request_header.headers());
        let front_proxies = front_proxies.map_err(failed(&proxies))?;
        let trust = Arc::new(Self {
            clients: Arc::new(ClientCertificates::new(&of_clients).map_err(failed(&clients))?),
            proxies: Arc::new(if proxies.is_some() {
                front_proxies.refusing_others()
            } else {
                front_proxies
            }),
            changed: Notify::new(),
            own_clients,
            own_proxies,
        });
        let mut watched = Vec::new();
        if let Some(bundle) = clients {
            let trust = Arc::clone(&trust);
            watched.push(watch(bundle, move |text| trust.replace_clients(text)));
        }
        if let Some(bundle) = proxies {
            let trust = Arc::clone(&trust);
            watched.push(watch(bundle, move |text| trust.replace_proxies(text)));
        }
        Ok((trust, watched))
    }

    fn replace_clients(&self, text: &str) -> Result<(), Problem> {
        let clients = with_own(&self.own_clients, Some(text))?;
        check_apart(
            self.proxies.allowed_names(),
            &self.proxies.authorities(),
            &clients,
        )?;
        self.clients.replace(&clients)?;
        self.changed.notify_one();
        Ok(())
    }

    fn replace_proxies(&self, text: &str) -> Result<(), Problem> {
        let proxies = with_own(&self.own_proxies, Some(text))?;
        check_apart(
            self.proxies.allowed_names(),
            &proxies,
            &self.clients.authorities(),
        )?;
        self.proxies.replace(&proxies)?;
        self.changed.notify_one();
        Ok(())
    }

    /// All authorities, which the listener names to clients.
    pub(crate) fn authorities(&self) -> Vec<CertificateDer<'static>> {
        let mut all = self.clients.authorities();
        all.extend(self.proxies.authorities());
        all
    }
}

fn watch(bundle: Bundle, replace: impl Fn(&str) -> Result<(), Problem> + Send + 'static) -> WatchedFiles {
    WatchedFiles::new(bundle.flag, vec![bundle.path], vec![bundle.text], move |texts| {
        replace(&texts[0])
    })
}

/// Changed authorities are named to the next connection too.
pub(crate) fn announced_again(
    watched: Vec<WatchedFiles>,
    tls: &Arc<ArcSwap<rustls::ServerConfig>>,
    serving: &Arc<ServingIdentity>,
    trust: &Arc<Trust>,
) -> Vec<WatchedFiles> {
    let greeted = |files: WatchedFiles| {
        let (tls, serving, trust) = (Arc::clone(tls), Arc::clone(serving), Arc::clone(trust));
        files.and_then(move || {
            tls.store(Arc::new(server_config(
                Arc::clone(&serving),
                &trust.authorities(),
            )?));
            Ok(())
        })
    };
    watched.into_iter().map(greeted).collect()
}

/// The serving certificate and its key, where they are files.
pub(crate) fn serving_files(
    config: &ServerConfig,
    pki: &Pki,
    serving: &Arc<ServingIdentity>,
) -> Option<WatchedFiles> {
    let folder = config.cert_dir.as_ref()?;
    let paths = [Pki::SERVING_CERTIFICATE, Pki::SERVING_KEY].map(|name| folder.join(name));
    let seen = vec![
        pki.serving.certificate_pem().to_owned(),
        pki.serving.key_pem().to_owned(),
    ];
    let serving = Arc::clone(serving);
    Some(WatchedFiles::new(
        "serving certificate",
        paths.to_vec(),
        seen,
        move |texts| {
            let identity = Identity::from_pem(texts[0].clone(), texts[1].clone());
            let identity = identity.ok_or("not a certificate and its key")?;
            Ok(serving.replace(&identity)?)
        },
    ))
}
