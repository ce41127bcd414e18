//! Published keys, for simulated clusters: a seed is then the same run in every process.
//!
//! Authorities sign by Ed25519, whose signatures are the same each time (the first two keys of RFC 8032, 7.1); tokens
//! are signed by P-256 (the key of RFC 6979, A.2.5), whose signatures differ and are all of one length.

use apiserver_server::pki::{Pki, PkiError, ServingNames};
use machinery_runtime::Runtime;
use std::sync::Arc;

const CLUSTER: &str = "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g";
const FRONT_PROXY: &str = "MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7";
const SERVICE_ACCOUNTS: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgya+p2EW6dRZrXCFXZ7HWk05Qw9s26JsSe4piKxIPZyGhRANCAARg/tS6JVqdMclh63TGNW1owEm4kjth+mzmaWIuYPKftnkD/hAIuLyZpBrp6VYovGTy8bIMLX6fUXejwpTURiKZ";

/// Certificates of the known keys, valid from the runtime's now. Not for clusters with secrets.
pub fn known_keys(runtime: &Runtime) -> Result<Arc<Pki>, PkiError> {
    let files = [
        ("ca.key", CLUSTER),
        ("front-proxy-ca.key", FRONT_PROXY),
        ("sa.key", SERVICE_ACCOUNTS),
    ];
    let pem = |body| format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
    let files = files.map(|(name, body)| (name.to_owned(), pem(body)));
    let names: ServingNames = ["localhost", "127.0.0.1", "kubernetes.default.svc"]
        .map(str::to_owned)
        .into();
    Pki::with_keys(files.into(), &names, runtime.now()).map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_runtime::Simulation;

    #[test]
    fn known_keys_are_the_same_each_time() {
        let made = || known_keys(&Simulation::new(1).runtime()).unwrap();
        let (one, other) = (made(), made());
        let certificates =
            |pki: &Pki| [pki.cluster.certificate_pem(), pki.front_proxy.certificate_pem()].map(str::to_owned);
        assert_eq!(certificates(&one), certificates(&other));
        assert_eq!(
            one.service_accounts.public().id(),
            other.service_accounts.public().id()
        );
    }
}
