//! Serving certificates of an operator's authorities: `--tls-cert-file` and `--tls-sni-cert-key`, read again as their files
//! change.

use crate::config::ServerConfig;
use crate::error::ServerError;
use crate::file_reload::{self, WatchedFiles};
use crate::trust;
use apiserver_auth::authn::{AuthoritiesError, certificate_bundle};
use apiserver_auth::pki::{GivenCertificates, ServingCertificate, ServingCertificateError, ServingIdentity};
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Bits of a file's mode by which others than its owner may read it.
const READABLE_BY_OTHERS: u32 = 0o044;

/// A value of `--tls-sni-cert-key`: `certificate,key`, and behind a colon names that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SniCertificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Domain names, perhaps with a wildcard, and addresses; without, those of the certificate.
    pub names: Vec<String>,
}

/// A value that is none, in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SniCertificateError {
    #[error("empty names list is not allowed")]
    NoNames,
    #[error("expected comma separated certificate and key file paths")]
    NoPair,
}

impl FromStr for SniCertificate {
    type Err = SniCertificateError;

    fn from_str(text: &str) -> Result<Self, SniCertificateError> {
        let (pair, names) = match text.split_once(':') {
            Some((_, names)) if names.trim().is_empty() => return Err(SniCertificateError::NoNames),
            Some((pair, names)) => (
                pair,
                names.split(',').map(|name| name.trim().to_owned()).collect(),
            ),
            None => (text, Vec::new()),
        };
        let files: Vec<&str> = pair.split(',').map(str::trim).collect();
        let [certificate, key] = files[..] else {
            return Err(SniCertificateError::NoPair);
        };
        Ok(Self {
            certificate: certificate.into(),
            key: key.into(),
            names,
        })
    }
}

/// The files of one certificate.
#[derive(Debug, Clone)]
struct Pair {
    flag: &'static str,
    /// Purpose, as upstream's errors name it.
    purpose: &'static str,
    certificate: PathBuf,
    key: PathBuf,
    /// `None` for the certificate that takes the place of the server's own.
    names: Option<Vec<String>>,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}::{}::{}",
            self.purpose,
            self.certificate.display(),
            self.key.display()
        )
    }
}

/// The faults of files that upstream does not start with.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    #[error("missing content for serving cert {0:?}")]
    Empty(String),
    #[error(transparent)]
    Unusable(#[from] ServingCertificateError),
}

/// The certificates of a bundle in PEM: what else its file has, a key perhaps, stays out.
///
/// # Errors
/// There is none, or one cannot be an authority.
pub fn authorities_of(bundle: &str) -> Result<String, AuthoritiesError> {
    Ok(trust::bundle(&certificate_bundle(bundle)?))
}

/// Flags of which one without the other says nothing.
pub(crate) fn check(config: &ServerConfig) -> Option<String> {
    let (certificate, key) = (&config.tls_cert_file, &config.tls_private_key_file);
    (certificate.is_some() != key.is_some()).then(|| {
        "--tls-cert-file and --tls-private-key-file go together: missing filename for serving cert".to_owned()
    })
}

fn pairs(config: &ServerConfig) -> Vec<Pair> {
    let default = config
        .tls_cert_file
        .clone()
        .zip(config.tls_private_key_file.clone());
    let default = default.map(|(certificate, key)| Pair {
        flag: "--tls-cert-file",
        purpose: "serving-cert",
        certificate,
        key,
        names: None,
    });
    let named = config.tls_sni_cert_keys.iter().map(|own| Pair {
        flag: "--tls-sni-cert-key",
        purpose: "sni-serving-cert",
        certificate: own.certificate.clone(),
        key: own.key.clone(),
        names: Some(own.names.clone()),
    });
    default.into_iter().chain(named).collect()
}

/// The certificates in use, one for each pair of files.
struct Certificates {
    pairs: Vec<Pair>,
    loaded: Mutex<Vec<Arc<ServingCertificate>>>,
    serving: Arc<ServingIdentity>,
    runtime: Runtime,
}

/// Reads the configured files and serves them; the files are to be read again as they change.
pub(crate) fn open(
    config: &ServerConfig,
    serving: &Arc<ServingIdentity>,
    runtime: &Runtime,
) -> Result<Vec<WatchedFiles>, ServerError> {
    let certificates = Arc::new(Certificates {
        pairs: pairs(config),
        loaded: Mutex::default(),
        serving: Arc::clone(serving),
        runtime: runtime.clone(),
    });
    let mut watched = Vec::new();
    for (at, pair) in certificates.pairs.iter().enumerate() {
        let read = |path: &PathBuf| {
            file_reload::read(path).map_err(|source| ServerError::File {
                flag: pair.flag,
                path: path.clone(),
                source,
            })
        };
        let seen = vec![read(&pair.certificate)?, read(&pair.key)?];
        let certificate = certificates.load(pair, &seen);
        let certificate = certificate.map_err(|source| ServerError::ServingCertificate {
            flag: pair.flag,
            source,
        })?;
        certificates.loaded.lock().push(certificate);
        let own = Arc::clone(&certificates);
        let paths = vec![pair.certificate.clone(), pair.key.clone()];
        watched.push(WatchedFiles::new(pair.flag, paths, seen, move |texts| {
            let certificate = own.load(&own.pairs[at], texts)?;
            own.loaded.lock()[at] = certificate;
            own.serve();
            Ok(())
        }));
    }
    certificates.serve();
    Ok(watched)
}

impl Certificates {
    /// The certificate of these contents; says in the log what is to be known about it.
    fn load(&self, pair: &Pair, texts: &[String]) -> Result<Arc<ServingCertificate>, PairError> {
        let [certificate, key] = texts else {
            return Err(PairError::Empty(pair.to_string()));
        };
        if certificate.is_empty() || key.is_empty() {
            return Err(PairError::Empty(pair.to_string()));
        }
        let read = ServingCertificate::from_pem(certificate, key, self.serving.provider())?;
        let (flag, path) = (pair.flag, pair.certificate.display());
        tracing::info!(flag, %path, subject = read.subject(), names = ?read.names(), explicit_names = ?pair.names,
            not_after = %read.not_after(), "loaded serving certificate");
        for fault in read.faults(self.runtime.now()) {
            tracing::warn!(flag, %path, fault, "clients will refuse a serving certificate");
        }
        if is_readable_by_others(&pair.key) {
            tracing::warn!(flag, path = %pair.key.display(), "a private key can be read by other users of this machine; chmod 600");
        }
        Ok(Arc::new(read))
    }

    fn serve(&self) {
        let loaded = self.loaded.lock();
        let mut given = GivenCertificates::default();
        for (pair, certificate) in self.pairs.iter().zip(&*loaded) {
            match &pair.names {
                None => given.default = Some(Arc::clone(certificate)),
                Some(names) => given.named.push((Arc::clone(certificate), names.clone())),
            }
        }
        self.serving.give(&given);
    }
}

fn is_readable_by_others(key: &Path) -> bool {
    std::fs::metadata(key).is_ok_and(|metadata| metadata.permissions().mode() & READABLE_BY_OTHERS != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<(&str, &str, &[&str]), SniCertificateError>) {
        let expected = expected.map(|(certificate, key, names)| SniCertificate {
            certificate: certificate.into(),
            key: key.into(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        });
        assert_eq!(text.parse(), expected, "{text:?}");
    }

    /// The values of upstream's `TestNamedCertKeyArrayFlag`, and some more.
    #[test]
    fn sni_certificates_are_read_as_upstream_reads_them() {
        let pair = ("foo.crt", "foo.key");
        for text in ["foo.crt,foo.key", "  foo.crt , foo.key    "] {
            check(text, Ok((pair.0, pair.1, &[])));
        }
        for text in ["foo.crt,foo.key:abc", "foo.crt,foo.key: abc  "] {
            check(text, Ok((pair.0, pair.1, &["abc"])));
        }
        check(
            "foo.crt,foo.key:abc,def, ghi",
            Ok((pair.0, pair.1, &["abc", "def", "ghi"])),
        );
        check("foo.crt,foo.key:*.*.*", Ok((pair.0, pair.1, &["*.*.*"])));
        for text in ["foo.crt,foo.key:", "foo.crt,foo.key:   "] {
            check(text, Err(SniCertificateError::NoNames));
        }
        for text in ["", "   ", "a,b,c", "foo.crt", "foo.crt:abc"] {
            check(text, Err(SniCertificateError::NoPair));
        }
    }
}
