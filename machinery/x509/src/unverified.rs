//! Reasons why a certificate is not verified.

use crate::der::Malformed;

/// Certificates that a peer may present, its own included.
pub const MAX_CERTIFICATES: usize = 16;

/// Reason why a certificate is not verified, in Go's words if it has some.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("more than {} certificates", MAX_CERTIFICATES)]
    TooMany,
    #[error("x509: certificate signed by unknown authority")]
    UnknownAuthority,
    #[error("x509: certificate has expired or is not yet valid")]
    Expired,
    #[error("x509: unhandled critical extension")]
    UnknownCriticalExtension,
    #[error("x509: certificate is not authorized to sign other certificates")]
    NotAuthorizedToSign,
    #[error("x509: too many intermediates for path length constraint")]
    TooManyIntermediates,
    #[error("x509: certificate specifies an incompatible key usage")]
    KeyUsage,
    #[error("x509: the signature of a certificate is wrong, or of an algorithm that is not supported")]
    Signature,
    #[error("x509: signature check attempts limit reached while verifying certificate chain")]
    TooManySignatures,
    #[error("x509: a root or intermediate certificate is not authorized to sign for {0:?}")]
    Name(String),
    #[error("x509: too many constraints")]
    TooManyConstraints,
    #[error("x509: a certificate requires policies, which are not supported")]
    Policy,
}
