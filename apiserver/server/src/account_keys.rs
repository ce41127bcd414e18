//! The keys of service account tokens: one signs, several verify, so that a key can be replaced without ending tokens.

use crate::config::ServerConfig;
use crate::error::ServerError;
use crate::file_reload;
use apiserver_auth::jwt::public::verifying_keys;
use apiserver_auth::jwt::{JwtError, SigningKey, VerifyingKey};
use apiserver_auth::pki::Pki;
use std::path::Path;

/// See the module.
pub(crate) struct AccountKeys {
    pub(crate) signing: SigningKey,
    /// The signing key's own first.
    pub(crate) verifying: Vec<VerifyingKey>,
}

impl AccountKeys {
    /// Reads the configured files; without them the key of the cluster signs and verifies.
    pub(crate) fn load(config: &ServerConfig, pki: &Pki) -> Result<Self, ServerError> {
        let signing = match &config.service_account_signing_key_file {
            Some(path) => {
                let flag = "--service-account-signing-key-file";
                SigningKey::from_pem(&read(flag, path)?).map_err(unusable(flag, path))?
            }
            None => pki.service_accounts.clone(),
        };
        let mut verifying = vec![signing.public().clone()];
        for path in &config.service_account_key_files {
            let flag = "--service-account-key-file";
            let keys = verifying_keys(&read(flag, path)?).map_err(unusable(flag, path))?;
            for key in keys {
                if verifying.iter().all(|known| known.id() != key.id()) {
                    verifying.push(key);
                }
            }
        }
        Ok(Self { signing, verifying })
    }
}

fn read(flag: &'static str, path: &Path) -> Result<String, ServerError> {
    file_reload::read(path).map_err(|source| ServerError::File {
        flag,
        path: path.to_owned(),
        source,
    })
}

fn unusable<'a>(flag: &'static str, path: &'a Path) -> impl FnOnce(JwtError) -> ServerError + 'a {
    move |source| ServerError::AccountKey {
        flag,
        path: path.to_owned(),
        source,
    }
}
