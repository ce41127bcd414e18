//! Clients that are known by certificate, as the API server knows them: requested in the handshake, verified with every request.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use machinery_x509::{
    Authorities, AuthoritiesError, PeerCertificate, certificate_bundle, with_authenticated_group,
};
use parking_lot::Mutex;

use super::ServerError;

/// Interval between reads of the file of authorities.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);
/// A larger file is no bundle of authorities.
const BUNDLE_BYTES_MAX: u64 = 1 << 20;

/// The authorities of `--client-ca-file`, as they are now.
#[derive(Debug)]
pub(crate) struct Clients {
    path: PathBuf,
    authorities: Authorities,
    /// The file's content when it was last read, or the reason why it could not be read.
    seen: Mutex<Result<String, String>>,
}

impl Clients {
    /// Reads the file.
    pub(super) fn open(path: PathBuf) -> Result<Arc<Self>, ServerError> {
        let failed = |error: &dyn std::fmt::Display| ServerError::Tls(format!("{}: {error}", path.display()));
        let text = read(&path).map_err(|error| failed(&error))?;
        let authorities = certificate_bundle(&text).and_then(Authorities::new);
        Ok(Arc::new(Self {
            authorities: authorities.map_err(|error| failed(&error))?,
            seen: Mutex::new(Ok(text)),
            path,
        }))
    }

    /// The user whom the peer's certificate names. `None` without a certificate or one of these authorities: a token may still
    /// authenticate the request.
    pub(crate) fn user(&self, peer: Option<&PeerCertificate>, now: Timestamp) -> Option<UserInfo> {
        let peer = peer?;
        let found = self.authorities.verified(peer, now);
        let found = found.map_err(|why| why.to_string());
        let user = found.and_then(|found| found.user.clone().map_err(|why| why.to_string()));
        match user {
            Ok(user) => user.map(with_authenticated_group),
            Err(why) => {
                tracing::debug!(
                    certificate = peer.identifier(),
                    why,
                    "unable to authenticate a client"
                );
                None
            }
        }
    }

    /// Follows the file for ever, on connections that are open too. While it cannot be used, the authorities before stay.
    pub(crate) async fn follow(self: Arc<Self>, runtime: Runtime) {
        loop {
            runtime.sleep(RELOAD_INTERVAL).await;
            let own = Arc::clone(&self);
            match runtime.blocking(move || own.look()).await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => tracing::info!("client authorities reloaded"),
                Ok(Err(error)) => {
                    tracing::error!(%error, "client authorities not reloaded, keeping the previous ones");
                }
                Err(error) => tracing::error!(%error, "reading client authorities failed"),
            }
        }
    }

    /// Reports whether others count from now on.
    fn look(&self) -> Result<bool, AuthoritiesError> {
        let mut seen = self.seen.lock();
        let read = read(&self.path).map_err(|error| error.to_string());
        if read == *seen {
            return Ok(false);
        }
        seen.clone_from(&read);
        match read {
            Ok(text) => self
                .authorities
                .replace(certificate_bundle(&text)?)
                .map(|()| true),
            // It may be away for a moment while it is replaced.
            Err(why) => {
                tracing::warn!(
                    why,
                    "reading client authorities failed, keeping the previous ones"
                );
                Ok(false)
            }
        }
    }
}

fn read(path: &std::path::Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    let length = file.take(BUNDLE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if length as u64 > BUNDLE_BYTES_MAX {
        let why = "the file is larger than 1 MiB";
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, why));
    }
    // Text around the certificates may have any encoding.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};

    type Authority = CertifiedIssuer<'static, KeyPair>;

    fn authority() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn client(by: &Authority, parts: &[(DnType, &str)]) -> PeerCertificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.not_after = rcgen::date_time_ymd(2036, 1, 1);
        let made = params.signed_by(&KeyPair::generate().unwrap(), by).unwrap();
        PeerCertificate::new(&[made.der().clone()]).unwrap()
    }

    #[test]
    fn clients_are_known_while_their_authority_and_their_certificate_count() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (authority(), authority());
        let path = folder.path().join("ca.crt");
        std::fs::write(&path, one.pem()).unwrap();
        let clients = Clients::open(path.clone()).unwrap();
        let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57_683, 2]);
        let anna = client(
            &one,
            &[
                (DnType::CommonName, "system:apiserver"),
                (DnType::OrganizationName, "blue"),
                (uid, "u-1"),
                (DnType::CustomDnType(vec![2, 5, 4, 3]), "anna"),
            ],
        );
        let (ben, nobody) = (client(&other, &[(DnType::CommonName, "ben")]), client(&one, &[]));
        let at = |peer: &PeerCertificate, at: &str| clients.user(Some(peer), at.parse().unwrap());
        let name = |peer: &PeerCertificate| at(peer, "2030-01-01T00:00:00Z").map(|user| user.name);
        let found = at(&anna, "2030-01-01T00:00:00Z").unwrap();
        assert_eq!((found.name.as_str(), found.uid.as_str()), ("anna", "u-1"));
        assert_eq!(found.groups, ["blue", "system:authenticated"]);
        let id = &found.extra["authentication.kubernetes.io/credential-id"][0];
        assert!(id.starts_with("X509SHA256="));
        assert_eq!(
            at(&anna, "2036-01-01T00:00:01Z"),
            None,
            "its certificate has ended"
        );
        assert_eq!((name(&ben), name(&nobody)), (None, None));
        assert_eq!(clients.user(None, Timestamp::UNIX_EPOCH), None);

        std::fs::write(&path, other.pem()).unwrap();
        assert!(clients.look().unwrap());
        assert_eq!((name(&anna), name(&ben).as_deref()), (None, Some("ben")));
        std::fs::write(&path, "nothing").unwrap();
        assert!(clients.look().is_err());
        let padding = "#".repeat(1 << 20);
        std::fs::write(&path, format!("{}{padding}", one.pem())).unwrap();
        assert!(!clients.look().unwrap(), "a file that is too long is not cut");
        assert!(Clients::open(path.clone()).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(!clients.look().unwrap());
        assert_eq!(name(&ben).as_deref(), Some("ben"), "those before stay");
        let foreign = [b"caf\xe9\n", one.pem().as_bytes()].concat();
        std::fs::write(&path, foreign).unwrap();
        assert!(clients.look().unwrap());
        assert_eq!(name(&anna).as_deref(), Some("anna"));
    }
}
