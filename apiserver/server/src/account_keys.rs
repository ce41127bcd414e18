//! The keys of service account tokens: one signs, several verify, so that a key can be replaced without ending tokens.

use crate::config::ServerConfig;
use crate::server::ServerError;
use apiserver_auth::jwt::keys::verifying_keys;
use apiserver_auth::jwt::{SigningKey, VerifyingKey};
use apiserver_auth::pki::{Pki, PkiError};
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
            Some(path) => SigningKey::from_pem(&read(path)?),
            None => pki.service_accounts.duplicate(),
        };
        let signing = signing.map_err(PkiError::from)?;
        let mut verifying = vec![signing.public().clone()];
        for path in &config.service_account_key_files {
            for key in verifying_keys(&read(path)?).map_err(PkiError::from)? {
                if verifying.iter().all(|known| known.id() != key.id()) {
                    verifying.push(key);
                }
            }
        }
        Ok(Self { signing, verifying })
    }
}

fn read(path: &Path) -> Result<String, ServerError> {
    std::fs::read_to_string(path).map_err(|source| ServerError::File {
        path: path.to_owned(),
        source,
    })
}
