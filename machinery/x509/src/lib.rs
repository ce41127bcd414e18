//! Client certificates: what a peer presented in its TLS handshake, whether it chains to an authority, and whom it names.
//!
//! The handshake requests a certificate and checks that the peer has its key ([`RequestClientCertificate`]). Each request is then
//! authenticated with the connection's [`PeerCertificate`] by [`Authorities`]: `chain` looks for a way to an authority by the rules
//! of Go's `crypto/x509`, which upstream's servers go by, and [`Verified`] has the user. Findings are kept with the connection.
//!
//! Both listeners authenticate by more that is here: the bearer token of a request ([`bearer_tokens`]), tokens that were good a
//! while ago ([`KnownTokens`]), and the group of authenticated users ([`with_authenticated_group`]).
//!
//! A client of servers without a known authority judges what they show by a function ([`ServerCheck`]).
//!
//! Signing requests are read here too ([`CertificateRequest`]), by the reader of certificates, and certificates are written for them
//! ([`Issue`]); the key that signs them is elsewhere. RSA keys are generated here ([`generate_rsa_key`]), for `ring` does not.
//!
//! Every byte of a certificate is untrusted until its chain is verified: reading is linear in its length, a chain has
//! at most [`MAX_CERTIFICATES`], and verifying it costs at most [`MAX_SIGNATURE_CHECKS`].
//!
//! Never here: clocks, sockets, files. Time is passed in.

mod authorities;
mod bearer;
mod certificate;
mod chain;
mod constraints;
mod der;
mod domain;
mod extensions;
mod general_names;
mod groups;
mod handshake;
mod issue;
mod known_tokens;
mod mailbox;
mod name;
mod peer;
mod pem;
mod request;
mod rsa_key;
mod server_check;
mod signature;
mod system_files;
mod text;
mod unverified;
mod uri;
mod usages;
mod user;
mod writer;

pub use authorities::{Authorities, AuthoritiesError, certificate_bundle};
pub use bearer::{MalformedToken, bearer_tokens, forget_token, ignored_token_warning};
pub use chain::MAX_SIGNATURE_CHECKS;
pub use der::Malformed;
pub use groups::{is_anonymous, with_authenticated_group};
pub use handshake::RequestClientCertificate;
pub use issue::{Issue, IssuingAlgorithm};
pub use known_tokens::KnownTokens;
pub use peer::{PeerCertificate, Verified};
pub use pem::{PemBlock, first_certificate_validity, pem_blocks, pem_text, public_key_pin};
pub use request::{CertificateRequest, RequestError};
pub use rsa_key::{KeyError, generate_rsa_key};
pub use server_check::{ServerCheck, ShownChain};
pub use system_files::SYSTEM_ROOT_FILES;
pub use unverified::{MAX_CERTIFICATES, Unverified};
pub use usages::{UnknownUsages, Usages};
pub use user::UserError;

#[cfg(test)]
mod issue_tests;
#[cfg(test)]
mod name_constraints_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
